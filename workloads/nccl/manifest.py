"""`rdma-ray bench job`: nccl-tests as a Kubernetes Job, printed for `kubectl apply -f -`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from infra.nccl_job import FIRST_OP, NODES, RUN_S, WAIT_S, NcclJob, Sweep, nccl_job, size
from infra.project import PROJECT
from infra.settings import LocalSettings
from workloads.client.plan import read_settings
from workloads.client.stack import name_of
from workloads.exits import WorkloadError
from workloads.nccl.job_manifest import as_yaml, key_secret, manifests
from workloads.nccl.judge.expectation import MIN_SIZE, floor_of, large_enough, machine_named
from workloads.nccl.units import written_size
from workloads.options import Flat, Stack, option

_JUDGED = written_size(MIN_SIZE)
_FIRST_OPS = ", ".join(f"{op} on {target.upper()}" for target, op in FIRST_OP.items())


class NcclJobOptions(BaseModel, frozen=True, extra="forbid"):
    """Options of `bench job`: the measurement of nccl-tests, and the Job's pods."""

    op: str | None = Field(None, description=f"Operation to measure. [default: {_FIRST_OPS}]")
    begin: Annotated[str, option("-b")] = Field(Sweep.begin, description="Smallest size.")
    end: Annotated[str, option("-e")] = Field(
        Sweep.end, description=f"Largest size; the judge requires {_JUDGED} or more."
    )
    factor: Annotated[int, option("-f")] = Field(Sweep.factor, ge=2, description="Ratio of consecutive sizes.")
    iterations: Annotated[int, option("-n")] = Field(Sweep.iterations, ge=1, description="Timed runs of each row.")
    warmup: Annotated[int, option("-w")] = Field(Sweep.warmup, ge=0, description="Untimed runs before each row.")
    split: Literal["world", "rails"] = Field(
        Sweep.split, description="world: all ranks together; rails: GPU n with GPU n."
    )
    nodes: int = Field(NODES, ge=1, description="Nodes, each with all of its GPUs.")
    queue: str | None = Field(
        None, description="Kueue's LocalQueue that admits the Job. [default: the stack's, if any]"
    )
    name: str | None = Field(None, description="Name of the Job. [default: by the operation]")
    image: str | None = Field(None, description="Another image with programs in the same places.")
    wait_s: Annotated[int, option(name="--wait")] = Field(
        WAIT_S, ge=1, description="Seconds that pods with a node wait for each other."
    )
    run_s: Annotated[int, option(name="--timeout")] = Field(
        RUN_S, ge=1, description="Seconds that the measurement may take."
    )


DEFAULTS = NcclJobOptions()


def bench_job(
    file: Annotated[
        Path | None, option(metavar="[FILE]", help="A Pulumi.<stack>.yaml. [default: that of --stack]")
    ] = None,
    /,
    *,
    options: Flat[NcclJobOptions] = DEFAULTS,
    ssh_key: Annotated[bool, option(help="Print only the Secret with a new key pair for the pods' sshd.")] = False,
    stack: Stack = None,
) -> None:
    """Print nccl-tests as a Kubernetes Job without Ray, for `kubectl apply -f -`.

    Nothing is sent anywhere. The next steps go to stderr.

    Example: rdma-ray bench job Pulumi.gke.yaml
    Exit codes: 0 printed, 1 it cannot run on this stack.
    """
    if file is not None and stack is not None:
        raise WorkloadError(f"--stack {stack}: {file} already names a stack; use only one of them")
    settings = read_settings(file or PROJECT / f"Pulumi.{name_of(stack)}.yaml")
    measured = {field.name for field in fields(Sweep)}
    op = options.op or FIRST_OP.get(settings.target, Sweep.op)
    sweep = Sweep(**options.model_dump(include=measured) | {"op": op})
    try:
        job = nccl_job(settings, sweep, **options.model_dump(exclude=measured))
    except ValueError as problems:
        raise WorkloadError(str(problems)) from None
    if not ssh_key:
        sys.stdout.write(as_yaml(manifests(job)))
        assert not isinstance(settings, LocalSettings)  # nccl_job rejects them
        if settings.nodes.machine is None:
            raise WorkloadError("nodes.machine is not set: the judge of the Job's log needs the type of its nodes")
        print(_next_steps(job, settings.nodes.machine), file=sys.stderr)
        return
    if job.image.own_keys:
        raise WorkloadError("--ssh-key: the image of this stack already has a key pair; omit the option")
    if sys.stdout.isatty():
        raise WorkloadError("--ssh-key: a private key must not be shown on a terminal; add `| kubectl apply -f -`")
    sys.stdout.write(as_yaml([key_secret(job, *_key_pair(job.name))]))


def _key_pair(comment: str) -> tuple[str, str]:
    """Return a new ed25519 key pair (private, public) from ssh-keygen."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise WorkloadError("--ssh-key: there is no ssh-keygen on PATH; install OpenSSH's client") from None
        except subprocess.CalledProcessError as error:
            raise WorkloadError(f"--ssh-key: ssh-keygen failed: {error.stderr.strip()}") from None
        return file.read_text(encoding="ascii"), file.with_suffix(".pub").read_text(encoding="ascii")


def _next_steps(job: NcclJob, machine: str) -> str:
    log, end = f"{job.name}.log", job.sweep.end
    kubectl = f"kubectl -n {job.namespace}"
    judge = f"bench judge --machine {machine} --nodes {job.nodes} --op {job.sweep.op} --results {log} --log {log}"
    floor = floor_of(machine_named(machine).baselines, job.sweep.op, job.nodes, size(end), frozenset())
    remarks = []
    if not large_enough(size(end)):
        remarks = [f"#   (-e {end}: the judge requires a row of {_JUDGED} or more, and passes nothing)"]
    elif floor is None or not floor.gates or job.sweep.split == "rails":
        judge += " --no-floor"
        remarks = ["#   (no figure is published for this: with --no-floor, the judge checks everything else)"]
    steps = [
        f"# {job.nodes} nodes of {job.gpus} GPUs, for at most {job.pod_s} s once they are ready. Next:",
        *([] if job.image.own_keys else ["#   (first: the same command with --ssh-key, piped into kubectl, too)"]),
        *([f"#   {kubectl} wait job {job.name} --for=jsonpath='{{.spec.suspend}}'=false"] if job.queue else []),
        f"#   {kubectl} wait pod -l {job.first} --for=condition=Ready --timeout={job.nodes_s + job.pod_s}s",
        f"#   {kubectl} logs -f --tail=-1 -l {job.first} > {log}",
        f"#   rdma-ray {judge}",
        *remarks,
        f"#   {kubectl} get job {job.name}     # `describe` shows how it ended",
    ]
    return "\n".join(steps)
