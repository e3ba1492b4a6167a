"""Reader of NCCL's log: what NCCL_DEBUG=INFO reports about plugin, NICs, GPUDirect RDMA, channels and algorithms. Pure.

Formats: the INFO and WARN calls of NVIDIA/nccl v2.18.3 to v2.30.7 (src/debug.cc, init.cc, enqueue.cc, graph/topo.cc,
transport/), of aws/aws-ofi-nccl v1.1 to v1.19 (src/nccl_ofi_net.cpp), and of gIB in published logs; read Nov 2026.
NCCL writes `host:pid:tid [device] NCCL INFO message`; Ray, MPI and log collectors add prefixes, and lines of several
ranks may be mixed. Patterns bound numbers, and messages are cut, so any text parses without error in linear time.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from workloads.nccl.evidence.facts import WARNINGS_KEPT, Channel, Choice, LogFacts
from workloads.secrecy import redacted

LONGEST_WARNING = 500  # characters of a warning that are kept
LONGEST = 4096  # characters of a message that are read; NCCL's own buffers hold 1,024 and 2,048

_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}m")
# mpirun --tag-output puts `[1,0]<stdout>:` directly before the line.
_WRITER = re.compile(
    r"(?:\[\d{1,9},\d{1,9}\]<std\w{3}>:)?(?P<host>[^\s:()\[\]]{1,255}):(?P<pid>\d{1,9}):(?P<tid>\d{1,9})", re.ASCII
)
_VERSION = re.compile(r"NCCL version (\d{1,4}(?:\.\d{1,5}){1,3})", re.ASCII)
_COMM = re.compile(
    r"comm (?P<comm>\S{1,40}) rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9})"
    r"(?: nNodes (?P<nnodes>\d{1,9}))?",
    re.ASCII,
)
# `(PCI)` since 2.26: GPUDirect RDMA through the PCIe switch of a machine with C2C links.
_VIA = (
    r"via (?P<transport>P2P|SHM|NVLS|NET|COLLNET)/(?:(?<!NET/)|(?P<plugin>[^/\n]{1,64})/(?P<device>\d{1,6})"
    r"(?:\(-?\d{1,9}\))?(?P<gdrdma>/GDRDMA)?)"
)
_CHANNEL = re.compile(
    r"Channel \d{1,4}(?:/\d{1,4})? : (?P<sender>\d{1,9})\[[0-9a-f]{1,16}\] -> (?P<receiver>\d{1,9})\[[0-9a-f]{1,16}\]"
    rf"(?: \[(?P<end>send|receive)\])? {_VIA}",
    re.ASCII,
)
_COLLNET = re.compile(
    rf"CollNet \d{{1,4}}/\d{{1,4}} : (?P<sender>(?P<receiver>\d{{1,9}})) \[(?P<end>send|receive)\] {_VIA}", re.ASCII
)
_HCA = re.compile(
    r"NET/(?P<plugin>[^:]{1,64}?) : GPU Direct RDMA (?P<state>Enabled|Disabled) for HCA (?P<index>\d{1,6})"
    r" '(?P<name>[^']{0,200})'",
    re.ASCII,
)
_USING = re.compile(r"NET/(?P<plugin>[^:]{1,64}?) : Using ?(?P<devices>.*)", re.ASCII)
_PORT = re.compile(r"\[\d{1,6}\] ?([\w.+-]{1,200}):\d{1,6}(?::-?\d{0,9})*/\w", re.ASCII)
_INTERFACE = re.compile(r"\[\d{1,6}\]([^\s:\[\]]{1,64}):\S{1,128}<\d{1,6}>", re.ASCII)
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is (?P<provider>[^\s,]{1,64})(?:, fabric is (?P<fabric>[^\s,]{1,64}))?"
    r" \(found (\d{1,6}) nics\)",
    re.ASCII,
)
_INITIALIZING = re.compile(
    r"NET/\w{1,32} :? ?(?:Initializing|Using) (?:gIB|aws-ofi-nccl)\s+v?(?P<version>\d[\w.+-]{0,40})", re.ASCII
)
_NVLS = re.compile(r"\d{1,6} coll channels,.{0,80}? (\d{1,6}) nvls channels", re.ASCII)
# Before 2.25 the names are numbers, in the order of NCCL_ALGO_* and NCCL_PROTO_* (src/include/nccl_tuner.h).
_ALGORITHM = re.compile(
    r"(?:(?P<op>\w{1,40}): )?(?P<size>\d{1,18}) Bytes -> Algo (?P<algorithm>\w{1,32}) proto (?P<protocol>\w{1,32})",
    re.ASCII,
)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
# Networks without RDMA: NCCL's own, and Google's plugin for machines without RDMA.
SOCKETS = ("Socket", "FastSocket")
# From the strongest to the weakest sign that communicators use a network.
_NETWORKS = ("Using network ", "Assigned NET plugin ", "Initialized NET plugin ")


def parse_log(text: str) -> LogFacts:
    """Return the facts in a log of one rank, or of several mixed. Accepts any text."""
    # Without lone surrogates, which JSON cannot hold.
    return parse_lines(io.StringIO(text.encode("utf-8", "replace").decode()))


def parse_lines(lines: Iterable[str]) -> LogFacts:
    """Return the facts in a log's lines, each with its line end, without holding the whole log in memory."""
    reader = Reader()
    for line in lines:
        reader.line(line)
    return reader.facts()


Writer = tuple[str, str, str]
"""Origin of a line: host, process, thread; empty if the line does not show it."""


@dataclass
class Communicator:
    rank: int
    nranks: int
    host: str
    nnodes: int | None = None
    started: bool = False
    complete: bool = False

    @property
    def unfinished(self) -> bool:
        return self.started and not self.complete


@dataclass
class Reader:
    """Collects facts from a log's lines. A dict with None as values is an ordered set.

    The keys of `first` and `every` are names of facts: the first value counts, or each different one.
    """

    lines: int = 0
    whole: bool = True  # the last line has its end, or is complete by its content
    began: bool = False  # a line of an initialization was read
    first: dict[str, Any] = field(default_factory=dict)
    every: dict[str, dict[Any, None]] = field(default_factory=lambda: defaultdict(dict))
    networks: dict[str, dict[str, None]] = field(default_factory=lambda: {start: {} for start in _NETWORKS})
    comms: dict[tuple[str, str, str], Communicator] = field(default_factory=dict)
    size_of: dict[Writer, int] = field(default_factory=dict)
    nics: dict[tuple[str, str, str], None] = field(default_factory=dict)  # plugin, host, name
    nics_found: dict[str, int] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    gdrdma: dict[str, set[int]] = field(default_factory=lambda: {"Enabled": set(), "Disabled": set()})
    seen: set[tuple[str, int | None]] = field(default_factory=set)  # connections
    warned: set[str] = field(default_factory=set)  # as written in the log
    warnings_left_out: int = 0
    nvls_channels: int | None = None

    def line(self, line: str) -> None:
        """Read one line of the log, or a part of a very long one."""
        at = line.find("NCCL ")
        if at < 0:
            return
        self.whole = line.endswith("\n")
        if version := _VERSION.match(line, at):
            self.lines += 1
            self.every["versions"][version[1]] = None
        elif (mark := line.find("NCCL INFO ", at)) >= 0:
            self.lines += 1
            writer = _writer(line[max(0, mark - 400) : mark])
            self._info(writer, line[mark + 10 : mark + 10 + LONGEST].rstrip())
        elif (mark := line.find("NCCL WARN ", at)) >= 0:
            self.lines += 1
            self._warn(line[mark + 10 : mark + 10 + LONGEST].strip())

    def _info(self, writer: Writer, text: str) -> None:
        """Dispatch on the start of a message: most lines of a long log match no pattern."""
        if text.startswith(("Channel ", "CollNet ")):
            if self.whole:  # GDRDMA may have followed in a line that was cut
                self._channel(writer, text)
        elif " Bytes -> Algo " in text:
            self._algorithm(text)
        elif text.startswith("NET/"):
            self._net(writer[0], text)
        elif text.startswith(_NETWORKS):
            start = next(start for start in _NETWORKS if text.startswith(start))
            name = text[len(start) :].removesuffix(" to comm")[:64].strip()
            self.networks[start][_plugin(name)] = None
            self.began |= start == _NETWORKS[0]  # NCCL_DEBUG_SUBSYS=NET alone logs the others too
        elif found := _VERSION.match(text):
            self.every["versions"][found[1]] = None
        elif text.startswith("Bootstrap"):
            self.began = True
        elif "comm " in text and (comm := _COMM.search(text)):
            self._communicator(writer, comm, text)
        elif "nvls channels" in text and (nvls := _NVLS.search(text)):
            self.nvls_channels = max(self.nvls_channels or 0, int(nvls[1]))

    def _warn(self, text: str) -> None:
        if text not in self.warned and len(self.warned) == WARNINGS_KEPT:
            self.warnings_left_out += 1
        elif text not in self.warned:
            self.warned.add(text)
            self.every["warnings"][redacted(text)[:LONGEST_WARNING]] = None

    def _communicator(self, writer: Writer, match: re.Match[str], text: str) -> None:
        nranks = int(match["nranks"])
        new = Communicator(int(match["rank"]), nranks, host=writer[0])
        comm = self.comms.setdefault((*writer[:2], match["comm"]), new)
        comm.nnodes = comm.nnodes or int(match["nnodes"] or 0) or None
        comm.started |= "Init START" in text
        comm.complete |= "Init COMPLETE" in text
        self.whole |= text.endswith("Init COMPLETE")
        # Channels name ranks but not their communicator: it is the last that this thread set up, or (since 2.22, where
        # other threads connect on first use) the last of the process.
        self.size_of[writer] = self.size_of[*writer[:2], ""] = nranks

    def _channel(self, writer: Writer, text: str) -> None:
        size = self.size_of.get(writer) or self.size_of.get((*writer[:2], ""))
        shape = (text.partition(" : ")[2], size)
        # The same connection on another channel is no new one.
        if shape not in self.seen and (match := _CHANNEL.match(text) or _COLLNET.match(text)):
            self.seen.add(shape)
            channel = Channel(
                sender=int(match["sender"]),
                receiver=int(match["receiver"]),
                transport=match["transport"],
                plugin=_plugin(match["plugin"]) if match["plugin"] else None,
                device=int(match["device"]) if match["device"] else None,
                gdrdma=bool(match["gdrdma"]),
                end=match["end"],
                size=size,
            )
            self.every["channels"][channel] = None

    def _net(self, host: str, text: str) -> None:
        if found := _INITIALIZING.match(text):
            self.first.setdefault("plugin_version", found["version"])
        elif found := _HCA.match(text):
            self.gdrdma[found["state"]].add(int(found["index"]))
            self.devices.setdefault(int(found["index"]), found["name"])
            # NCCL joins the ports of a dual-port NIC to one device: mlx5_0+mlx5_1.
            self._name_nics(found["plugin"], host, found["name"].split("+"))
        elif found := _PROVIDER.match(text):
            self.first.setdefault("provider", found["provider"])
            if found["fabric"]:
                self.first.setdefault("fabric", found["fabric"])
            self.nics_found[host] = int(found[3])
        elif found := _USING.match(text):
            devices = found["devices"]
            self._name_nics(found["plugin"], host, _PORT.findall(devices) or _INTERFACE.findall(devices))

    def _name_nics(self, plugin: str, host: str, names: list[str]) -> None:
        self.nics |= {(_plugin(plugin), host, name): None for name in names or [""]}

    def _algorithm(self, text: str) -> None:
        if match := _ALGORITHM.search(text):
            choice = Choice(
                op=match["op"] or "",
                size=int(match["size"]),
                algorithm=_named(match["algorithm"], _ALGORITHMS),
                protocol=_named(match["protocol"], _PROTOCOLS),
            )
            self.every["choices"][choice] = None
            self.every["algorithms"][f"{choice.algorithm}/{choice.protocol}"] = None

    def facts(self) -> LogFacts:
        """Return the facts of the lines read so far."""
        comms = list(self.comms.values())
        nranks = max((comm.nranks for comm in comms), default=None)
        largest = [comm for comm in comms if comm.nranks == nranks]
        hosts = {comm.rank: comm.host for comm in reversed(largest) if comm.host}
        nnodes = max((comm.nnodes for comm in largest if comm.nnodes), default=None)
        if nnodes is None and len(hosts) == nranks:
            nnodes = len(set(hosts.values()))
        plugins = list(self._plugins())
        nics = self._nics(*plugins[:1])
        by_host: dict[str, dict[str, None]] = defaultdict(dict)
        for host, name in nics:
            by_host[host][name] = None
        every: dict[str, Any] = {name: list(values) for name, values in self.every.items()}
        cut = any(comm.unfinished for comm in comms) or (self.began and not comms)
        return LogFacts(
            **self.first,
            **every,
            nccl_version=next(iter(self.every["versions"]), None),
            plugin=next(iter(plugins), None),
            plugins=plugins,
            nranks=nranks,
            nnodes=nnodes,
            hosts=dict(sorted(hosts.items())),
            hcas=list(dict.fromkeys(name for names in by_host.values() for name in names)),
            devices=self.devices,
            gdrdma_hcas=sorted(self.gdrdma["Enabled"]),
            no_gdrdma_hcas=sorted(self.gdrdma["Disabled"]),
            truncated=self.lines > 0 and (cut or not self.whole),
            lines=self.lines,
            nics_by_host={host: list(names) for host, names in by_host.items() if host},
            nics_found={host: count for host, count in self.nics_found.items() if host},
            nvls_channels=self.nvls_channels,
            unfinished=sorted({comm.rank for comm in largest if comm.unfinished}),
            warnings_left_out=self.warnings_left_out,
        )

    def _plugins(self) -> dict[str, None]:
        """Return the networks that communicators use; else (weaker) those that were initialized or that name a NIC."""
        using, assigned, initialized = self.networks.values()
        channels = self.every["channels"]
        carried = {each.plugin: None for each in channels if each.transport == "NET" and each.plugin}
        return (using | carried) or assigned or initialized | {plugin: None for plugin, _, _ in self.nics}

    def _nics(self, plugin: str | None = None) -> list[tuple[str, str]]:
        """Return the plugin's NICs, with hosts. HPC-X's plugin is named IBext_v8 and logs its NICs as NET/IB."""
        named = {name for name, _, _ in self.nics}
        plugins = {plugin} if plugin is None or plugin in (*named, *SOCKETS) else named - {*SOCKETS}
        return [(host, name) for by, host, name in self.nics if by in plugins and name]


def _writer(head: str) -> Writer:
    for word in reversed(_ANSI.sub(" ", head).split()):
        if match := _WRITER.fullmatch(word):
            return match["host"], match["pid"], match["tid"]
    return "", "", ""


def _plugin(name: str) -> str:
    """Return the plugin's name: aws-ofi-nccl wrote `AWS Libfabric`, now `Libfabric` (nccl_ofi_interface_nvidia.cpp)."""
    return name.strip().removeprefix("AWS ")


def _named(found: str, names: tuple[str, ...]) -> str:
    return names[int(found)] if found.isdecimal() and int(found) < len(names) else found
