"""`rdma-ray doctor` and `rdma-ray inspect`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

from rich.console import Console

from infra.project import PROJECT
from infra.terminal import printable
from workloads.client.connection import Connection
from workloads.client.stack import name_of
from workloads.doctor.bundle import bundle_of, report
from workloads.doctor.diagnosis import SHOWN, Diagnosis, diagnose
from workloads.doctor.state import StateReader
from workloads.exits import WorkloadError
from workloads.options import Flat, ResultOptions, StackOptions, option
from workloads.results.files import write_file
from workloads.terminal.console import present, say
from workloads.untrusted import file_name


def doctor(*, options: Flat[ResultOptions] = ResultOptions()) -> int:
    """Check a stack that is up, and show each problem with its cure.

    A healthy stack prints nothing.

    Example: rdma-ray doctor --stack gke
    Exit codes: 0 healthy, 2 problems, 1 no problem found and a check could not run.
    """
    with Connection(options) as stack:
        state = StateReader(stack, _progress).collect()
    diagnosis = diagnose(state)
    _progress("")
    present(diagnosis, _show, diagnosis.model_dump(mode="json", by_alias=True), options.json_file)
    _left_out(state.cut)
    return diagnosis.exit_code


def inspect(
    *,
    out: Annotated[
        Path | None, option(metavar="FILE", help="The bundle. [default: rdma-ray-inspect-CLUSTER-TIME.tar.gz]")
    ] = None,
    options: Flat[StackOptions] = StackOptions(),
) -> None:
    """Write one file with the state of a stack, without secrets.

    It has objects, events, queue reasons, Ray's state, logs and settings. Its
    README.txt begins with what `doctor` finds.

    Example: rdma-ray inspect --stack gke --out gke.tar.gz
    Exit codes: 0 written, whatever it shows; 1 error.
    """
    check_new_file(out)
    with Connection(options) as stack:
        collector = StateReader(stack, _progress)
        state = collector.collect()
        diagnosis = diagnose(state)
        _progress("reading logs")
        bundle = bundle_of(stack, collector, state, diagnosis, stack_file(options))
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(state.time))
    name = f"rdma-ray-inspect-{file_name(state.outputs.ray.cluster)}-{moment}"
    path = out or Path(f"{name}.tar.gz")
    write_file(path, bundle.packed(name, state.time), mode=0o600)
    _progress("")
    counts = f"findings: {len(diagnosis.findings)}, files: {len(bundle.files)}"
    print(printable(f"{path}: {counts}; README.txt in it is the summary"), file=sys.stderr)
    _left_out(state.cut | bundle.cut)
    print(path)


def check_new_file(out: Path | None) -> None:
    """Raise WorkloadError, before minutes of work, if this file cannot be the result."""
    if out is not None and not out.absolute().parent.is_dir():
        raise WorkloadError(f"--out {out}: there is no folder {out.absolute().parent}")
    if out is not None and out.exists() and not out.is_file():
        raise WorkloadError(f"--out {out}: it exists and is not a regular file: choose a new file")


def stack_file(options: StackOptions) -> Path | None:
    """Return the stack file of these options; None if there is none, or if the outputs come from a file."""
    file = PROJECT / f"Pulumi.{name_of(options.stack)}.yaml"
    return file if options.outputs is None and file.is_file() else None


def _show(diagnosis: Diagnosis, console: Console) -> None:
    for line in report(diagnosis):
        style = {"E": "bold red", "W": "yellow"}.get(line[:1])
        say(console, line, style)
    for reason in dict.fromkeys(diagnosis.skipped.values()):
        names = ", ".join(name for name, its in diagnosis.skipped.items() if its == reason)
        print(printable(f"not checked: {names}: {reason}"), file=sys.stderr)


def _left_out(cut: dict[str, str]) -> None:
    """Say in one line what is larger than this command reads."""
    if cut:
        parts = [f"{part}: {text}" for part, text in cut.items()]
        more = f"; {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
        print(printable(f"not all was read: {'; '.join(parts[:SHOWN])}{more}".replace("\n", " ")), file=sys.stderr)


def _progress(line: str) -> None:
    """Show what is being read, on a terminal only, in one line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}{' …' if line else ''}", end="", file=sys.stderr, flush=True)
