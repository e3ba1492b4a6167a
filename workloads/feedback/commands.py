"""`rdma-ray evidence`: what a run on a stranger's account shows, in one file to send back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from infra.project import PROJECT, is_clone
from infra.settings import from_stack_file
from infra.settings.problems import SettingsError
from infra.settings.stack_file import read_config
from infra.terminal import printable
from workloads.client.connection import Connection
from workloads.client.stack import name_of
from workloads.doctor.commands import check_new_file
from workloads.doctor.state import UNREADABLE, State, StateReader
from workloads.exits import WorkloadError
from workloads.feedback import document as form
from workloads.feedback.collect import evidence_of, leaks, versions_here
from workloads.feedback.engine_runs import recorded
from workloads.nccl.result import BenchResult
from workloads.options import Flat, StackOptions, option
from workloads.results.files import write_file


def evidence(
    *,
    out: Annotated[
        Path | None, option(metavar="FILE", help="The file. [default: rdma-ray-evidence-TARGET-DATE.json]")
    ] = None,
    bench: Annotated[
        Path | None,
        option(metavar="FILE", help="Result of `bench nccl`. [default: results/STACK/nccl/result.json, if it exists]"),
    ] = None,
    options: Flat[StackOptions] = StackOptions(),
) -> None:
    """Write one file of what a stack's run shows, to send back.

    Versions, settings without names, seconds of each resource, the findings of
    `doctor` and a benchmark: no secret, name or address. Read it before you send it.

    Example: rdma-ray evidence --stack gke-first
    Exit codes: 0 written, whatever it shows; 1 error, or a secret or name was found.
    """
    check_new_file(out)
    if not is_clone(PROJECT):
        raise WorkloadError(f"{PROJECT} is not in a clone of this project, whose state is read: run this in one")
    stack = name_of(options.stack)
    file = PROJECT / f"Pulumi.{stack}.yaml"
    try:
        settings, config = from_stack_file(file), read_config(file)
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None
    result = PROJECT / "results" / stack / "nccl" / "result.json" if bench is None else bench
    measured = BenchResult.read(result) if bench is not None or result.exists() else None
    state, outputs, kubernetes = None, None, None
    try:
        with Connection(options) as connection:
            outputs = connection.outputs
            state = StateReader(connection).collect()
            kubernetes = _version_of_kubernetes(connection)
    except WorkloadError as error:
        print(printable(f"without the cluster: {error}"), file=sys.stderr)
    _check_same_stack(state, measured, result)
    runs = recorded(PROJECT, stack)
    versions = versions_here(PROJECT, kubernetes)
    try:
        document = evidence_of(settings, config, versions, state=state, bench=measured, runs=runs)
    except ValidationError as error:  # a number beyond all limits; without the values
        where = ", ".join(".".join(map(str, each["loc"])) for each in error.errors()[:4])
        raise WorkloadError(
            f"the stack or the benchmark has values beyond the limits of {where}: see --bench"
        ) from None
    if found := leaks(document, config=config, stack=stack, outputs=outputs, state=state, bench=measured):
        raise WorkloadError(
            f"nothing was written, because the document would contain {'; '.join(found[:4])}\n"
            "report this without the value (SECURITY.md)"
        )
    path = out or Path(f"rdma-ray-evidence-{document.target}-{document.date}.json")
    write_file(path, document.to_json(), mode=0o600)
    for line in summary(document):
        print(line, file=sys.stderr)
    print(path)


def _version_of_kubernetes(connection: Connection) -> str | None:
    if not connection.outputs.on_kubernetes:
        return None
    try:
        return str(json.loads(connection.kubectl.run("get", "--raw", "/version"))["gitVersion"])
    except UNREADABLE:
        return None


def _check_same_stack(state: State | None, bench: BenchResult | None, file: Path) -> None:
    if state is not None and bench is not None and bench.cluster != state.outputs.ray.cluster:
        raise WorkloadError(f"{file} is a benchmark of another cluster: choose one of this stack with --bench FILE")


def summary(document: form.SentEvidence) -> list[str]:
    """Return what the document has, in a few lines."""
    runs, doctor, bench = document.runs, document.doctor, document.bench
    unknown = [name for name, value in document.versions.items() if value.startswith("unknown")]
    if isinstance(runs, list):
        operations = [each for run in runs for each in run.operations]
        slowest = max(operations, key=lambda each: each.seconds, default=None)
        longest = f", the longest {slowest.op} {slowest.type} in {slowest.seconds} s" if slowest else ""
        timed = f"{len(runs)} runs of the engine, {len(operations)} operations{longest}"
    else:
        timed = runs
    if isinstance(doctor, form.DoctorSummary):
        checked = f"{len(doctor.findings)} kinds of findings, {len(doctor.passed)} checks passed"
    else:
        checked = doctor
    judged = f"{bench.outcome}, {len(bench.rows)} rows" if isinstance(bench, form.BenchSummary) else bench
    return [
        f"settings   {len(document.settings)} with their values; of {len(document.set_)} others only that they are set",
        f"versions   {len(document.versions) - len(unknown)}; unknown: {', '.join(unknown) or 'none'}",
        f"times      {timed}",
        f"doctor     {checked}",
        f"bench      {judged}",
        "No secret, name or address is in it as far as it was searched. Read it before you send it.",
    ]
