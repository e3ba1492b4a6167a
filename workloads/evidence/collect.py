"""Collect the evidence of a run: each rank sets up NCCL's log and reads its node; the driver combines the answers.

NCCL writes its log to a temporary folder of the rank, which is removed after the run. User settings of NCCL_DEBUG,
NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE take precedence; the user's log file is read and not removed. A line for each
collective (TUNING) is written only between calls of `log_choices`.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO, cast

from workloads import temporary
from workloads.evidence import raw_log
from workloads.evidence.facts import Evidence, LogFacts, RankEvidence, merge, thinned
from workloads.evidence.log_reader import parse_lines
from workloads.evidence.raw_log import PackedLog, named
from workloads.exits import last_line
from workloads.hardware import nic
from workloads.hardware.gpu import GpuWatch
from workloads.hardware.nic import Counter
from workloads.secrecy import Masker, known_secrets, redacted, sounds_secret

LEVEL, SUBSYSTEMS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
LOGGED = "INIT,NET,GRAPH"
CHOICES = f"{LOGGED},TUNING"
STEERING = ("NCCL_", "GLOO_", "TORCH_NCCL_", "FI_", "OFI_", "UCX_", "LD_LIBRARY_PATH")  # prefixes of variables
LEVELS = ("INFO", "TRACE", "ABORT")  # levels that show how data travels
ROOM = 512 * 2**20  # bytes that must be free where NCCL writes, so that a log does not fill the node's disk
READ = 256 * 2**20  # bytes of a log to read; INFO writes a few MB
BATCH = 2**20  # characters whose secrets are removed at once
PIECE = 2**16  # characters of a line, however long it is
FOLDER = "rdma-ray-nccl-"
IMAGE = "RDMA_RAY_IMAGE"  # variable that a pod's manifest sets to the name of the image
CHANNELS = 2**14  # connections kept in a result, over all ranks: 2 MB of JSON
FEWEST_CHANNELS = 32  # connections kept per rank, at least
WARNINGS = 20  # warnings kept per rank


@dataclass
class Collected:
    """Answer of one rank to the driver: its evidence, and the reasons for what is `missing`.

    `first`: this rank reports on its node. `raw` is its log, if requested.
    """

    evidence: RankEvidence
    first: bool = False
    topology: str | None = None
    image: str | None = None
    missing: list[str] = field(default_factory=list)
    raw: PackedLog | None = None


@dataclass
class Collector:
    """Collects one rank's evidence: call `start` before the process group forms, `finish` at the end or after a hang.

    `first` is whether this rank also reports on its node (NICs, counters, topology). `gpus` watches the rank's GPUs.
    """

    rank: int
    backend: str
    first: bool
    environment: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    infiniband: Path = nic.INFINIBAND
    temporary: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    topology: Callable[[], str | None] = nic.topology
    gpus: GpuWatch | None = None
    host: str = field(default_factory=socket.gethostname)
    folder: Path | None = None
    files: int = 0  # that NCCL began for one log
    before: nic.Reading | None = None
    missing: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Configure NCCL's log, and read the counters. Never raises: missing evidence does not fail a run."""
        if self.backend == "nccl":
            self._prepare_log()
        if self.first:
            self.before = nic.read_counters(self.infiniband)
        if self.gpus is not None:
            self.gpus.start()

    def variables(self) -> dict[str, str]:
        """Return the variables of the communication library, without secrets and without this rank's log file."""
        known = self._known()
        return {
            name: redacted(value, known)
            for name, value in sorted(self.environment.items())
            if name.startswith(STEERING) and not sounds_secret(name) and not (self.folder and name == FILE)
        }

    def log_choices(self, on: bool) -> bool:
        """Begin or end the log of NCCL's choices of algorithms, and return whether NCCL logs as requested.

        The communicator's rank 0 writes a line for each collective, which the timed runs must not do. A user's
        setting stays.
        """
        if self.folder is None or self.environment[SUBSYSTEMS] not in (LOGGED, CHOICES):
            return False
        try:
            reset = nccl_reset()
        except (OSError, AttributeError):
            self.missing.append(
                "NCCL's choices of algorithms: no shared NCCL of 2.24 or later, which could log them before the timed"
                f" runs only; --env {SUBSYSTEMS}={CHOICES} logs them always"
            )
            return False
        self.environment[SUBSYSTEMS] = CHOICES if on else LOGGED
        self._begin_file()
        reset()
        return True

    def finish(self, with_log: bool) -> Collected:
        """Return the evidence, and the text of the log if `with_log`. Call once: it removes the rank's folder."""
        gpus = self.gpus.finish() if self.gpus is not None else None  # first: idle GPUs cool down
        log, raw = self._log(with_log)
        self.missing += self.gpus.missing if self.gpus is not None else []
        evidence = RankEvidence(rank=self.rank, log=log, counters=None, host=self.host, gpus=gpus)
        collected = Collected(evidence, self.first, missing=self.missing, raw=raw)
        if self.first:
            nics = nic.nics(self.infiniband) or None
            update = {"counters": self._counters(), "nics": nics, "driver": nic.driver()}
            collected.evidence = evidence.model_copy(update=update)
            collected.topology, collected.image = self.topology(), self.environment.get(IMAGE) or None
            if self.backend == "nccl" and collected.topology is None:
                self.missing.append("topology: nvidia-smi cannot be run on this node")
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        return collected

    def _known(self) -> Masker:
        return Masker(known_secrets(self.environment))

    def _prepare_log(self) -> None:
        remove_stale(self.temporary)
        self.environment.setdefault(LEVEL, "INFO")
        self.environment.setdefault(SUBSYSTEMS, LOGGED)
        if FILE in self.environment or self.environment[LEVEL].upper() not in LEVELS:
            return
        try:
            free = shutil.disk_usage(self.temporary).free
            if free < ROOM:
                raise OSError(f"only {free // 2**20} MiB are free, {ROOM // 2**20} are needed")
            self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=self.temporary))
        except OSError as error:
            self.missing.append(f"NCCL's log: there is no room for it in {self.temporary}: {error}")
            return
        self._begin_file()

    def _begin_file(self) -> None:
        assert self.folder is not None
        self.environment[FILE] = str(self.folder / f"{self.files}.%h.%p")
        self.files += 1

    def _log(self, with_log: bool) -> tuple[LogFacts | None, PackedLog | None]:
        level = self.environment.get(LEVEL, "")
        if self.backend != "nccl":
            self.missing.append("NCCL's log: the ranks used gloo, which does not write one")
            return None, None
        if level.upper() not in LEVELS:
            self.missing.append(too_quiet(level, " on the ranks"))
            return None, None
        known = self._known()
        facts, raw = [], None
        for file in self._files():
            try:
                facts.append(self._parse(file, known))
                if with_log and raw is None:
                    raw = raw_log.pack_file(file, known)
            except OSError as error:
                self.missing.append(f"NCCL's log: cannot read it: {error.strerror}")
        if not facts and not self.missing:
            self.missing.append(f"NCCL's log: NCCL wrote none to {self.environment.get(FILE)}")
        return facts[0] if len(facts) == 1 else merge(facts) if facts else None, raw

    def _files(self) -> list[Path]:
        if self.folder is not None:
            files = sorted(self.folder.iterdir())
            for file in files[1:]:
                with files[0].open("ab") as log, file.open("rb") as more:
                    shutil.copyfileobj(more, log)
            return files[:1]
        path = Path(expanded(self.environment.get(FILE, ""), self.host, os.getpid()))
        return [path] if path.is_file() else []

    def _parse(self, file: Path, known: Masker) -> LogFacts:
        with file.open(encoding="utf-8", errors="replace") as opened:
            facts, complete = read_log(opened, known)
        if not complete:
            self.missing.append(f"NCCL's log: only its first {READ // 2**20} MiB were read")
        return facts

    def _counters(self) -> list[Counter] | None:
        after = nic.read_counters(self.infiniband)
        if self.before is not None and after is not None:
            found, notes = nic.difference(self.before, after)
            self.missing += [f"NIC counters: {note}" for note in notes]
            return found
        if self.before is not None:
            reason = "every RDMA NIC of this node disappeared during the run"
        elif after is None:
            reason = "a rank sees no RDMA NIC on this node"
        else:
            reason = "a rank saw no RDMA NIC at the start of the run"
        self.missing.append(f"NIC counters: {reason} ({self.infiniband})")
        return None


def nccl_reset() -> Callable[[], None]:
    """Return the function that makes this process's NCCL read its variables again and begin a new file.

    It takes effect at NCCL's next message. It is deprecated and exported (nccl: src/debug.cc, v2.24.3 to v2.30.7).

    Raises:
        OSError: No shared NCCL is loaded.
        AttributeError: It has no such function.
    """
    reset = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD).ncclResetDebugInit
    reset.argtypes, reset.restype = (), None
    return cast(Callable[[], None], reset)


def expanded(pattern: str, host: str, pid: int) -> str:
    """Expand NCCL_DEBUG_FILE as NCCL does: %h the short host name, %p the process, %% a percent sign (src/debug.cc)."""
    values = {"h": host.partition(".")[0], "p": str(pid), "%": "%"}
    return re.sub("%(.?)", lambda match: values.get(match[1], match[0]), pattern)


def remove_stale(folder: Path) -> None:
    """Remove the log folders of the user's processes that no longer exist."""
    for left in temporary.own_folders(folder, FOLDER):
        pid = left.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and Path("/proc/self").exists():
            with contextlib.suppress(OSError), temporary.opened(left) as opened:
                temporary.remove(left, opened)


def too_quiet(level: str, where: str = "") -> str:
    """Return the reason why there is no log at a level that is none of LEVELS."""
    return f"NCCL's log: {LEVEL}={level} is set{where}; INFO shows how data travels: --env {LEVEL}=INFO"


def read_log(file: TextIO, known: Masker) -> tuple[LogFacts, bool]:
    """Return the facts in the first READ bytes of a log, without secrets, and whether that is all of it."""
    facts = parse_lines(_lines(file, known))
    return facts, not file.read(1)


def _lines(file: TextIO, known: Masker) -> Iterator[str]:
    left = READ
    while left > 0 and (text := file.read(min(left, BATCH)) + file.readline(PIECE)):
        left -= len(text)
        yield from iter(partial(io.StringIO(known.text(text)).readline, PIECE), "")


def combined(answers: Mapping[int, Collected | Exception], emit: Callable[..., None] | None = None) -> Evidence:
    """Return the evidence of all ranks, of which there is one at least; emit the logs that they sent."""
    collected = {rank: answer for rank, answer in answers.items() if isinstance(answer, Collected)}
    errors = {rank: answer for rank, answer in answers.items() if isinstance(answer, Exception)}
    failed = {rank: f"all of it: {last_line(error)}" for rank, error in errors.items()}
    if emit is not None:
        failed |= send_logs(collected, emit)
    return assemble(collected, failed)


def send_logs(found: Mapping[int, Collected], emit: Callable[..., None]) -> dict[int, str]:
    """Emit the ranks' logs up to the limit for all of them; return, by rank, why the others were not sent."""
    room, unsent = raw_log.ALL_PACKED, {}
    for rank, collected in found.items():
        if collected.raw is not None and len(collected.raw.data) > room:
            limit = f"{raw_log.ALL_PACKED // 2**20} MiB"
            unsent[rank] = f"NCCL's raw log: those of all ranks have more than {limit}, compressed"
        elif collected.raw is not None:
            room -= len(collected.raw.data)
            emit(raw_log.KIND, **collected.raw.to_event(rank, collected.evidence.host or ""))
    return unsent


def assemble(found: Mapping[int, Collected], failed: Mapping[int, str]) -> Evidence:
    """Combine the evidence of all ranks. Equal reasons for missing evidence become one line with their ranks."""
    reasons: dict[str, list[int]] = {}
    given = [(rank, reason) for rank, one in found.items() for reason in one.missing]
    for rank, reason in [*given, *failed.items()]:
        reasons.setdefault(reason, []).append(rank)
    all_ranks = found.keys() | failed.keys()
    first_ranks = {rank for rank, each in found.items() if each.first}
    # A reason that holds on all ranks, or on each node's first rank, needs no list of ranks.
    missing = [
        reason if set(where) in (all_ranks, first_ranks) else f"{reason} ({named(where)})"
        for reason, where in sorted(reasons.items())
    ]
    images = sorted({collected.image for collected in found.values() if collected.image})
    if len(images) != 1:
        different = f"the nodes run different ones: {', '.join(images)}"
        missing.append(f"container image: {different if images else f'{IMAGE} is not set in the ranks'}")
    ranks = {rank: RankEvidence(rank=rank, log=None, counters=None) for rank in sorted(all_ranks)}
    keep = max(FEWEST_CHANNELS, CHANNELS // max(1, len(found)))
    for rank, collected in found.items():
        log = collected.evidence.log and thinned(collected.evidence.log, keep, WARNINGS)
        ranks[rank] = collected.evidence.model_copy(update={"log": log})
    return Evidence(
        ranks=list(ranks.values()),
        image=images[0] if len(images) == 1 else None,
        topology={each.evidence.host or str(rank): each.topology for rank, each in found.items() if each.topology},
        missing=missing,
    )
