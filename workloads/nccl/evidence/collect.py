"""One rank's side of the evidence: told to NCCL before the process group forms, gathered when the run is over.

NCCL writes its log to a file in a folder of the rank's own, which is removed afterwards. A user's own NCCL_DEBUG,
NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE stay as they are, and a file of theirs is read and left alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from workloads.nccl.evidence import counters, machine, raw
from workloads.nccl.evidence.facts import Counter, LogFacts, Nic, RankEvidence
from workloads.nccl.evidence.log import merge, parse_lines
from workloads.nccl.evidence.redaction import REDACTED, known_secrets, redacted, redacted_environment

LEVEL, SUBSYSTEMS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
WANTED = "INIT,NET,GRAPH,TUNING"
STEERING = ("NCCL_", "GLOO_", "TORCH_NCCL_", "FI_", "OFI_", "UCX_", "LD_LIBRARY_PATH")  # beginnings of variables' names
TELLING = ("INFO", "TRACE", "ABORT")  # levels that show how data travels
ROOM = 512 * 2**20  # bytes that must be free where NCCL writes: a node whose disk is full loses more than a log
READ = 256 * 2**20  # bytes of a log that are read; INFO writes some MB
PIECE = 2**16  # characters read at once, however long a line is
FOLDER = "rdma-ray-nccl-"


@dataclass
class Collected:
    """What a rank hands to the driver. `missing` are reasons; `raw` is its log, where that was asked for.

    `first` says that the rank speaks for its node.
    """

    evidence: RankEvidence
    first: bool = False
    topology: str | None = None
    image: str | None = None
    missing: list[str] = field(default_factory=list)
    raw: raw.Packed | None = None


class Collector:
    """Evidence of one rank: `start` before the process group forms, `finish` at the end or after a hang.

    `first` is true on one rank of each node, which reads what belongs to the whole node. The environment and the
    folders can be other ones than this process's, for tests.
    """

    def __init__(
        self,
        rank: int,
        backend: str,
        first: bool,
        environment: MutableMapping[str, str] = os.environ,
        infiniband: Path = counters.INFINIBAND,
        temporary: Path | None = None,
        topology: Callable[[], str | None] = machine.topology,
    ) -> None:
        self.rank, self.nccl, self.first = rank, backend == "nccl", first
        self.environment, self.infiniband = environment, infiniband
        self.temporary = temporary or Path(tempfile.gettempdir())
        self.topology = topology
        self.host = socket.gethostname()
        self.folder: Path | None = None
        self.before: counters.Reading | None = None
        self.missing: list[str] = []

    def start(self) -> None:
        """Tell NCCL to write a log, and read the counters. Never raises: a run without evidence is still a run."""
        if self.nccl:
            self._prepare_log()
        if self.first:
            self.before = counters.read(self.infiniband)

    def variables(self) -> dict[str, str]:
        """What steers the communication library, without secrets, and without what this rank set for itself alone."""
        found = redacted_environment(self.environment, STEERING, known_secrets(self.environment))
        if self.folder is not None:
            found.pop(FILE, None)
        return found

    def finish(self, with_log: bool) -> Collected:
        """What was found; the log's own text too, `with_log`. May be called once; the rank's folder is gone then."""
        collected = Collected(RankEvidence(rank=self.rank, log=None, counters=None, host=self.host), self.first)
        known = known_secrets(self.environment)
        log = self._log(collected, known, with_log)
        found: list[Counter] | None = None
        nics: list[Nic] | None = None
        driver: str | None = None
        if self.first:
            found = self._counters(collected)
            nics, driver = machine.nics(self.infiniband), machine.driver()
            collected.topology = self.topology()
            collected.image = machine.image(self.environment)
            if self.nccl and collected.topology is None:
                collected.missing.append("topology: nvidia-smi cannot be asked on this node")
        collected.evidence = RankEvidence(
            rank=self.rank, log=log, counters=found, host=self.host, nics=nics or None, driver=driver
        )
        collected.missing = self.missing + collected.missing
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        return collected

    def _prepare_log(self) -> None:
        remove_stale(self.temporary)
        self.environment.setdefault(LEVEL, "INFO")
        self.environment.setdefault(SUBSYSTEMS, WANTED)
        if FILE in self.environment or self.environment[LEVEL].upper() not in TELLING:
            return
        try:
            free = shutil.disk_usage(self.temporary).free
            if free < ROOM:
                raise OSError(f"only {free // 2**20} MiB are free, {ROOM // 2**20} are wanted")
            self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=self.temporary))
        except OSError as error:
            self.missing.append(f"NCCL's log: no room for it in {self.temporary}: {error}")
            return
        self.environment[FILE] = str(self.folder / "%h.%p")

    def _log(self, collected: Collected, known: tuple[str, ...], with_log: bool) -> LogFacts | None:
        if not self.nccl:
            collected.missing.append("NCCL's log: the ranks used gloo, which writes none")
            return None
        level = self.environment.get(LEVEL, "")
        if level.upper() not in TELLING:
            collected.missing.append(
                f"NCCL's log: {LEVEL}={level} is set on the ranks; INFO shows how data travels: --env {LEVEL}=INFO"
            )
            return None
        files = self._files()
        if not files:
            if not self.missing:
                collected.missing.append(f"NCCL's log: NCCL wrote none to {self.environment.get(FILE)}")
            return None
        facts = []
        for file in files:
            try:
                facts.append(self._parse(file, known, collected))
                if with_log and collected.raw is None:
                    collected.raw = pack_file(file, known)
            except OSError as error:
                collected.missing.append(f"NCCL's log: cannot read it: {error.strerror}")
        return facts[0] if len(facts) == 1 else merge(facts) if facts else None

    def _files(self) -> list[Path]:
        if self.folder is not None:
            return sorted(file for file in self.folder.iterdir() if file.is_file())
        pattern = self.environment.get(FILE)
        return [path] if pattern and (path := Path(expanded(pattern, self.host, os.getpid()))).is_file() else []

    def _parse(self, file: Path, known: tuple[str, ...], collected: Collected) -> LogFacts:
        with file.open(encoding="utf-8", errors="replace") as opened:
            facts = parse_lines(_lines(opened.readline, known))
            if opened.read(1):
                collected.missing.append(f"NCCL's log: only its first {READ // 2**20} MiB were read")
        return facts

    def _counters(self, collected: Collected) -> list[Counter] | None:
        after = counters.read(self.infiniband)
        if self.before is None or after is None:
            reason = (
                "this node has no RDMA NIC that a rank can see" if after is None else "none at the start of the run"
            )
            if self.before is not None:
                reason = "every RDMA NIC of this node vanished during the run"
            collected.missing.append(f"NIC counters: {reason} ({self.infiniband})")
            return None
        found, notes = counters.difference(self.before, after)
        collected.missing += [f"NIC counters: {note}" for note in notes]
        return found


def pack_file(file: Path, known: tuple[str, ...]) -> raw.Packed:
    """A log file without secrets, cut to what a rank may send. OSError where it cannot be read."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        text, left_out = raw.read_ends(opened, size)
    return raw.pack(redacted(text, known), size, left_out)


def expanded(pattern: str, host: str, pid: int) -> str:
    """NCCL_DEBUG_FILE as NCCL reads it: %h the host's first name, %p the process, %% a percent sign (src/debug.cc)."""
    values = {"h": host.partition(".")[0], "p": str(pid), "%": "%"}
    pieces, rest = [], pattern
    while "%" in rest:
        before, _, rest = rest.partition("%")
        pieces += [before, values.get(rest[:1], f"%{rest[:1]}")]
        rest = rest[1:]
    return "".join(pieces) + rest


def remove_stale(folder: Path) -> None:
    """Remove the log folders of ranks that were killed before they could: their process is gone."""
    for left in folder.glob(f"{FOLDER}*-*"):
        pid = left.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)


def _lines(readline: Callable[[int], str], known: tuple[str, ...]) -> Iterator[str]:
    left = READ
    while left > 0 and (line := readline(PIECE)):
        left -= len(line)
        for value in known:
            if value in line:
                line = line.replace(value, REDACTED)
        yield line
