"""Reader of NCCL's log: what NCCL_DEBUG=INFO reports about plugin, NICs, GPUDirect RDMA, channels and algorithms. Pure.

Formats: the INFO and WARN calls of NVIDIA/nccl v2.18.3 to v2.30.7 (src/debug.cc, init.cc, enqueue.cc, graph/topo.cc,
transport/), of aws/aws-ofi-nccl v1.1 to v1.19 (src/nccl_ofi_net.cpp), and of gIB in published logs; read Nov 2026.
NCCL writes `host:pid:tid [device] NCCL INFO message`; Ray, MPI and log collectors add prefixes, and lines of several
ranks may be mixed, joined or torn. A torn message is never read as a shorter one: it is `damaged`, unless
the same line is also whole. Patterns bound numbers, and messages are cut, so any text parses without error in linear
time.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.evidence import log_text
from workloads.evidence.facts import WARNINGS_KEPT, Channel, Choice, LogFacts
from workloads.evidence.log_text import HEAD, MARK, NET_STARTS, PLAIN, REPEATED, STARTS, TORN_HEAD, torn_connection
from workloads.secrecy import redacted

LONGEST_WARNING = 500  # characters of a warning that are kept
LONGEST = 4096  # characters of a message that are read; NCCL's own buffers hold 1,024 and 2,048

_VERSION = re.compile(r"NCCL version (\d{1,4}(?:\.\d{1,5}){1,3})", re.ASCII)
_COMM = re.compile(
    r"comm (?P<comm>\S{1,40}) rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9})"
    r"(?: nNodes (?P<nnodes>\d{1,9}))?",
    re.ASCII,
)
# `(PCI)` since 2.26: GPUDirect RDMA through the PCIe switch of a machine with C2C links.
_VIA = (
    r"via (?P<transport>P2P|SHM|NVLS|NET|COLLNET)/(?:(?<!NET/)\S*|(?P<plugin>[^/\n]{1,64})/(?P<device>\d{1,6})"
    r"(?:\(-?\d{1,9}\))?(?P<gdrdma>/GDRDMA(?:\(\w{1,16}\))?)?(?:/Shared|/\(\w{1,16}\)|\(\w{1,16}\))?)$"
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
JOINED = "Libfabric"  # aws-ofi-nccl makes one device of all NICs next to a GPU, and names it after the first
_RING = re.compile(r"Channel \d{1,4}/\d{1,4} :(?: +\d{1,9})+", re.ASCII)
# NCCL 2.30 and later: src/init.cc, read 2026-11-26.
_MIXED = re.compile(r"Rank \d{1,9} has \d{1,6} local Net devices|Detected mixed local Net device counts", re.ASCII)
_ENVIRONMENT = re.compile(r"NCCL_ALGO set by environment to (\S{1,200})")
_VALUE = re.compile(r"[-\d.]+|N/A")
DAMAGED = 20  # damaged lines that are kept
# From the strongest to the weakest sign that communicators use a network.
_NETWORKS = ("Using network ", "Assigned NET plugin ", "Initialized NET plugin ")


def parse_log(text: str) -> LogFacts:
    """Return the facts in a log of one rank, or of several mixed. Accepts any text."""
    # Without lone surrogates, which JSON cannot hold.
    return parse_lines(io.StringIO(text.encode("utf-8", "replace").decode()))


def parse_lines(lines: Iterable[str]) -> LogFacts:
    """Return the facts in a log's lines, each with its line end, without holding the whole log in memory."""
    reader = LogReader()
    for line in log_text.lines(lines):
        reader.line(line)
    return reader.facts()


Process = tuple[str, str]
"""Host and process ID; empty if the line does not show them."""
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
class LogReader:
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
    nics: dict[tuple[str, Process, str], None] = field(default_factory=dict)  # plugin, process, name
    nics_found: dict[Process, int] = field(default_factory=dict)
    known: dict[str, list[str]] = field(default_factory=dict)  # hosts by process ID
    networked: set[Process] = field(default_factory=set)  # that log their network
    hidden: int = 0  # lines that a de-duplication left out
    torn: dict[str, None] = field(default_factory=dict)
    algorithm_set: str | None = None
    devices: dict[int, str] = field(default_factory=dict)
    gdrdma: dict[str, set[int]] = field(default_factory=lambda: {"Enabled": set(), "Disabled": set()})
    seen: set[tuple[str, int | None]] = field(default_factory=set)  # connections
    warned: set[str] = field(default_factory=set)  # as written in the log
    warnings_left_out: int = 0
    nvls_channels: int | None = None

    def line(self, line: str) -> None:
        """Read one line of the log, or a part of a very long one; a line may hold several messages."""
        if "repeated" in line and (repeated := REPEATED.search(line)):
            self.hidden += 1
            line = line[: repeated.start()] + ("\n" if line.endswith("\n") else "")
        if "NCCL " not in line:
            if ":" in line and line.endswith("\n") and TORN_HEAD.search(line.rstrip("\n")):
                self._damaged(line)
            return
        self.whole = line.endswith("\n")
        mark = line.find(" NCCL INFO ")
        start = line.rfind(" ", 0, line.rfind(" ", 0, max(mark, 0))) + 1
        if mark > 0 and line.find(" NCCL ", mark + 1) < 0 and (plain := PLAIN.match(line, start)):
            self.lines += 1
            self._info(self._writer(plain), line[plain.end() : plain.end() + LONGEST].rstrip())
            return
        messages = list(HEAD.finditer(line))
        if len(messages) < line.count("NCCL INFO") + line.count("NCCL WARN"):
            ends = {message.end() for message in messages}
            messages += [mark for mark in MARK.finditer(line) if mark.end() not in ends]
            messages.sort(key=re.Match.start)
        for number, message in enumerate(messages):
            self.lines += 1
            end = messages[number + 1].start() if number + 1 < len(messages) else len(line)
            text = line[message.end() : min(end, message.end() + LONGEST)].rstrip()
            writer = self._writer(message) if "host" in message.re.groupindex else ("", "", "")
            if message["level"] == "INFO":
                self._info(writer, text)
            else:
                self._warn(text.strip())
        if not messages:
            if version := _VERSION.search(line):
                self.lines += 1
                self.every["versions"][version[1]] = None
            elif TORN_HEAD.search(line.rstrip("\n")):
                self._damaged(line)

    def _writer(self, match: re.Match[str]) -> Writer:
        """Return who wrote a message. A half-written row of nccl-tests may end directly before the host's name."""
        host, pid = match["host"], match["pid"]
        hosts = self.known.setdefault(pid, [])
        if host not in hosts:
            glued = (each for each in hosts if host.endswith(each) and _VALUE.fullmatch(host[: -len(each)]))
            if (known := next(glued, None)) is None:
                hosts.append(host)
            host = known or host
        return host, pid, match["tid"]

    def _damaged(self, text: str) -> None:
        # A log that ends there has its own finding.
        if self.whole and len(self.torn) < DAMAGED:
            self.torn[text.strip()[:LONGEST_WARNING]] = None

    def _info(self, writer: Writer, text: str) -> None:
        """Dispatch on the start of a message: most lines of a long log match no pattern."""
        if text.startswith(("Channel ", "CollNet ")):
            if self.whole:  # GDRDMA may have followed in a line that was cut
                self._channel(writer, text)
        elif " Bytes -> Algo " in text:
            self._algorithm(text)
        elif len(text) < 24 and any(start.startswith(text) for start in STARTS):
            self._damaged(text or "a line without a message")
        elif text.startswith("NET/"):
            self._net(writer[:2], text)
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
        elif text.startswith(("comm 0x", "ncclCommInitRank")) and " rank " not in text:
            self._damaged(text)
        elif "nvls channels" in text and (nvls := _NVLS.search(text)):
            self.nvls_channels = max(self.nvls_channels or 0, int(nvls[1]))
        elif "local Net device" in text and _MIXED.search(text):
            self.every["mixed"][text[:LONGEST_WARNING]] = None
        elif found := _ENVIRONMENT.match(text):
            self.algorithm_set = found[1].strip("'\".,")

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
        if shape not in self.seen:
            match = _CHANNEL.match(text) or _COLLNET.match(text)
            if match is None:
                if not _RING.fullmatch(text) and not any(f"via {local}/" in text for local in ("P2P", "SHM", "NVLS")):
                    self._damaged(text)
                return
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

    def _net(self, process: Process, text: str) -> None:
        self.networked.add(process)
        if found := _INITIALIZING.match(text):
            self.first.setdefault("plugin_version", found["version"])
        elif found := _HCA.match(text):
            self.gdrdma[found["state"]].add(int(found["index"]))
            self.devices.setdefault(int(found["index"]), found["name"])
            # NCCL joins the ports of a dual-port NIC to one device: mlx5_0+mlx5_1.
            self._name_nics(found["plugin"], process, found["name"].split("+"))
        elif found := _PROVIDER.match(text):
            self.first.setdefault("provider", found["provider"])
            if found["fabric"]:
                self.first.setdefault("fabric", found["fabric"])
            # A process may see fewer than the others of its node, and may log it again for each communicator.
            self.nics_found[process] = min(self.nics_found.get(process, 2**31), int(found[3]))
        elif found := _USING.match(text):
            devices = found["devices"]
            self._name_nics(found["plugin"], process, _PORT.findall(devices) or _INTERFACE.findall(devices))
        else:
            rest = text.partition(" ")[2]
            if rest[:8].lower() == "selected" or ": GPU Direct" in rest or any(s.startswith(rest) for s in NET_STARTS):
                self._damaged(text)

    def _name_nics(self, plugin: str, process: Process, names: list[str]) -> None:
        self.nics |= {(_plugin(plugin), process, name): None for name in names or [""]}

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
        named: dict[Process, set[str]] = defaultdict(set)
        for process, name in nics:
            by_host[process[0]][name] = None
            named[process].add(name)
        found = least({process: len(names) for process, names in named.items()})
        found = {host: count for host, count in found.items() if count < len(by_host[host])} | least(self.nics_found)
        every: dict[str, Any] = {name: list(values) for name, values in self.every.items()}
        damaged = self._really_damaged()
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
            nics_found={host: count for host, count in found.items() if host},
            nvls_channels=self.nvls_channels,
            unfinished=sorted({comm.rank for comm in largest if comm.unfinished}),
            warnings_left_out=self.warnings_left_out,
            unplaced=sorted({comm.rank for comm in largest if not comm.host}),
            hidden=self.hidden,
            damaged=damaged,
            torn=len(self.torn) - len(damaged),
            unseen=self._unseen(),
            algorithm_set=self.algorithm_set,
        )

    def _really_damaged(self) -> list[str]:
        """Return the damaged lines but those whose connection another channel shows whole."""
        pairs = {(channel.sender, channel.receiver, channel.end) for channel in self.every["channels"]}
        whole = {(str(sender), str(receiver), end) for sender, receiver, end in pairs}
        whole |= {(sender, receiver, None) for sender, receiver, _ in whole}
        return [redacted(text) for text in self.torn if torn_connection(text) not in whole]

    def _unseen(self) -> list[int]:
        """Return the ranks whose process logs its network but not how many NICs Libfabric found, as others do."""
        silent = self.networked - {*self.nics_found} if self.nics_found else ()
        return sorted({comm.rank for key, comm in self.comms.items() if key[:2] in silent and comm.host})

    def _plugins(self) -> dict[str, None]:
        """Return the networks that communicators use; if unknown, those that were initialized or that name a NIC."""
        using, assigned, initialized = self.networks.values()
        channels = self.every["channels"]
        carried = {each.plugin: None for each in channels if each.transport == "NET" and each.plugin}
        return (using | carried) or assigned or initialized | {plugin: None for plugin, _, _ in self.nics}

    def _nics(self, plugin: str | None = None) -> list[tuple[Process, str]]:
        """Return the plugin's NICs, with the processes that name them. HPC-X's IBext_v8 logs its NICs as NET/IB."""
        named = {name for name, _, _ in self.nics}
        plugins = {plugin} if plugin is None or plugin in (*named, *SOCKETS) else named - {*SOCKETS}
        return [(process, name) for by, process, name in self.nics if by in plugins and name]


def least(counts: Mapping[Process, int]) -> dict[str, int]:
    """Return the smallest number of NICs that a process of each host sees."""
    found: dict[str, int] = {}
    for (host, _), count in counts.items():
        found[host] = min(count, found.get(host, count))
    return found


def _plugin(name: str) -> str:
    """Return the plugin's name: aws-ofi-nccl wrote `AWS Libfabric`, now `Libfabric` (nccl_ofi_interface_nvidia.cpp)."""
    return name.strip().removeprefix("AWS ")


def _named(found: str, names: tuple[str, ...]) -> str:
    return names[int(found)] if found.isdecimal() and int(found) < len(names) else found
