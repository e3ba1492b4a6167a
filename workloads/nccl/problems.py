"""Findings in the evidence: how NCCL's log and the nodes differ from the request. Pure.

Code 5: the figures are not those of the requested fabric. Code 0: a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median

from workloads.evidence.facts import Channel, Evidence, LogFacts, counted, merge
from workloads.evidence.log_reader import JOINED, SOCKETS
from workloads.exits import Exit
from workloads.hardware.gpu import APPLICATION_XIDS, Gpu
from workloads.hardware.nic import Counter
from workloads.nccl.options import Network
from workloads.nccl.result import EvidenceFinding

FIX = "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH on every rank"
SILENT = 0.1  # share of what the node's median NIC sent
THROTTLED = "gpu-throttled"  # kind of finding; see judge.verdict
BUSY = 10**9  # bytes that the median NIC must send before a silent NIC is reported


def failure(kind: str, text: str, code: Exit = Exit.NOT_AS_ASKED) -> EvidenceFinding:
    """Return a finding that fails the run."""
    return EvidenceFinding(code=code, kind=kind, text=text)


def remark(kind: str, text: str) -> EvidenceFinding:
    """Return a finding that does not fail the run."""
    return EvidenceFinding(code=Exit.OK, kind=kind, text=text)


def problems(
    facts: LogFacts | None, *, nodes: int, nics: int | None, network: Network | None, ranks: int | None = None
) -> Iterator[EvidenceFinding]:
    """Yield the findings in the log of a run. One node has no fabric: only the log itself is checked.

    Args:
        nics: RDMA NICs of one node; None if not known, or if not all of them are requested.
        network: What the log has to name; None for any network but sockets.
        ranks: Ranks of the whole run.
    """
    if facts is None:
        yield failure("no-log", f"there is no NCCL log: nothing shows how the data traveled; {FIX}")
        return
    if not facts.lines:
        yield failure("empty-log", f"the log has no NCCL line: nothing shows how the data traveled; {FIX}")
        return
    if facts.unfinished:
        stuck = ", ".join(map(str, facts.unfinished[:8])) + (" …" if len(facts.unfinished) > 8 else "")
        text = f"the initialization began and did not end on rank {stuck}: NCCL hung, or the log was cut"
        yield failure("truncated-log", text)
    elif facts.truncated:
        text = "the log ends within a line or within the initialization: it was cut, or NCCL failed there"
        yield failure("truncated-log", text)
    yield from _ranks(facts, nodes, ranks)
    if nodes > 1:
        sockets = [plugin for plugin in facts.plugins if plugin in SOCKETS]
        yield from _network(facts, network, sockets)
        yield from _within(facts)
        yield from _lost(facts)
        if not sockets:
            yield from _gpu_direct(facts, failure if network is None or network.gpu_direct else remark)
            if nics is not None:
                yield from _nics(facts, nics)
    if len(facts.versions) > 1:
        text = f"the ranks run different versions of NCCL: {', '.join(facts.versions)}"
        yield remark("versions-differ", text)
    if facts.warnings:
        count = len(facts.warnings) + facts.warnings_left_out
        yield remark("warnings", f"NCCL warned in {counted(count, 'different line')}, first: {facts.warnings[0][:300]}")


def detours(logs: Iterable[LogFacts], network: Network) -> Iterator[EvidenceFinding]:
    """Yield how data between nodes traveled otherwise than by this network, from the log of each process.

    Only what holds for any number of communicators of any ranks, as in the actors of a Ray driver, whose ranks all
    count from 0. A process whose group is on one node may name sockets, and sends nothing over them.
    """
    between = [log for log in logs if log.carried or (log.nnodes or 1) > 1]
    if not between:
        return
    facts = merge(between)
    sockets = [plugin for plugin in facts.plugins if plugin in SOCKETS]
    for found in _network(facts, network, sockets):
        if found.kind in ("socket-transport", "other-plugin", "other-provider"):
            yield found
    if not sockets:
        yield from _gpu_direct(facts, failure if network.gpu_direct else remark)


def _ranks(facts: LogFacts, nodes: int, ranks: int | None) -> Iterator[EvidenceFinding]:
    if ranks is not None and facts.nranks is not None and facts.nranks != ranks:
        kind = "too-few-ranks" if facts.nranks < ranks else "another-run"
        yield failure(kind, f"{ranks} ranks were requested, but the log's communicator has {facts.nranks}")
    if facts.nnodes is not None and facts.nnodes != nodes:
        text = f"{nodes} nodes were requested, but NCCL saw {facts.nnodes}"
        hosts = set(facts.hosts.values())
        if facts.nnodes > nodes:
            yield failure("another-run", f"{text}: another run's log?")
        elif facts.nnodes > 1:
            yield failure("too-few-nodes", text)
        else:
            where = f": every rank is on {hosts.pop()}" if len(hosts) == 1 else ""
            yield failure("same-host", text + where)
    if facts.nranks is None and not facts.truncated:
        yield failure(
            "no-communicator", f"the log names no communicator, so it does not show which ranks took part; {FIX}"
        )
    elif facts.nranks is not None and 0 < len(facts.hosts) < facts.nranks:
        yield remark("some-ranks", f"the log covers {len(facts.hosts)} of {facts.nranks} ranks")


def _network(facts: LogFacts, network: Network | None, sockets: list[str]) -> Iterator[EvidenceFinding]:
    others = [each for each in facts.plugins if each not in SOCKETS and network and not network.includes(each)]
    if sockets:
        yield failure(
            "socket-transport",
            f"NCCL used sockets (NET/{sockets[0]}): no RDMA."
            " Is the plugin in LD_LIBRARY_PATH, are the RDMA NICs in the pod?",
        )
    if network is not None and others:
        yield failure("other-plugin", f"this machine's plugin is {network.names[0]}; NCCL used {', '.join(others)}")
    # A truncated log may lack these lines, and has its own finding.
    if not facts.plugins and not facts.truncated:
        yield failure("no-plugin", f"the log does not name the network that NCCL used; {FIX}")
    if network is not None and network.provider and facts.provider not in (None, network.provider):
        devices = f"no {network.provider.upper()} device was used"
        text = f"Libfabric's provider is {facts.provider}, not {network.provider}: {devices}"
        yield failure("other-provider", text)
    if not facts.carried and not facts.truncated:
        between = "" if not facts.channels else ": all that it names stay inside a node"
        gin = (
            "; GPU-initiated networking (GIN, NCCL 2.28 and later) connects no channel: measure with NCCL_GIN_ENABLE=0"
        )
        yield failure("no-channel", f"the log names no connection through a NIC{between}; {FIX}{gin}")


def _lost(facts: LogFacts) -> Iterator[EvidenceFinding]:
    """Find evidence that was lost: what a lost line would have shown is not known."""
    if facts.hidden:
        text = f"{facts.hidden} lines stand for others that are left out (`repeated …x`): set RAY_DEDUP_LOGS=0"
        yield failure("lines-left-out", f"{text} in the job's environment and run again")
    if facts.damaged:
        text = f"{counted(len(facts.damaged), 'line')} torn, first: {facts.damaged[0][:200]}"
        yield failure("damaged-log", f"{text}; give each rank a file (NCCL_DEBUG_FILE=FOLDER/%h.%p)")
    elif facts.torn:
        yield remark("torn-lines", f"{counted(facts.torn, 'line')} of the log torn, but others show their connections")
    if facts.unplaced:
        text = f"the log shows no host for {counted(len(facts.unplaced), 'rank')}, first rank {facts.unplaced[0]}"
        yield failure("hosts-unknown", f"{text}: keep NCCL's `host:pid:tid` at the start of its messages")


def _within(facts: LogFacts) -> Iterator[EvidenceFinding]:
    """Find connections through a NIC between ranks of one host: they cross no fabric."""
    known = [channel for channel in _of_whole_run(facts) if channel.transport == "NET"]
    pairs = [(channel.sender, channel.receiver) for channel in known]
    hosts = facts.hosts
    inside = [(a, b) for a, b in pairs if a != b and a in hosts and hosts[a] == hosts.get(b)]
    if inside:
        sender, receiver = inside[0]
        text = (
            f"{len(inside)} of {len(known)} connections through NICs join ranks of one host,"
            f" first rank {sender} and {receiver} on {hosts[sender]}"
        )
        yield failure("same-host", text) if len(inside) == len(known) else remark("same-host", text)


def _gpu_direct(facts: LogFacts, found: Callable[[str, str], EvidenceFinding]) -> Iterator[EvidenceFinding]:
    """Find copies through the host, which are `found`: a failure, or a remark on machines that have nothing else."""
    plain = [channel for channel in facts.carried if not channel.gdrdma]
    if plain:
        first = plain[0]
        yield found(
            "no-gdrdma",
            f"{len(plain)} of {len(facts.carried)} connections through NICs go without GPUDirect RDMA,"
            f" first rank {first.sender} to {first.receiver} on device {first.device}:"
            " data is copied through the host",
        )
    elif facts.no_gdrdma_hcas:
        indexes = ", ".join(map(str, facts.no_gdrdma_hcas))
        yield found("no-gdrdma", f"NCCL logged that GPUDirect RDMA is disabled for the NICs {indexes}")


def _nics(facts: LogFacts, nics: int) -> Iterator[EvidenceFinding]:
    used = _devices_used(facts)
    if facts.mixed:
        yield failure("nic-missing", f"NCCL found fewer NICs on some ranks: {facts.mixed[0]}")
    if facts.unseen:
        text = (
            f"the log does not name the NICs of rank {', '.join(map(str, facts.unseen[:8]))}, but names those of others"
        )
        yield failure("nics-unknown", f"{text}; {FIX}")
    joined = facts.plugin == JOINED
    counts = facts.nic_counts
    if not counts and not joined:
        counts = {host: len(devices) for host, devices in used.items()}
    for host, count in sorted(counts.items()):
        if count < nics:
            there = set(facts.nics_by_host.get(host, facts.hcas))
            absent = [] if host in facts.nics_found else sorted(set(facts.hcas) - there)
            without = f", without {', '.join(absent)}" if absent else ""
            yield failure("nic-missing", f"{host}: {count} of {nics} NICs{without}")
        elif host in used and not joined and list(facts.hosts.values()).count(host) >= nics > len(used[host]):
            text = f"{host}: only {len(used[host])} of its {nics} NICs carry a connection"
            yield failure("nic-idle", text)
    unnamed = sorted(set(facts.hosts.values()) - set(counts))
    if (unnamed or not counts) and not facts.truncated:
        where = f"{', '.join(unnamed[:8])}: " if counts else ""
        text = f"{where}the log does not name the NICs, of which a node has {nics}; {FIX}"
        yield failure("nics-unknown", text)


def _of_whole_run(facts: LogFacts) -> list[Channel]:
    """Return the connections between ranks of the whole run, not of a smaller communicator."""
    return [channel for channel in facts.carried if channel.size in (None, facts.nranks)]


def _devices_used(facts: LogFacts) -> dict[str, set[int]]:
    """Return the devices with connections, by host; empty if a rank's log is missing: that rank may use the others."""
    used: dict[str, set[int]] = {}
    if facts.nranks is not None and len(facts.hosts) >= facts.nranks:
        for channel in _of_whole_run(facts):
            rank = channel.sender if channel.end == "send" else channel.receiver
            if channel.device is not None and channel.end and rank in facts.hosts:
                used.setdefault(facts.hosts[rank], set()).add(channel.device)
    return used


def node_problems(evidence: Evidence) -> Iterator[EvidenceFinding]:
    """Yield findings on every node: a GPU with errors fails the run, all else is a remark.

    NCCL's log, not a counter or a link, decides whether the path was the right one.
    """
    gpus: dict[str, dict[str, Gpu]] = {}
    for rank in evidence.ranks:
        host = rank.host or f"the node of rank {rank.rank}"
        down = [nic for nic in rank.nics or () if nic.state not in (None, "ACTIVE")]
        if down:
            yield remark("link-down", f"{host}: {', '.join(f'{nic.name} is {nic.state}' for nic in down)}")
        yield from _counted(host, rank.counters or [])
        gpus.setdefault(host, {}).update({gpu.pci: gpu for gpu in rank.gpus or ()})
    for host, found in gpus.items():
        yield from _gpus(host, list(found.values()))
    drivers = sorted({rank.driver for rank in evidence.ranks if rank.driver})
    if len(drivers) > 1:
        yield remark("drivers-differ", f"the nodes run different GPU drivers: {', '.join(drivers)}")


def _counted(host: str, found: list[Counter]) -> Iterator[EvidenceFinding]:
    usual = median(counter.sent for counter in found) if found else 0
    for counter in found:
        errors = ", ".join(f"{name} {count}" for name, count in counter.errors.items() if count)
        if errors:
            yield remark("nic-errors", f"{counter.nic} on {host} counted errors during the run: {errors}")
        if counter.reset:
            text = f"the counters of {counter.nic} on {host} restarted from zero during the run: was the NIC reset?"
            yield remark("nic-reset", text)
        if usual >= BUSY and counter.sent < SILENT * usual:
            sent = f"sent {counter.sent / 1e9:.1f} GB, the node's median NIC {usual / 1e9:.1f}"
            yield remark("nic-silent", f"{counter.nic} on {host} {sent}")


def _gpus(host: str, gpus: list[Gpu]) -> Iterator[EvidenceFinding]:
    if slowed := [gpu.slowed for gpu in gpus if gpu.throttled]:
        yield remark(THROTTLED, f"{host}: {len(slowed)} of {len(gpus)} GPUs were throttled: {', '.join(slowed)}")
    for gpu in gpus:
        if gpu.xids:
            text = f"{host}: GPU {gpu.pci} reported Xid {', '.join(map(str, dict.fromkeys(gpu.xids)))} during the run"
            yield remark("gpu-xid", text) if APPLICATION_XIDS.issuperset(gpu.xids) else failure("gpu-xid", text)
        if gpu.uncorrected:
            text = f"{host}: GPU {gpu.pci} counted {gpu.uncorrected} uncorrected memory errors during the run"
            yield failure("gpu-memory", text)
        _, _, waits, failed = gpu.after.remapped or (0, 0, 0, 0)
        if waits or failed:
            state = "has failed: replace the GPU" if failed else "waits for a reset of the GPU"
            yield remark("gpu-memory", f"{host}: GPU {gpu.pci}: a remapping of memory rows {state}")
