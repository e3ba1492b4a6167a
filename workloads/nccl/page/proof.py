"""The evidence as tables: what NCCL said, what the NICs counted, what the ranks were told. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.nccl.evidence.facts import Evidence, LogFacts
from workloads.nccl.page.content import Table
from workloads.nccl.result import Result

NOT_COLLECTED = "not collected"


def tables(result: Result) -> list[Table]:
    """Transport, counters, versions, environment, topology; what is missing is said, never left out."""
    evidence = result.evidence
    found = [_transport(result, evidence), _counters(result, evidence)]
    versions = [(key, value or "not there") for key, value in (result.versions or {}).items()]
    if evidence:
        versions.append(("image", evidence.image or f"{NOT_COLLECTED}: the cluster does not tell"))
    found.append(_pairs("Versions", "part", "version", versions, "the result holds none"))
    environment = list((result.environment or {}).items())
    found.append(_pairs("Environment of rank 0", "variable", "value", environment, "the result holds none"))
    topology = list(evidence.topology.items()) if evidence else []
    found.append(_pairs("Topology", "node", "nvidia-smi topo", topology, _why(result)))
    return found


def missing(result: Result) -> list[str]:
    """What the run itself says that it could not collect."""
    return list(result.evidence.missing) if result.evidence else []


def _transport(result: Result, evidence: Evidence | None) -> Table:
    columns = ("host", "ranks", "network", "NICs", "GPUDirect RDMA", "channels", "algorithms")
    members = {member.rank: member for member in result.ranks or []}
    # Ranks of a host whose logs say the same share a line: what differs is what somebody looks for.
    alike: dict[tuple[str, ...], list[int]] = {}
    for one in evidence.ranks if evidence else []:
        host = members[one.rank].host if one.rank in members else "unknown"
        alike.setdefault((host, *_log(one.log)), []).append(one.rank)
    rows = [(host, ranges(ranks), *said) for (host, *said), ranks in alike.items()]
    note = "From NCCL's own log of every rank." if rows else f"{NOT_COLLECTED}: {_why(result)}"
    return Table("What NCCL used", columns, rows, text=len(columns), note=note)


def _log(log: LogFacts | None) -> tuple[str, ...]:
    if log is None:
        return (f"{NOT_COLLECTED}: no log of this rank", *["–"] * 4)
    network = " ".join(filter(None, (log.plugin, log.plugin_version))) or "the log does not say"
    known = len(set(log.gdrdma_hcas) | set(log.no_gdrdma_hcas))
    direct = f"{len(set(log.gdrdma_hcas))} of {known} NICs" if known else "the log does not say"
    across = [channel for channel in log.channels if channel.transport == "NET"]
    kinds = sorted({f"NET/{channel.plugin}{'/GDRDMA' if channel.gdrdma else ''}" for channel in across})
    others = sorted({channel.transport for channel in log.channels} - {"NET"})
    return (
        network + (" (log truncated)" if log.truncated else ""),
        f"{len(log.hcas)}: {_short(log.hcas)}" if log.hcas else "the log names none",
        direct,
        ", ".join([*kinds, *others]) or "none in the log",
        _short(log.algorithms) or "the log does not say",
    )


def _counters(result: Result, evidence: Evidence | None) -> Table:
    members = {member.rank: member for member in result.ranks or []}
    rows = []
    for one in evidence.ranks if evidence else []:
        for counter in one.counters or []:
            host = members[one.rank].host if one.rank in members else "unknown"
            errors = ", ".join(f"{name} {count}" for name, count in counter.errors.items() if count) or "none"
            rows.append((host, counter.nic, errors, f"{counter.sent / 1e9:.1f}", f"{counter.received / 1e9:.1f}"))
    why = _why(result) if evidence is None else "no node showed its NICs' counters"
    note = "During the whole run, of the whole node." if rows else f"{NOT_COLLECTED}: {why}"
    return Table("What the NICs counted", ("host", "NIC", "errors", "sent GB", "received GB"), rows, text=3, note=note)


def _pairs(title: str, name: str, value: str, rows: Sequence[tuple[str, str]], why: str) -> Table:
    return Table(title, (name, value), rows, text=2, note="" if rows else f"{NOT_COLLECTED}: {why}")


def _why(result: Result) -> str:
    if result.backend == "gloo":
        return "gloo has neither NCCL's log nor RDMA NICs"
    return "the result holds no evidence" if result.evidence is None else "the nodes told nothing of it"


def ranges(numbers: Sequence[int]) -> str:
    """`0–7, 9`: ascending, runs of three and more as ranges."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _short(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:8]) + (f" and {len(unique) - 8} more" if len(unique) > 8 else "")
