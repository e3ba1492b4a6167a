"""What the nodes themselves have against a run: links that are down, errors counted, a NIC that hardly sent. Pure.

Remarks but for NICs that are not there: NCCL's log, not a counter, decides whether the path was the one asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from workloads.exits import Exit
from workloads.nccl.evidence.facts import Counter, Evidence, Nic
from workloads.nccl.evidence.problems import REMARK
from workloads.nccl.result import Finding

SILENT = 0.1  # of what the node's NICs sent in the median
WORTH = 10**9  # bytes that the median must have sent before one NIC's silence means something


def node_problems(evidence: Evidence | None, *, nics: int | None = None) -> list[Finding]:
    """Findings on every node of a run; `nics` RDMA NICs with an active link are wanted of each (None: not known)."""
    return list(_all(evidence, nics)) if evidence is not None else []


def _all(evidence: Evidence, nics: int | None) -> Iterator[Finding]:
    for rank in evidence.ranks:
        host = rank.host or f"the node of rank {rank.rank}"
        if rank.nics is not None:
            yield from _links(host, rank.nics, nics)
        if rank.counters is not None:
            yield from _counted(host, rank.counters)
    drivers = sorted({rank.driver for rank in evidence.ranks if rank.driver})
    if len(drivers) > 1:
        yield _remark("drivers-differ", f"the nodes run different GPU drivers: {', '.join(drivers)}")


def _links(host: str, found: list[Nic], wanted: int | None) -> Iterator[Finding]:
    down = [nic for nic in found if nic.state is not None and nic.state != "ACTIVE"]
    active = len(found) - len(down)
    names = f": {', '.join(f'{nic.name} is {nic.state}' for nic in down)}" if down else ""
    if wanted is not None and active < wanted:
        text = f"{host}: the links of {active} of {wanted} NICs are up{names}"
        yield Finding(code=Exit.NOT_AS_ASKED, kind="nic-missing", text=text)
    elif down:
        yield _remark("link-down", f"{host}{names}")


def _counted(host: str, found: list[Counter]) -> Iterator[Finding]:
    for counter in found:
        errors = ", ".join(f"{name} {count}" for name, count in counter.errors.items() if count)
        if errors:
            yield _remark("nic-errors", f"{counter.nic} on {host} counted errors during the run: {errors}")
        if counter.reset:
            yield _remark("nic-reset", f"{counter.nic} on {host} began to count anew during the run: was it restarted?")
    usual = median(counter.sent for counter in found) if found else 0
    if usual >= WORTH:
        for counter in found:
            if counter.sent < SILENT * usual:
                text = (
                    f"{counter.nic} on {host} sent {counter.sent / 1e9:.1f} GB, the node's median NIC {usual / 1e9:.1f}"
                )
                yield _remark("nic-silent", text)


def _remark(kind: str, text: str) -> Finding:
    return Finding(code=REMARK, kind=kind, text=text)
