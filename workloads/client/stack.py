"""Stack of a command: its outputs and whether its Ray accepts jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from pydantic import SecretStr

from infra.catalog.names import DASHBOARD_PORT
from infra.outputs import FORWARDED, JOB_STACK, Outputs
from infra.project import PROJECT, is_clone
from workloads import secrecy
from workloads.client.outputs import SECRET, SecretPlace, parsed
from workloads.exits import WorkloadError
from workloads.options import DEFAULT_STACK, StackOptions
from workloads.results.files import read_bytes

ENDS = "the head exists only while ray.entrypoint runs"
KINDS = {
    "job": ("rayjob", "docs/queues.md", ENDS),
    "indexed-job": ("job", "docs/indexed-job.md", ENDS),
    "service": ("rayservice", "docs/serving.md", "its Ray answers requests, and each upgrade ends it with its jobs"),
}
"""Resource type for kubectl, documentation page, and reason why there are no other jobs, for each such `ray.mode`."""


def name_of(stack: str | None) -> str:
    """Return the name of the stack to use: the given one, otherwise that in STACK, otherwise the default."""
    return stack or os.environ.get("STACK") or DEFAULT_STACK


def read_outputs(options: StackOptions) -> Outputs:
    """Return the outputs in a file (as `pulumi stack output --json --show-secrets` prints them) or a Secret, or of a
    stack; with `--team`, those of this team in them.

    In an entry point, they are those of the stack that runs it.

    WorkloadError if the stack, file, Secret or team does not exist, or its outputs do not match infra/outputs.py.
    """
    outputs = _outputs_of_stack(options)
    return outputs if options.team is None else _of_team(outputs, options.team)


def _of_team(outputs: Outputs, team: str) -> Outputs:
    if not outputs.teams:
        raise WorkloadError(
            f"--team {team}: the outputs of {outputs.ray.cluster!r} have no teams: leave out --team and RDMA_RAY_TEAM."
            " The outputs in a team's Secret are already those of the team (docs/teams.md)"
        )
    if team not in outputs.teams:
        raise WorkloadError(f"--team {team}: there is no such team: choose one of {', '.join(sorted(outputs.teams))}")
    return outputs.teams[team]


def _outputs_of_stack(options: StackOptions) -> Outputs:
    if (text := entry_point_of(options)) is not None:
        stack = parsed(
            text, where=f"the variable {JOB_STACK}", fix="only the stack's program sets it; do not change it"
        )
        # The variable, which any user of the node may see, has no token: Ray's own variables lead to it.
        token = next(iter([] if stack.ray.token.get_secret_value() else secrecy.ray_tokens(os.environ)), None)
        if token is None:
            return stack
        return stack.model_copy(update={"ray": stack.ray.model_copy(update={"token": SecretStr(token)})})
    given = options.outputs
    if given is None:
        return _from_pulumi(name_of(options.stack))
    if given.startswith(SECRET):
        return SecretPlace.of(given).read()
    fix = "write it with: bin/pulumi stack output --json --show-secrets"
    return parsed(read_bytes(Path(given)), where=f"file {given}", fix=fix)


def entry_point_of(options: StackOptions) -> str | None:
    """Return the description of the stack whose entry point runs this command; None elsewhere, or for another stack."""
    if options.rendered is not None:
        return str(options.rendered)
    return None if options.stack or options.outputs else os.environ.get(JOB_STACK)


def _from_pulumi(stack: str) -> Outputs:
    if not is_clone(PROJECT):
        raise WorkloadError(
            f"no stack {stack!r}: {PROJECT} is not in a clone of this project. Choose its outputs with --outputs or"
            " RDMA_RAY_OUTPUTS: secret:NAME in its cluster, or a file (docs/install.md)"
        )
    command = [_pulumi(), "stack", "output", "--json", "--show-secrets", "--non-interactive", "--stack", stack]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    make = f"make up STACK={stack}"
    if done.returncode:
        # The engine's last line is the reason. It never contains an output, and so no secret.
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise WorkloadError(f"no outputs of stack {stack!r}: {reason}\nbring it up first: {make}")
    if done.stdout.strip() in ("", "{}"):
        raise WorkloadError(f"stack {stack!r} exists, but has no resources: bring it up first: {make}")
    return parsed(done.stdout, where=f"stack {stack!r}", fix=f"bring it up to date: {make}")


def _pulumi() -> str:
    """Return the project's own Pulumi engine if it is built, otherwise the one on PATH."""
    installed = PROJECT / "bin" / "pulumi"
    program = str(installed) if installed.is_file() else shutil.which("pulumi")
    if program is None:
        raise WorkloadError(
            f"no Pulumi engine: neither {installed} nor `pulumi` on PATH. Run `make setup`, or choose a file or a"
            " Secret with --outputs or RDMA_RAY_OUTPUTS (docs/install.md)"
        )
    return program


def refuse_jobs(outputs: Outputs) -> None:
    """Raise WorkloadError if the stack's Ray accepts no jobs.

    In these modes the nodes belong to one entry point or to replicas: a job would wait for GPUs forever, or be lost.
    """
    if outputs.ray.mode not in KINDS:
        return
    _, page, why = KINDS[outputs.ray.mode]
    raise WorkloadError(
        f"{outputs.ray.cluster!r} accepts no jobs: the stack's ray.mode is {outputs.ray.mode}:"
        f" {why} ({page})\n"
        "for a Ray that accepts jobs: set ray.mode to cluster, leave ray.entrypoint out, and `make up`\n"
        "for another job on this stack's nodes: `rdma-ray render … | kubectl apply -f -` (docs/render.md), or"
        " nccl-tests with `rdma-ray bench job Pulumi.STACK.yaml`"
    )


def forwarded(outputs: Outputs, address: str, port: int) -> bool:
    """Return whether commands reach a port of the stack's Ray through their own port-forward.

    They do on Kubernetes, unless the address in the outputs has been replaced by one of the user's, such as that of a
    VPN, an ingress or another port-forward.
    """
    return outputs.on_kubernetes and address.rstrip("/") == f"http://{FORWARDED}:{port}"


def unanswered(outputs: Outputs) -> str:
    """Return a hint for when Ray's address does not answer."""
    if forwarded(outputs, outputs.ray.jobs, DASHBOARD_PORT):
        return "kubectl reaches the head's pod, in which Ray does not answer: it is starting, or see `rdma-ray doctor`"
    if outputs.target == "slurm":
        return f"Does {outputs.ray.cluster} of Slurm run, and does this host reach its nodes? See `squeue --me`"
    if outputs.ray.mode not in KINDS:
        return f"Is the cluster {outputs.ray.cluster!r} up? See `make up`"
    kind, page, why = KINDS[outputs.ray.mode]
    return (
        f"The stack's ray.mode is {outputs.ray.mode}: {why} ({page})."
        f" Its state: kubectl -n {outputs.namespace} get {kind} {outputs.ray.cluster}"
    )
