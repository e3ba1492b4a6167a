"""`rdma-ray render …`: a command of rdma-ray as a file that Kubernetes or Slurm runs, printed to stdout."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App

from infra.catalog.names import JOB_LABEL, NODE_TYPE
from infra.kubernetes.workload_objects import with_supporting
from infra.outputs import Nodes, job_stack
from infra.plan import ray_args
from infra.project import PROJECT
from infra.settings import LocalSettings
from infra.settings.cloud import CloudSettings
from infra.settings.cluster import ClusterSettings
from infra.terminal import printable
from workloads.client.plan import read_settings
from workloads.client.stack import name_of
from workloads.exits import WorkloadError
from workloads.nccl.job_manifest import as_yaml
from workloads.options import Flat, Stack, option
from workloads.render.request import Request
from workloads.secrecy import command_without_secrets
from workloads.slurm.head import fabric_of, outputs
from workloads.slurm.options import SlurmOptions
from workloads.slurm.script import completed, known_fabric, script

LONGEST_NAME = 41
"""Characters: a CronJob's 52 (Kubernetes: pkg/apis/batch/validation, 1.36) without "-time-limit"."""

render = App(name="render", help="Print a job as a file for Kubernetes or Slurm.")
Command = Annotated[str, option(help="Command with its own options: run …, bench … or train ….", show=True)]


@dataclass(frozen=True, kw_only=True)
class ManifestOptions:
    """The stack that the job runs on, and the options that the command does not have."""

    stack: Stack = None
    stack_file: Annotated[Path | None, option(metavar="FILE", help="A Pulumi.<stack>.yaml, instead of --stack.")] = None
    team: Annotated[
        str | None, option(env_var="RDMA_RAY_TEAM", metavar="NAME", help="Team of the stack, in whose queue it waits.")
    ] = None
    name: Annotated[str | None, option(help="Name of the job. [default: that of the script, or of the command]")] = None
    nodes: Annotated[
        int | None,
        option(help="Nodes of the job. [default: those of the command, else two or as many as the stack has]"),
    ] = None
    secrets: Annotated[
        str | None,
        option(metavar="NAME", help="Kubernetes Secret with a key for each --secret. [default: the job's name]"),
    ] = None


@render.command
def rayjob(*command: Command, options: Flat[ManifestOptions] = ManifestOptions()) -> None:
    """Print a RayJob that runs a command of rdma-ray, for `kubectl apply -f -`.

    It is the RayJob that the stack would create in ray.mode job, with its own
    objects; it uses the stack's namespace, accounts, token and queue. The
    command is checked, and nothing is sent anywhere.

    Example: rdma-ray render rayjob --stack gke-dws run --nodes 2 -- torchrun /app/train.py
    Exit codes: 0 printed, 1 it cannot run on this stack.
    """
    _print("job", command, options)


@render.command
def indexed_job(*command: Command, options: Flat[ManifestOptions] = ManifestOptions()) -> None:
    """Print an Indexed Job that runs a command of rdma-ray, for `kubectl apply -f -`.

    Like `render rayjob`, but without an operator: the Job of ray.mode
    indexed-job.

    Example: rdma-ray render indexed-job --stack eks train digits --json /bucket/result.json
    Exit codes: 0 printed, 1 it cannot run on this stack.
    """
    _print("indexed-job", command, options)


@render.command
def sbatch(*command: Command, options: Flat[SlurmOptions] = SlurmOptions()) -> None:
    """Print an sbatch file that runs a command of rdma-ray on its own allocation.

    The text that `rdma-ray slurm run` submits.

    Example: rdma-ray render sbatch --gpus-per-node 8 run --nodes 2 -- torchrun train.py
    Exit codes: 0 printed, 1 the command cannot run on this allocation.
    """
    request, options = Request.of(command), completed(options)
    if "nodes" not in options.model_fields_set and (nodes := request.nodes(options.gpus_per_node or 1)):
        options = options.model_copy(update={"nodes": nodes})
    request.check(_allocation(options, request))
    sys.stdout.write(script(options, request.entry_point))


def manifests(mode: Literal["job", "indexed-job"], request: Request, options: ManifestOptions) -> list[dict[str, Any]]:
    """Return the objects of a job, its own resource last. WorkloadError if it cannot run on the stack."""
    if options.stack and options.stack_file:
        raise WorkloadError(
            f"--stack {options.stack}: {options.stack_file} already names a stack: use only one of them"
        )
    file = options.stack_file or PROJECT / f"Pulumi.{name_of(options.stack)}.yaml"
    named = re.fullmatch(r"Pulumi\.(.+)\.yaml", file.name)
    if named is None:
        raise WorkloadError(
            f"--stack-file {file}: call it Pulumi.STACK.yaml: the job uses objects with the stack's name"
        )
    settings = read_settings(file)
    if isinstance(settings, LocalSettings):
        raise WorkloadError(f"{file.name}: target local has no Kubernetes: choose a stack on a cluster with --stack")
    if mode == "job" and settings.ray.mode == "indexed-job":
        raise WorkloadError(
            f"{file.name}: ray.mode is indexed-job, so the stack has no KubeRay, which runs RayJobs: use `rdma-ray"
            " render indexed-job`, or set another mode"
        )
    of_stack = _of_team(settings, options.team, file)
    stack, gpus, most = named[1], settings.gpus_per_node, settings.nodes.max
    wanted = request.nodes(gpus)
    kept = Nodes(min=settings.nodes.min, max=most, gpus_per_node=gpus, cpus_per_node=0)
    nodes = wanted or kept.default_gang if options.nodes is None else options.nodes
    if not 1 <= nodes <= most:
        asked = f"--nodes {options.nodes}" if options.nodes is not None else f"the command needs {nodes} nodes"
        raise WorkloadError(f"{asked}: the stack has 1 to {most} (nodes.max in {file.name})")
    if wanted and wanted > nodes:
        raise WorkloadError(
            f"--nodes {nodes}: the command needs {wanted}: use the same number for both, or only one of them"
        )
    changes = {"ray.mode": mode, "ray.entrypoint": shlex.join(request.entry_point), "service": None}
    # A job may borrow the nodes of teams, which the stack's own RayCluster must not.
    changes |= {"teams": None} if isinstance(settings, CloudSettings) else {}
    settings = read_settings(file, changes | {"ray.minWorkers": nodes, "ray.maxWorkers": nodes})
    if isinstance(settings, CloudSettings) and of_stack.team:
        settings = settings.for_team(of_stack.team)
    assert not isinstance(settings, LocalSettings)
    # Whether Kueue chooses nodes by topology depends on the stack's own size, not on that of the job.
    own = replace(ray_args(settings, f"{stack}-ray"), pod=ray_args(of_stack, f"{stack}-ray").pod)
    name = _checked_name(options.name or request.name[:LONGEST_NAME].strip("-"), own.name)
    args = replace(own, name=name, shared_token=own.token_secret)
    request.check_files(settings.storage.mount_path if settings.storage.source else None)
    request.check(job_stack(settings, name))
    names: tuple[str, ...] = request.given.get("secret") or ()
    if options.secrets is not None and not names:
        raise WorkloadError(f"--secrets {options.secrets}: the command has no --secret: add `run --secret NAME`")
    if not re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", options.secrets or name):
        raise WorkloadError(f"--secrets {options.secrets}: a Secret's name has lower-case letters, digits and dashes")
    objects = with_supporting(args)
    _add_secrets(objects[-1], names, options.secrets or name)
    return objects


def _of_team(settings: ClusterSettings, name: str | None, file: Path) -> ClusterSettings:
    """Return the settings of a team; without a name, those of the stack's own Ray."""
    if name is None:
        return settings
    teams = {team.name: team for team in settings.teams} if isinstance(settings, CloudSettings) else {}
    if not isinstance(settings, CloudSettings) or name not in teams:
        choice = f"choose one of {', '.join(sorted(teams))}" if teams else "leave out --team and RDMA_RAY_TEAM"
        raise WorkloadError(f"--team {name}: {file.name} has no team of this name: {choice}")
    return settings.for_team(teams[name])


def _print(mode: Literal["job", "indexed-job"], command: tuple[str, ...], options: ManifestOptions) -> None:
    request = Request.of(command)
    objects = manifests(mode, request, options)
    job = objects[-1]
    name, kind = job["metadata"]["name"], job["kind"].lower()
    line = printable(shlex.join(["rdma-ray", *command_without_secrets(sys.argv[1:])])).replace("\n", "\\n")
    sys.stdout.write(f"# {line}\n{as_yaml(objects)}")
    kubectl = f"kubectl -n {job['metadata']['namespace']}"
    steps = ["# Next:"]
    if names := request.given.get("secret"):
        secret = f"create secret generic {options.secrets or name} --from-env-file=.env"
        steps.append(f"#   {kubectl} {secret}     # once; with {' and '.join(names)}")
    steps.append("#   kubectl apply -f FILE")
    logs = f"-l {JOB_LABEL}={name}" + ("" if mode == "indexed-job" else f",{NODE_TYPE}=head")
    if mode == "job":
        steps.append(f"#   {kubectl} get rayjob {name} -o jsonpath='{{.status.jobStatus}} {{.status.message}}'")
    else:
        steps.append(f"#   {kubectl} logs -f --prefix {logs}")
    steps.append(f"#   {kubectl} get {kind} {name}     # `describe` shows how it ended")
    print("\n".join(steps), file=sys.stderr)


def _checked_name(name: str, taken: str) -> str:
    """Return a name that Kubernetes accepts for each object of the job."""
    if name == taken:
        raise WorkloadError(f"--name {name}: the stack's Ray has this name: choose another")
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise WorkloadError(
            f"--name {name}: use lower-case letters, digits and dashes, beginning with a letter, at most {LONGEST_NAME}"
            " characters"
        )
    return name


def _add_secrets(job: Mapping[str, Any], names: tuple[str, ...], secret: str) -> None:
    """Add variables from a Secret to the container that runs the entry point."""
    spec = job["spec"]
    if job["kind"] == "RayJob":
        spec = spec["rayClusterSpec"]["headGroupSpec"]
    spec["template"]["spec"]["containers"][0]["env"] += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in names
    ]


def _allocation(options: SlurmOptions, request: Request) -> str:
    """Return what a command in an allocation knows of it, as far as the request says it.

    Without --cpus-per-node, Slurm's answer is unknown: the command gets as many CPUs as it needs.
    """
    needed = request.given.get("per_node") or -(-(request.given.get("workers") or 1) // options.nodes)
    allocation = outputs(
        options.nodes,
        cpus=options.cpus_per_node or needed,
        gpus=options.gpus_per_node or 0,
        # A command is checked alike on every machine, whatever NICs it has.
        fabric=known_fabric(options.machine) or fabric_of(options.gpus_per_node or 0, ()),
        machine=options.machine or "",
        ray=dict.fromkeys(("cluster", "version", "dashboard", "jobs", "client", "token"), ""),
        storage=options.storage,
    )
    return json.dumps(allocation)
