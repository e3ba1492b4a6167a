"""`rdma-ray bench job`: nccl-tests as a Kubernetes Job, printed for `kubectl apply -f -`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import Parameter
from cyclopts.validators import Number

from workloads.exits import WorkloadError
from workloads.options import Stack

if TYPE_CHECKING:
    from infra.kubernetes.nccl_job import NcclJob
    from infra.settings import Settings


def bench_job(
    file: Annotated[
        Path | None,
        Parameter(metavar="[FILE]", help="A Pulumi.<stack>.yaml. [default: that of --stack]"),
    ] = None,
    /,
    *,
    op: Annotated[
        str | None, Parameter(help="Operation to measure. [default: all_gather on GKE, all_reduce on EKS]")
    ] = None,
    begin: Annotated[str, Parameter(alias="-b", help="Smallest size.")] = "1K",
    end: Annotated[str, Parameter(alias="-e", help="Largest size; the judge looks at 1G and more.")] = "8G",
    factor: Annotated[int, Parameter(alias="-f", validator=Number(gte=2), help="Step.")] = 2,
    iterations: Annotated[int, Parameter(alias="-n", validator=Number(gte=1), help="Timed runs of each row.")] = 100,
    warmup: Annotated[int, Parameter(alias="-w", validator=Number(gte=0), help="Untimed runs before each row.")] = 5,
    split: Annotated[str, Parameter(help="world: all ranks together; rails: GPU n with GPU n only.")] = "world",
    nodes: Annotated[int, Parameter(validator=Number(gte=1), help="Nodes, each with all of its GPUs.")] = 2,
    queue: Annotated[
        str | None, Parameter(help="Kueue's LocalQueue that admits the Job. [default: the stack's own, if any]")
    ] = None,
    name: Annotated[str | None, Parameter(help="Name of the Job. [default: by the operation]")] = None,
    image: Annotated[str | None, Parameter(help="Another image, laid out as the default one.")] = None,
    wait: Annotated[
        int, Parameter(validator=Number(gte=1), help="Seconds that pods with a node wait for each other.")
    ] = 1800,
    timeout: Annotated[int, Parameter(validator=Number(gte=1), help="Seconds that the measurement may take.")] = 3600,
    ssh_key: Annotated[
        bool, Parameter(help="Print the Secret with a fresh key pair for the pods' sshd, nothing else.")
    ] = False,
    stack: Stack = None,
) -> None:
    """Print nccl-tests as a Kubernetes Job without Ray, for `kubectl apply -f -`.

    Nothing is sent anywhere. What to do next goes to stderr. Exit codes: 0 printed, 1 it cannot be run on this stack.
    """
    from infra.kubernetes.nccl_job import FIRST_OP, Sweep, nccl_job
    from infra.kubernetes.nccl_job_manifest import as_yaml, manifests

    if split not in ("world", "rails"):
        raise WorkloadError(f"--split {split}: choose world or rails")
    settings = _settings(file, stack)
    sweep = Sweep(
        op=op or FIRST_OP.get(settings.target, "all_gather"),
        begin=begin,
        end=end,
        factor=factor,
        iterations=iterations,
        warmup=warmup,
        split=cast("Literal['world', 'rails']", split),
    )
    try:
        job = nccl_job(settings, sweep, nodes=nodes, name=name, queue=queue, image=image, wait_s=wait, run_s=timeout)
    except ValueError as problems:
        raise WorkloadError(str(problems)) from None
    if ssh_key:
        _print_key(job)
        return
    sys.stdout.write(as_yaml(manifests(job)))
    print(_next(job, str(settings.nodes.machine)), file=sys.stderr)


def _settings(file: Path | None, stack: str | None) -> Settings:
    from infra.problems import SettingsError
    from infra.settings import from_stack_file
    from workloads.client.stack import PROJECT

    if file is not None and stack is not None:
        raise WorkloadError(f"--stack {stack}: {file} names a stack already; give one of the two")
    path = file or PROJECT / f"Pulumi.{stack or os.environ.get('STACK') or 'local'}.yaml"
    try:
        return from_stack_file(path)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None


def _print_key(job: NcclJob) -> None:
    from infra.kubernetes.nccl_job_manifest import as_yaml, key_secret

    if job.image.own_keys:
        raise WorkloadError("--ssh-key: the image of this stack has a key pair of its own; leave the option out")
    if sys.stdout.isatty():
        raise WorkloadError("--ssh-key: a private key does not belong on a screen; add `| kubectl apply -f -`")
    sys.stdout.write(as_yaml([key_secret(job, *_key_pair(job.name))]))


def _key_pair(comment: str) -> tuple[str, str]:
    """A fresh ed25519 key pair (private, public), as ssh-keygen writes it; no file of it stays."""
    import subprocess
    from tempfile import TemporaryDirectory

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


def _next(job: NcclJob, machine: str) -> str:
    from infra.catalog.machines import CATALOG
    from infra.kubernetes.nccl_job import size
    from infra.kubernetes.ray_manifest import NAMESPACE
    from workloads.nccl.judge.expectation import floor_of, large_enough

    log = f"{job.name}.log"
    kubectl = f"kubectl -n {NAMESPACE}"
    judge = f"bench judge --machine {machine} --nodes {job.nodes} --op {job.sweep.op}"
    largest = size(job.sweep.end)
    floor = floor_of(CATALOG[machine].baselines, job.sweep.op, job.nodes, largest, frozenset())
    remarks = []
    if not large_enough(largest):
        remarks = [f"#   (-e {job.sweep.end}: the judge wants a row of 1G or more, and will pass nothing)"]
    elif floor is None or not floor.gates or job.sweep.split == "rails":
        remarks = ["#   (nobody published a figure for this: with --no-floor, the judge looks at everything else)"]
    steps = [
        f"# {job.nodes} nodes of {job.gpus} GPUs, for at most {job.pod_s} s from when they are there. Next:",
        *([] if job.image.own_keys else ["#   (before this: the same command with --ssh-key, into kubectl, too)"]),
        *([f"#   {kubectl} wait job {job.name} --for=jsonpath='{{.spec.suspend}}'=false"] if job.queue else []),
        f"#   {kubectl} wait pod -l {job.first} --for=condition=Ready --timeout={job.nodes_s + job.pod_s}s",
        f"#   {kubectl} logs -f --tail=-1 -l {job.first} > {log}",
        f"#   rdma-ray {judge} --results {log} --log {log}{' --no-floor' if remarks and large_enough(largest) else ''}",
        *remarks,
        f"#   {kubectl} get job {job.name}     # `describe` says how it ended",
    ]
    return "\n".join(steps)
