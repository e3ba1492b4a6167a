"""Typed evidence of a run: NCCL's log of each rank, NIC counters, links, topology. Imports neither ray nor torch."""

from __future__ import annotations

from typing import Any, Literal

from workloads.hardware.gpu import Gpu
from workloads.hardware.nic import Counter, Nic
from workloads.results.documents import ResultPart

Transport = Literal["NET", "P2P", "SHM", "NVLS", "COLLNET"]
WARNINGS_KEPT = 200  # different warnings per log: a broken NIC repeats its warning with another address each time
SUMS = ("hidden", "lines", "torn", "warnings_left_out", "channels_left_out")  # numbers that add up over the ranks


class Channel(ResultPart):
    """One connection from NCCL's log: `Channel 00/0 : 0[0] -> 8[0] [send] via NET/gIB/0/GDRDMA`.

    `sender` and `receiver` are ranks of the communicator. `plugin` (gIB, Libfabric, Socket, IB …) and `device` (its NIC
    index) are set for NET only. `gdrdma`: the NIC reads and writes GPU memory directly. `end` is the side that wrote
    the line and owns `device`. `size` is the number of ranks of the communicator, if the log shows which one it is.
    Equal connections on several channels are one entry. A COLLNET entry has its own rank on both sides.
    """

    sender: int
    receiver: int
    transport: Transport
    plugin: str | None
    device: int | None
    gdrdma: bool
    end: Literal["send", "receive"] | None = None
    size: int | None = None


class Choice(ResultPart):
    """Algorithm (`RING`) and protocol (`SIMPLE`) that NCCL chose for an operation (`AllReduce`) of `size` bytes."""

    op: str
    size: int
    algorithm: str
    protocol: str


class LogFacts(ResultPart):
    """Facts in the NCCL_DEBUG=INFO output of one rank, or of several ranks after `merge`.

    Attributes:
        plugin: Network that NCCL chose (gIB, Libfabric, Socket, IB); None if the log does not name it.
        hosts: Host name by rank, as far as the log shows it.
        hcas: Names of the NICs in use, in the log's order.
        devices: Name by the index that a connection shows, `mlx5_0+mlx5_1` for joined ports; of the first rank's node.
        gdrdma_hcas: Indexes of the NICs with `GPU Direct RDMA Enabled`; `no_gdrdma_hcas` those with `Disabled`.
        algorithms: `Algo RING proto SIMPLE` choices as `RING/SIMPLE`; `choices` has them by operation and size.
        warnings: NCCL WARN lines; `warnings_left_out` counts further ones.
        truncated: The log ends within a line or within the initialization.
        lines: Number of NCCL's lines.
        plugins: All plugins seen; `versions` all versions of NCCL.
        nics_found: NICs that Libfabric found, by host. It joins several into one device, so `hcas` may be fewer.
        provider: Libfabric's provider (`efa`); `fabric` its fabric (`efa-direct`).
        nvls_channels: Channels of NVLink SHARP.
        unfinished: Ranks whose initialization began and did not complete.
        channels_left_out: Connections that `thinned` removed.
        unplaced: Ranks whose lines show no host.
        unseen: Ranks whose process logs its network but not how many NICs it found, as others do.
        hidden: Lines after which a de-duplication (Ray's, syslog's) left out others.
        damaged: Lines that are torn, and that no other line repeats; `torn` counts those of which another one does.
        mixed: NCCL's notices of nodes or ranks with fewer NICs (2.30 and later).
        algorithm_set: NCCL_ALGO, if NCCL logged it.
    """

    nccl_version: str | None = None
    plugin: str | None = None
    plugin_version: str | None = None
    nranks: int | None = None
    nnodes: int | None = None
    hosts: dict[int, str] = {}
    hcas: list[str] = []
    devices: dict[int, str] = {}
    gdrdma_hcas: list[int] = []
    no_gdrdma_hcas: list[int] = []
    channels: list[Channel] = []
    algorithms: list[str] = []
    warnings: list[str] = []
    truncated: bool = False
    lines: int = 0
    plugins: list[str] = []
    versions: list[str] = []
    nics_by_host: dict[str, list[str]] = {}
    nics_found: dict[str, int] = {}
    provider: str | None = None
    fabric: str | None = None
    choices: list[Choice] = []
    nvls_channels: int | None = None
    unfinished: list[int] = []
    warnings_left_out: int = 0
    channels_left_out: int = 0
    unplaced: list[int] = []
    unseen: list[int] = []
    hidden: int = 0
    damaged: list[str] = []
    torn: int = 0
    mixed: list[str] = []
    algorithm_set: str | None = None

    @property
    def carried(self) -> list[Channel]:
        """Connections through a NIC."""
        return [channel for channel in self.channels if channel.transport in ("NET", "COLLNET")]

    @property
    def nic_counts(self) -> dict[str, int]:
        """Number of NICs by host, where the log shows it."""
        return {host: len(names) for host, names in self.nics_by_host.items()} | self.nics_found


class RankEvidence(ResultPart):
    """Evidence of one rank, and the health of its own `gpus`. For a Ray driver, each process is a rank, with its `pid`.

    One rank per node also carries the node's `counters`, `nics` and GPU `driver` version.
    """

    rank: int
    log: LogFacts | None
    counters: list[Counter] | None
    host: str | None = None
    nics: list[Nic] | None = None
    driver: str | None = None
    gpus: list[Gpu] | None = None
    pid: int | None = None


class Evidence(ResultPart):
    """Evidence of all ranks.

    `image` is the container image's digest if the cluster reports it, `topology` is by node. `missing` lists evidence
    that could not be collected, on which ranks, and why.
    """

    ranks: list[RankEvidence]
    image: str | None
    topology: dict[str, str]
    missing: list[str]

    @property
    def log(self) -> LogFacts | None:
        """Return the ranks' logs merged into one; None without any."""
        logs = [rank.log for rank in self.ranks if rank.log is not None]
        return merge(logs) if logs else None


def thinned(facts: LogFacts, channels: int, warnings: int) -> LogFacts:
    """Return the facts with at most this many connections and warnings: in large runs each rank has thousands.

    Connections through NICs without GPUDirect RDMA are kept first, then one of each device and direction.
    """
    priority: dict[Channel, int] = {}
    seen: set[object] = set()
    for channel in facts.channels:
        kind = (channel.transport, channel.device, channel.end)
        plain = channel.transport in ("NET", "COLLNET") and not channel.gdrdma
        priority[channel] = 0 if plain else 2 if kind in seen else 1
        seen.add(kind)
    chosen = set(sorted(priority, key=priority.__getitem__)[:channels])
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
    """Merge the facts of several ranks. Values that cannot be combined (plugin, version) are the first rank's."""
    logged = [log for log in logs if log.lines]
    given = [*logged, LogFacts()]
    values = {name: _merged([getattr(log, name) for log in given]) for name in LogFacts.model_fields}
    # Ranks of the largest communicator only: those of a smaller one count from 0 again.
    hosts: dict[int, str] = {}
    for log in logged:
        if log.nranks == values["nranks"]:
            hosts = log.hosts | hosts
    # NCCL reports the number of nodes since 2.20; the hosts of all ranks give it for earlier versions.
    counted = len(set(hosts.values())) if len(hosts) == values["nranks"] else 0
    values |= {
        "hosts": dict(sorted(hosts.items())),
        "nnodes": max(values["nnodes"] or 0, counted) or None,
        "choices": sorted(values["choices"], key=lambda one: (one.op, one.size, one.algorithm, one.protocol)),
        # An empty log counts as lost.
        "truncated": any(log.truncated for log in logs) or len(logged) < len(logs),
    }
    values |= {
        name: sorted(values[name]) for name in ("gdrdma_hcas", "no_gdrdma_hcas", "unfinished", "unplaced", "unseen")
    }
    values["nics_found"] = _fewest(logged, values["nics_by_host"])
    values |= {name: sum(getattr(log, name) for log in logged) for name in SUMS}
    return thinned(LogFacts(**values), len(values["channels"]), WARNINGS_KEPT)


def _fewest(logs: list[LogFacts], named: dict[str, list[str]]) -> dict[str, int]:
    """Return by host the smallest number of NICs that a log shows, unless the NICs' names show the same."""
    fewest: dict[str, int] = {}
    for log in logs:
        for host, count in log.nic_counts.items():
            fewest[host] = min(count, fewest.get(host, count))
    hosts = {host for log in logs for host in log.nics_found}
    return {host: n for host, n in fewest.items() if host in hosts or n < len(named.get(host, ()))}


def _merged(values: list[Any]) -> Any:
    """Return the union of lists and of dicts, the largest number, the first text."""
    values = [value for value in values if value is not None]
    match values:
        case [list(), *_]:
            return list(dict.fromkeys(each for value in values for each in value))
        case [dict(), *_]:
            keys = dict.fromkeys(key for value in values for key in value)
            return {key: _merged([value[key] for value in values if key in value]) for key in keys}
        case [int(), *_]:
            return max(values)
        case _:
            return next(iter(values), None)


def counted(number: int, word: str) -> str:
    """Return `1 rank`, `2 ranks`, `2 processes`."""
    return f"{number} {word}{'' if number == 1 else 'es' if word.endswith('s') else 's'}"
