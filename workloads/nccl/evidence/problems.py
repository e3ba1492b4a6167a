"""What a log says that is not what was asked for. Pure: the judge composes these findings with its own.

A finding with code 5 means that the figures, however good, are not those of the fabric that was asked for; code 0 is a
remark.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.exits import Exit
from workloads.nccl.evidence.facts import Channel, LogFacts
from workloads.nccl.evidence.reader import SOCKETS
from workloads.nccl.result import Finding

REMARK = 0

# The plugin that carries a machine's transport, as NCCL names it (infra/catalog/machines.py: Machine.transport).
PLUGINS = {"gib": "gIB", "efa": "Libfabric"}
HOW = "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING on every rank"


def problems(
    facts: LogFacts | None,
    *,
    nodes: int,
    nics: int | None,
    transport: str | None,
    ranks: int | None = None,
    gdrdma: bool = True,
) -> list[Finding]:
    """What speaks against the log of a run on `nodes` nodes with `ranks` ranks in all.

    `nics` RDMA NICs of one node (None: not known, or not all of them asked for), `transport` `gib` or `efa` (None: any
    but sockets), `gdrdma` whether GPUDirect RDMA is demanded. One node has no fabric: only the log itself is looked at.
    """
    return list(_problems(facts, nodes, nics, transport, ranks, gdrdma))


def _problems(
    facts: LogFacts | None, nodes: int, nics: int | None, transport: str | None, ranks: int | None, gdrdma: bool
) -> Iterator[Finding]:
    if facts is None:
        yield _wrong("no-log", f"there is no NCCL log: nothing shows how the data travelled; {HOW}")
        return
    if not facts.lines:
        yield _wrong("empty-log", f"the log has no line of NCCL's: nothing shows how the data travelled; {HOW}")
        return
    yield from _whole(facts)
    yield from _world(facts, nodes, ranks)
    if nodes > 1:
        yield from _network(facts, transport)
        yield from _within(facts)
        if not _sockets(facts):
            yield from _gpu_direct(facts, gdrdma)
            if nics is not None:
                yield from _nics(facts, nics)
    yield from _remarks(facts)


def _whole(facts: LogFacts) -> Iterator[Finding]:
    if facts.unfinished:
        ranks = ", ".join(map(str, facts.unfinished[:8])) + (" …" if len(facts.unfinished) > 8 else "")
        yield _wrong(
            "truncated-log", f"the initialisation began and did not end on rank {ranks}: NCCL hung, or the log was cut"
        )
    elif facts.truncated:
        yield _wrong(
            "truncated-log",
            "the log ends in the middle of a line or of the initialisation: it was cut, or NCCL failed there",
        )


def _world(facts: LogFacts, nodes: int, ranks: int | None) -> Iterator[Finding]:
    hosts = sorted(set(facts.hosts.values()))
    if ranks is not None and facts.nranks is not None and facts.nranks != ranks:
        kind = "too-few-ranks" if facts.nranks < ranks else "another-run"
        yield _wrong(kind, f"{ranks} ranks were asked for, the log's communicator has {facts.nranks}")
    if facts.nnodes is not None and facts.nnodes < nodes:
        where = f": every rank is on {hosts[0]}" if len(hosts) == 1 and facts.nnodes == 1 else ""
        kind = "same-host" if facts.nnodes == 1 else "too-few-nodes"
        yield _wrong(kind, f"{nodes} nodes were asked for, NCCL saw {facts.nnodes}{where}")
    elif facts.nnodes is not None and facts.nnodes > nodes:
        yield _wrong("another-run", f"{nodes} nodes were asked for, NCCL saw {facts.nnodes}: another run's log?")
    if facts.nranks is None and not facts.truncated:
        yield _wrong("no-communicator", f"the log names no communicator: which ranks took part is not shown; {HOW}")
    elif facts.nranks is not None and 0 < len(facts.hosts) < facts.nranks:
        yield _remark("some-ranks", f"the log covers {len(facts.hosts)} of {facts.nranks} ranks")


def _network(facts: LogFacts, transport: str | None) -> Iterator[Finding]:
    wanted = PLUGINS.get(transport) if transport else None
    others = [plugin for plugin in facts.plugins if plugin != wanted and plugin not in SOCKETS]
    if sockets := _sockets(facts):
        yield _wrong(
            "socket-transport",
            f"NCCL used sockets (NET/{sockets[0]}): no RDMA. Is the plugin in LD_LIBRARY_PATH, are the RDMA NICs in the"
            " pod?",
        )
    if wanted is not None and others:
        yield _wrong("other-plugin", f"this machine's plugin is {wanted}; NCCL used {', '.join(others)}")
    # A log that was cut need not say all of this, and that it was cut has been said.
    if not facts.plugins and not facts.truncated:
        yield _wrong("no-plugin", f"the log does not name the network that NCCL used; {HOW}")
    if transport == "efa" and facts.provider is not None and facts.provider != "efa":
        yield _wrong("other-provider", f"Libfabric's provider is {facts.provider}, not efa: no EFA device was used")
    if not _carried(facts) and not facts.truncated:
        between = "" if not facts.channels else ": all that it names stay inside a node"
        yield _wrong("no-channel", f"the log names no connection through a NIC{between}; {HOW}")


def _within(facts: LogFacts) -> Iterator[Finding]:
    """Connections through a NIC between ranks of one host: they cross no fabric."""
    known = [channel for channel in _carried(facts) if channel.transport == "NET" and _sized(facts, channel)]
    inside = [channel for channel in known if _same_host(facts, channel)]
    if inside:
        first = inside[0]
        text = (
            f"{len(inside)} of {len(known)} connections through NICs join ranks of one host, first rank {first.sender}"
        )
        text += f" and {first.receiver} on {facts.hosts[first.sender]}"
        yield _wrong("same-host", text) if len(inside) == len(known) else _remark("same-host", text)


def _gpu_direct(facts: LogFacts, demanded: bool) -> Iterator[Finding]:
    code = Exit.NOT_AS_ASKED if demanded else REMARK
    carried = _carried(facts)
    plain = [channel for channel in carried if not channel.gdrdma]
    if plain:
        first = plain[0]
        yield Finding(
            code=code,
            kind="no-gdrdma",
            text=f"{len(plain)} of {len(carried)} connections through NICs go without GPUDirect RDMA, first rank"
            f" {first.sender} to {first.receiver} on device {first.device}: data is copied through the host",
        )
    elif facts.no_gdrdma_hcas:
        indexes = ", ".join(map(str, facts.no_gdrdma_hcas))
        yield Finding(
            code=code, kind="no-gdrdma", text=f"NCCL says that GPUDirect RDMA is disabled for the NICs {indexes}"
        )


def _nics(facts: LogFacts, nics: int) -> Iterator[Finding]:
    used = _devices_used(facts)
    counts = {host: facts.nics_found.get(host, len(names)) for host, names in facts.nics_by_host.items()}
    counts = facts.nics_found | counts
    if not counts and facts.hcas:
        counts = {"the log": len(facts.hcas)}
    if not counts and not _joined(facts):
        counts = {host: len(devices) for host, devices in used.items()}
    if not counts:
        if not facts.truncated:
            yield _wrong("nics-unknown", f"the log does not name the NICs, of which a node has {nics}; {HOW}")
        return
    for host, count in sorted(counts.items()):
        if count < nics:
            there = set(facts.nics_by_host.get(host, ())) or set(facts.hcas)
            absent = [] if host in facts.nics_found else sorted(set(facts.hcas) - there)
            yield _wrong(
                "nic-missing", f"{host}: {count} of {nics} NICs" + (f", without {', '.join(absent)}" if absent else "")
            )
        elif host in used and len(used[host]) < nics and not _joined(facts) and _ranks_on(facts, host) >= nics:
            yield _wrong("nic-idle", f"{host}: only {len(used[host])} of its {nics} NICs carry a connection")
    unnamed = sorted(set(facts.hosts.values()) - set(counts)) if "the log" not in counts else []
    if unnamed and not facts.truncated:
        yield _wrong("nics-unknown", f"{', '.join(unnamed[:8])}: the log does not name the NICs, {nics} are expected")


def _remarks(facts: LogFacts) -> Iterator[Finding]:
    if len(facts.versions) > 1:
        yield _remark("versions-differ", f"the ranks run different versions of NCCL: {', '.join(facts.versions)}")
    if facts.warnings:
        count = len(facts.warnings) + facts.warnings_left_out
        yield _remark("warnings", f"NCCL warned in {count} different lines, first: {facts.warnings[0][:300]}")


def _sockets(facts: LogFacts) -> list[str]:
    return [plugin for plugin in facts.plugins if plugin in SOCKETS]


def _carried(facts: LogFacts) -> list[Channel]:
    return [channel for channel in facts.channels if channel.transport in ("NET", "COLLNET")]


def _sized(facts: LogFacts, channel: Channel) -> bool:
    """Whether the channel's ranks are those of the whole run, and not of a smaller communicator."""
    return channel.size in (None, facts.nranks)


def _same_host(facts: LogFacts, channel: Channel) -> bool:
    sender, receiver = facts.hosts.get(channel.sender), facts.hosts.get(channel.receiver)
    return sender is not None and sender == receiver and channel.sender != channel.receiver


def _joined(facts: LogFacts) -> bool:
    """Whether a device stands for several NICs: aws-ofi-nccl makes one of all NICs beside a GPU."""
    return facts.plugin == "Libfabric"


def _ranks_on(facts: LogFacts, host: str) -> int:
    return sum(1 for name in facts.hosts.values() if name == host)


def _devices_used(facts: LogFacts) -> dict[str, set[int]]:
    """The devices that carry connections, by host; nothing where a rank's log is lacking, for it may use the rest."""
    if facts.nranks is None or len(facts.hosts) < facts.nranks:
        return {}
    used: dict[str, set[int]] = {}
    for channel in _carried(facts):
        rank = channel.sender if channel.end == "send" else channel.receiver
        if channel.device is not None and channel.end and _sized(facts, channel) and rank in facts.hosts:
            used.setdefault(facts.hosts[rank], set()).add(channel.device)
    return used


def _wrong(kind: str, text: str) -> Finding:
    return Finding(code=Exit.NOT_AS_ASKED, kind=kind, text=text)


def _remark(kind: str, text: str) -> Finding:
    return Finding(code=REMARK, kind=kind, text=text)
