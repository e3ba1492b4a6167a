"""NCCL's log, read: what NCCL_DEBUG=INFO says about plugin, NICs, GPUDirect RDMA, channels and algorithms. Pure.

Formats: the INFO and WARN calls of NVIDIA/nccl v2.18.3 to v2.30.7 (src/debug.cc, init.cc, enqueue.cc, graph/topo.cc,
transport/), of aws/aws-ofi-nccl v1.1 to v1.19 (src/nccl_ofi_net.cpp), and of gIB as published logs show it; read in
November 2026. A line is `host:pid:tid [device] NCCL INFO message`, wherever it stands: Ray, MPI and log collectors put
their own words before it, and several ranks' lines may be mixed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from workloads.nccl.evidence.facts import Choice, LogFacts
from workloads.nccl.evidence.reader import WARNINGS_KEPT, Reader


def parse_log(text: str) -> LogFacts:
    """The facts in a log, of one rank or of several mixed. Any text has facts; nothing raises."""
    return parse_lines(io.StringIO(text))


def parse_lines(lines: Iterable[str]) -> LogFacts:
    """As parse_log, from a file's lines, each with its line end: a log of 200 MB need not be in memory."""
    reader = Reader()
    for line in lines:
        reader.line(line)
    return reader.facts()


def thinned(facts: LogFacts, channels: int, warnings: int) -> LogFacts:
    """The facts with at most so many connections and warnings: of a thousand ranks, each has thousands.

    Kept first are the connections through NICs without GPUDirect RDMA, then one of each device and direction.
    """

    bad, first, rest = [], [], []
    seen: set[object] = set()
    for channel in facts.channels:
        kind = (channel.transport, channel.device, channel.end)
        if channel.transport in ("NET", "COLLNET") and not channel.gdrdma:
            bad.append(channel)
        elif kind not in seen:
            first.append(channel)
        else:
            rest.append(channel)
        seen.add(kind)
    chosen = set((bad + first + rest)[:channels])
    kept = [channel for channel in facts.channels if channel in chosen]
    return facts.model_copy(
        update={
            "channels": kept,
            "channels_left_out": facts.channels_left_out + len(facts.channels) - len(kept),
            "warnings": facts.warnings[:warnings],
            "warnings_left_out": facts.warnings_left_out + max(0, len(facts.warnings) - warnings),
        }
    )


def merge(logs: list[LogFacts]) -> LogFacts:
    """Several ranks' facts as one. Where they cannot be put together (plugin, version), the first one's stands.

    `plugins`, `versions`, `nics_by_host` and `hosts` keep what differs.
    """
    found = [log for log in logs if log.lines]
    warnings = _union(log.warnings for log in found)
    choices: dict[Choice, None] = {choice: None for log in found for choice in log.choices}
    return LogFacts(
        nccl_version=_first(log.nccl_version for log in found),
        plugin=_first(log.plugin for log in found),
        plugin_version=_first(log.plugin_version for log in found),
        nranks=max((log.nranks for log in found if log.nranks is not None), default=None),
        nnodes=_nnodes(found),
        hosts=_hosts(found),
        hcas=_union(log.hcas for log in found),
        gdrdma_hcas=sorted({index for log in found for index in log.gdrdma_hcas}),
        no_gdrdma_hcas=sorted({index for log in found for index in log.no_gdrdma_hcas}),
        channels=list({channel: None for log in found for channel in log.channels}),
        algorithms=_union(log.algorithms for log in found),
        warnings=warnings[:WARNINGS_KEPT],
        # A log without a line is one that was lost: that, too, leaves the whole incomplete.
        truncated=any(log.truncated for log in logs) or len(found) < len(logs),
        lines=sum(log.lines for log in found),
        plugins=_union(log.plugins for log in found),
        versions=_union(log.versions for log in found),
        nics_by_host={
            host: _union(log.nics_by_host.get(host, []) for log in found)
            for host in _union(log.nics_by_host for log in found)
        },
        nics_found={host: count for log in found for host, count in log.nics_found.items()},
        provider=_first(log.provider for log in found),
        fabric=_first(log.fabric for log in found),
        choices=sorted(choices, key=lambda choice: (choice.op, choice.size, choice.algorithm, choice.protocol)),
        nvls_channels=max((log.nvls_channels for log in found if log.nvls_channels is not None), default=None),
        unfinished=sorted({rank for log in found for rank in log.unfinished}),
        warnings_left_out=sum(log.warnings_left_out for log in found) + max(0, len(warnings) - WARNINGS_KEPT),
        channels_left_out=sum(log.channels_left_out for log in found),
    )


def _hosts(logs: list[LogFacts]) -> dict[int, str]:
    """Ranks of the largest communicator only: those of a smaller one count from 0 again."""
    size = max((log.nranks for log in logs if log.nranks is not None), default=None)
    known: dict[int, str] = {}
    for log in logs:
        if log.nranks == size:
            known = log.hosts | known
    return dict(sorted(known.items()))


def _nnodes(logs: list[LogFacts]) -> int | None:
    """NCCL's own count where it gives one; before 2.20 it does not, and the hosts of all ranks are counted."""
    told = [log.nnodes for log in logs if log.nnodes is not None]
    hosts = _hosts(logs)
    size = max((log.nranks for log in logs if log.nranks is not None), default=None)
    if size is not None and len(hosts) == size:
        told.append(len(set(hosts.values())))
    return max(told, default=None)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value is not None), None)


def _union(lists: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(value for values in lists for value in values))
