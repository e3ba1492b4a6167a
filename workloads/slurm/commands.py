"""`rdma-ray slurm`: a Ray cluster on an allocation of Slurm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App

from infra.terminal import printable
from workloads import temporary
from workloads.exits import Exit, WorkloadError
from workloads.gang import guard
from workloads.options import Flat, option
from workloads.slurm import allocation, squeue
from workloads.slurm.options import SlurmOptions
from workloads.slurm.script import completed, script, step_script

POLL_S, LOG_POLL_S = 2.0, 0.5  # slurmctld serves all users; the log is a file
TURN = 2**24  # bytes of the log between two looks at the job
LAST_LINES_S = 3.0  # until a shared file system shows what the job wrote at its end

slurm = App(name="slurm", help="Run a Ray cluster on an allocation of Slurm.")

Detach = Annotated[bool, option(help="Print the job's ID, and do not follow it.")]
DryRun = Annotated[bool, option(help="Print the sbatch file, and submit nothing. In an allocation: its script.")]


@slurm.command
def run(
    *command: Annotated[str, option(help="Program and arguments, after `--`.", show=True)],
    options: Flat[SlurmOptions] = SlurmOptions(),
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Start a Ray cluster on an allocation, and run a command on it.

    The command runs on the first node when all nodes have joined, and the cluster
    ends with it. Without a command, the cluster is up until --time or `scancel`,
    and the path of its outputs is printed, for --outputs and RDMA_RAY_OUTPUTS.
    Ctrl-C leaves the job running.

    In an allocation (`salloc`, a batch script), the cluster is a step of it: no job
    is submitted. Ctrl-C ends the command and its cluster, and the allocation stays.

    Example: rdma-ray slurm run --nodes 2 --time 30 -- rdma-ray bench nccl
    Exit codes: that of the command; 1 also if it did not start or the job failed,
    130 if it was canceled.
    """
    check(command, options)
    if (existing := allocation.current(options, detach)) is not None:
        return _run_here(command, options, existing, dry_run)
    text = script(completed(options), command)
    if dry_run:
        print(text, end="")
        return Exit.OK
    storage = _storage(options)
    job_id = squeue.submit(text)
    say(f"job {job_id}: {options.nodes} nodes; `rdma-ray slurm attach {job_id}` follows it, `scancel {job_id}` ends it")
    if detach:
        print(job_id)
        return Exit.OK
    return follow(job_id, None if command else storage / f"job-{job_id}" / "outputs.json")


def _run_here(command: tuple[str, ...], options: SlurmOptions, existing: allocation.Allocation, dry_run: bool) -> int:
    """Run the cluster in the allocation of this process, from its first line to its end."""
    judged = completed(options.model_copy(update={"nodes": len(existing.hosts)}))
    text = step_script(judged, command, existing.hosts, shared=existing.shared, gpus=existing.gpus)
    if dry_run:
        print(text, end="")
        return Exit.OK
    storage = _storage(options)
    say(f"job {existing.id} is this allocation: the cluster is a step on {len(existing.hosts)} of its nodes")
    for outputs in [] if existing.shared else allocation.others(existing, storage):
        say(f"it starts when the cluster of {outputs} has ended")
    return allocation.run(text)


def _storage(options: SlurmOptions) -> Path:
    """Create --storage. WorkloadError if it cannot be created."""
    storage = Path(options.storage).absolute()
    try:
        storage.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkloadError(
            f"--storage {options.storage}: {error.strerror}: choose a folder that all nodes share"
        ) from None
    return storage


@slurm.command
def attach(job_id: Annotated[str, option(help="ID of the job: see `squeue --me`.", metavar="ID")], /) -> int:
    """Follow a job of `slurm run` from its first line to its end.

    Ctrl-C leaves the job running.

    Example: rdma-ray slurm attach 4711
    Exit codes: that of the command; 1 also if the job failed, 130 if it was
    canceled.
    """
    return follow(squeue.check_id(job_id), None)


def check(command: tuple[str, ...], options: SlurmOptions) -> None:
    """Raise WorkloadError for values that a script cannot contain."""
    if command and not command[0]:
        raise WorkloadError("COMMAND is empty: write a program after `--`, or omit the `--`")
    for word in command:
        if not word.isprintable() and set(word) - {"\n", "\t"} and "\0" in word:
            raise WorkloadError(f"COMMAND: {word!a} contains a NUL byte, which no program's argument can")
    image = options.image or ""
    if image.endswith((".tar", ".tar.gz", ".tgz")) and not Path(image).is_file():
        raise WorkloadError(f"--image {image}: no such file: write it with `docker save NAME:TAG | gzip`")


def follow(job_id: str, outputs: Path | None) -> int:
    """Show a job's state until it runs, then its output until it ends, and return the exit code.

    Args:
        outputs: File to wait for: returns, and leaves the job running, as soon as it exists.
    """
    try:
        shown, lines, asked = "", None, 0.0
        while True:
            if time.monotonic() - asked >= POLL_S:
                job, asked = squeue.job(job_id), time.monotonic()
                if job.words != shown and not job.over:
                    say(f"job {job_id} {(shown := job.words)}")
                if job.log is None:
                    raise WorkloadError(f"job {job_id} is an allocation of salloc: its output is in its terminal")
                lines = lines or GrowingLog(job.log, job.uid)
            assert lines is not None
            _show(lines)
            if job.over:
                return _ended(job, lines)
            if outputs is not None and is_own(outputs):
                say(f"the cluster is up: export RDMA_RAY_OUTPUTS={outputs}\n`scancel {job_id}` ends it")
                print(outputs)
                return Exit.OK
            time.sleep(LOG_POLL_S)
    except KeyboardInterrupt:
        say(f"job {job_id} is still there: rdma-ray slurm attach {job_id} follows it, scancel {job_id} ends it")
        raise


def _ended(job: squeue.SlurmJob, lines: GrowingLog) -> int:
    deadline = time.monotonic() + LAST_LINES_S
    while _show(lines) or not (lines.read or lines.problem or time.monotonic() > deadline):
        time.sleep(0 if lines.read else LOG_POLL_S)
    for line in lines.rest():
        print(printable(line), flush=True)
    say(f"job {job.id} {job.words}")
    if lines.problem:
        say(f"its log {job.log} was not read: {lines.problem}")
    elif not lines.read and job.state == "FAILED":
        say(f"it wrote no output to {job.log}: can the nodes write there?")
    return job.exit_code


def _show(lines: GrowingLog) -> bool:
    """Print new lines; return whether the log has grown."""
    before = lines.read
    for line in lines.new():
        print(printable(line), flush=True)
    return lines.read > before


class GrowingLog:
    """Lines of a job's growing log, which need not exist yet.

    Args:
        uid: Owner of the job. Links, FIFOs and files of other users at this path are not read.
    """

    def __init__(self, path: Path, uid: int) -> None:
        self.path, self.uid = path, uid
        self.read = 0
        self.problem = ""
        self._lines = guard.LineSplitter()

    def new(self) -> Iterator[str]:
        """Yield the lines that have been completed since the last call, of at most TURN bytes."""
        try:
            with temporary.opened_file(self.path, self.uid) as log:
                end = self.read + TURN
                while self.read < end and (data := os.pread(log, guard.PIECE, self.read)):
                    self.read += len(data)
                    yield from self._lines.feed(data, time.monotonic())
        except FileNotFoundError:
            pass  # not yet
        except OSError as error:
            self.problem = error.strerror or str(error)

    def rest(self) -> Iterator[str]:
        """Yield the last line, if it has no end."""
        yield from self._lines.end()


def is_own(outputs: Path) -> bool:
    """Return whether a file exists that this user's job wrote, in a folder that no other user can change."""
    uid = os.geteuid()
    with (
        suppress(OSError),
        temporary.opened(outputs.parent) as folder,
        temporary.opened_file(outputs.name, uid, folder),
    ):
        return True
    return False


def say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
