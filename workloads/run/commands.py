"""`rdma-ray run`: the user's command on the cluster."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from infra.outputs import Outputs
from infra.terminal import printable
from workloads.client.api import JobsApi
from workloads.client.connection import Connection
from workloads.client.entry_point import driver_environment, has_working_dir
from workloads.client.kinds import kind_of
from workloads.client.output import LineOptions, output_of
from workloads.client.run import JOB_ENVIRONMENT, conclude, python_of, record_of, run_here
from workloads.client.show import row_of, show_run
from workloads.client.stack import entry_point_of, refuse_jobs
from workloads.client.submit import TakenError, as_one_process, own_package, submit, upload_package
from workloads.exits import Exit, WorkloadError
from workloads.gang.kept import kept
from workloads.gang.layout import KINDS, layout_of
from workloads.gang.masked import JOB_CONFIG
from workloads.gang.options import RunOptions
from workloads.nccl.hunt.options import request_of
from workloads.nccl.options import GangOptions
from workloads.options import Flat, ResultOptions, option
from workloads.results.events import new_id
from workloads.run import requirements, variables, working_dir
from workloads.run.delivery import deliver
from workloads.run.driver import run_command
from workloads.run.entry import entry_of, name_of
from workloads.run.variables import Variables
from workloads.sealed import Key
from workloads.terminal.console import present, say, write_json

LONGEST_COMMAND = 120_000
"""Bytes of the job's entry point, which Ray passes to a shell as one argument (Linux: at most 128 KiB)."""
STOP_MARGIN_S = 15
"""Seconds that Ray gives the driver beyond the ranks' grace before it kills the job."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """The user's code, its variables, and how the command behaves."""

    env: Annotated[tuple[str, ...], option(metavar="NAME=VALUE", help="Variable of the command; repeatable.")] = ()
    env_file: Annotated[
        Path | None, option(metavar="FILE", help="File with a NAME=VALUE on each line; --env takes precedence.")
    ] = None
    secret: Annotated[
        tuple[str, ...],
        option(
            metavar="NAME",
            help="Variable whose value comes from this environment or --env-file. Logs show *** for it; repeatable.",
        ),
    ] = ()
    working_dir: Annotated[
        str,
        option(
            metavar="DIR",
            help="Folder to upload, in which the command runs; .gitignore applies. Or an archive that Ray downloads:"
            " https, s3, gs, … In an entry point: a folder that all nodes have.",
        ),
    ] = "."
    follow_links: Annotated[
        bool, option(help="Also upload files outside the folder that links lead to, except credentials.")
    ] = False
    pip: Annotated[
        tuple[str, ...],
        option(metavar="PACKAGE", help="Package to install in addition to those of the image; repeatable."),
    ] = ()
    requirements: Annotated[Path | None, option(metavar="FILE", help="File of packages, as for --pip.")] = None
    name: Annotated[str | None, option(help="Name in `rdma-ray list`. [default: the script's]")] = None
    request_id: Annotated[
        str | None,
        option(metavar="ID", help="ID of the job. A second run with it starts nothing, and follows the first."),
    ] = None
    detach: Annotated[bool, option(help="Print the job's ID, and do not follow it.")] = False
    dry_run: Annotated[bool, option(help="Show what would run, without starting it.")] = False


@dataclass(frozen=True)
class RunPlan:
    """A run that fits the stack: the request of its driver, and the upload.

    Args:
        folder: Working directory to upload; None for a `uri`, which every node has or Ray downloads.
        key: Key with which this client sends secrets; None without any.
    """

    options: RunOptions
    name: str
    folder: working_dir.WorkingFolder | None
    uri: str
    packages: list[str]
    secrets: Mapping[str, str] = field(repr=False)
    key: Key | None = field(repr=False)

    @staticmethod
    def of(
        command: tuple[str, ...],
        options: RunOptions,
        code: CodeOptions,
        outputs: Outputs,
        own: Mapping[str, str],
        *,
        uploads: bool = True,
    ) -> RunPlan:
        """Return the plan of a run. WorkloadError names the option that does not fit, before anything is sent.

        Args:
            own: Environment with the values of `--secret`.
            uploads: Whether the working directory is a folder of this machine.
        """
        if code.request_id is not None and not _ID.fullmatch(code.request_id):
            raise WorkloadError(f"--request-id {code.request_id}: use 1 to 100 letters, digits, dots and dashes")
        given = variables.read(code.env, code.env_file, code.secret, own)
        uri = working_dir.uri(code.working_dir, everywhere=not uploads)
        key = Key() if given.secrets and uploads else None
        resolved = resolve(command, options, given, outputs)
        return RunPlan(
            options=resolved if key is None else resolved.model_copy(update={"client_key": key.public}),
            name=code.name or name_of(command),
            folder=None if uri else working_dir.read(Path(code.working_dir), follow_links=code.follow_links),
            uri=uri,
            packages=requirements.read(code.pip, code.requirements),
            secrets=given.secrets,
            key=key,
        )

    @property
    def request(self) -> str:
        return self.options.model_dump_json(exclude_defaults=True)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the job, without the digest, for which all files are read."""
        return {
            "workload": "run",
            "name": self.name,
            "mode": self.options.mode,
            "grace": f"{self.options.end_s:g}",
            **({"evidence": "yes"} if self.options.evidence else {}),
        }

    @cached_property
    def archive(self) -> bytes | None:
        """Working directory as it is uploaded."""
        return working_dir.pack(self.folder) if self.folder else None

    @cached_property
    def digest(self) -> str:
        """Digest that two clients with the same --request-id must share: of everything but the secrets' values."""
        options = self.options.model_dump_json(exclude_defaults=True, exclude={"client_key"})
        code = hashlib.sha256(self.archive or self.uri.encode()).hexdigest()
        return hashlib.sha256(json.dumps([options, self.packages, code]).encode()).hexdigest()[:32]

    def words(self, outputs: Outputs) -> list[str]:
        """Return the words of the job's command line. WorkloadError if it is too long for the cluster's shell."""
        # A virtual environment of --pip is on the PATH. With -P, a folder `workloads` of the user is not imported.
        python = "python" if self.packages else python_of(outputs)
        words = [python, "-P", "-m", kind_of(self.metadata).driver, self.request]
        if (size := len(as_one_process(words).encode())) > LONGEST_COMMAND:
            raise WorkloadError(
                f"COMMAND and its variables have {size} bytes, and Ray's shell accepts {LONGEST_COMMAND}: put them into"
                " a file of the working directory"
            )
        return words

    def notes(self) -> Iterator[str]:
        """Yield a line for each reason why files are not uploaded."""
        yield from self.folder.notes() if self.folder else ()

    def as_json(self, outputs: Outputs) -> dict[str, Any]:
        """Return a description of the run, with the names of variables but not their values."""
        return {
            "schema": "rdma-ray/dry-run/1",
            "cluster": outputs.ray.cluster,
            "name": self.name,
            "mode": self.options.mode,
            "nodes": self.options.nodes,
            "per_node": self.options.per_node,
            "layout": None if (layout := self.options.layout) is None else layout.as_json(),
            "command": [printable(word) for word in self.options.command],
            "variables": sorted(self.options.environment),
            "secrets": sorted(self.secrets),
            "packages": self.packages,
            "working_dir": str(self.folder.path) if self.folder else self.uri,
            "files": len(self.folder.files) if self.folder else 0,
            "bytes": self.folder.size if self.folder else 0,
            "left_out": self.folder.left_out if self.folder else {},
        }


def run(
    *command: Annotated[str, option(help="Program and arguments, after `--`.", show=True)],
    options: Flat[RunOptions] = RunOptions(),
    lines: Flat[LineOptions] = LineOptions(),
    code: Flat[CodeOptions] = CodeOptions(),
    result: Flat[ResultOptions] = ResultOptions(),
) -> int:
    """Run your own command on the cluster, and follow it.

    Without --nodes it runs once on the head, as a Ray driver. With --nodes it runs
    once per rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
    torchrun runs on every node. Ctrl-C leaves the job running.

    Example: rdma-ray run --nodes 2 --secret HF_TOKEN -- torchrun train.py --lr 1e-3
    Exit codes: that of the command; 1 also if it did not start, 130 if it was
    stopped.
    """
    with Connection(result) as stack:
        if entry_point_of(result) is not None:
            return _run_here(stack, command, options, code, lines, result)
        refuse_jobs(stack.outputs)
        plan = RunPlan.of(command, options, code, stack.outputs, os.environ)
        words = plan.words(stack.outputs)
        kind_of(plan.metadata, lines)  # refuses --since if there are no ranks
        if code.dry_run:
            present(plan, _show_plan, plan.as_json(stack.outputs), result.json_file)
            return Exit.OK
        api = stack.accepting_jobs()
        job_id = code.request_id or new_id("run")
        if not (code.request_id and _attached(api, job_id, plan)):
            try:
                _start(api, job_id, kept(words, record_of(stack.outputs, job_id, plan.metadata)), plan)
            except TakenError:
                # Another client was faster. Without the request's ID, the error says so.
                if not (code.request_id and _attached(api, job_id, plan)):
                    raise
            except KeyboardInterrupt:
                print(f"job {job_id} may have started: rdma-ray stop {job_id} ends it", file=sys.stderr)
                raise
        if code.detach:
            return _detached(api, job_id, result.json_file)
        return show_run(stack, api.job(job_id), lines, result.json_file)


def resolve(command: tuple[str, ...], options: RunOptions, found: Variables, outputs: Outputs) -> RunOptions:
    """Return the complete request of a run on this stack. WorkloadError names an option that does not fit it."""
    entry = entry_of(command, options.nodes, options.per_node)
    gang: dict[str, Any] = {"command": entry.command, "environment": found.plain}
    if entry.nodes is not None:
        per_node = entry.per_node or outputs.nodes.gpus_per_node or 1
        placed = GangOptions(nodes=entry.nodes, per_node=per_node).placed(outputs)
        gang |= placed.model_dump(include={"nodes", "per_node", "use_gpu", "elastic"})
        if options.evidence:
            raise WorkloadError("--evidence: the ranks of a run on GPUs always have it: leave --evidence out")
        layout = layout_of(options.sizes, *placed.world, (outputs.nodes.max, outputs.nodes.slots_per_node))
        if layout is not None:
            gang |= {kind: getattr(layout, kind) for kind in KINDS}
            gang |= {"command": layout.fill(entry.command), "environment": found.plain | layout.environment}
        if options.check:
            gang["hunt"] = request_of(*placed.world, options.wait_s, outputs)
    else:
        if options.check:
            raise WorkloadError("--check: without --nodes the command runs once on the head: add --nodes 2")
        given = {"--max-restarts": options.max_restarts, **{f"--{kind}": size for kind, size in options.sizes.items()}}
        for name, value in given.items():
            if value:
                raise WorkloadError(f"{name} {value}: without --nodes the command runs once on the head: add --nodes 1")
    if entry.nodes is not None or options.evidence:
        gang["transport"] = outputs.fabric.rdma
    return options.model_copy(update={"mode": entry.mode, "secrets": tuple(found.secrets), **gang})


def _run_here(
    stack: Connection,
    command: tuple[str, ...],
    options: RunOptions,
    code: CodeOptions,
    lines: LineOptions,
    result: ResultOptions,
) -> int:
    """Run the command in this process, which is an entry point, or its gang by a child process.

    Every node has the files: the image's, or those of a shared folder.
    """
    for given, name in ((code.detach, "--detach"), (code.request_id, "--request-id"), (code.name, "--name")):
        if given:
            raise WorkloadError(f"{name}: an entry point is the one job of its cluster, and ends it: leave {name} out")
    if code.pip or code.requirements:
        raise WorkloadError(
            "--pip, --requirements: an entry point uses the packages that its nodes have: add them to the image"
        )
    # A rendered command gets them from a Kubernetes Secret.
    own = os.environ if result.rendered is None else dict.fromkeys(code.secret, "the Secret's")
    plan = RunPlan.of(command, options, code, stack.outputs, own, uploads=False)
    kind = kind_of(plan.metadata, lines, output_of(result.json_file))
    folder = plan.uri.removeprefix(working_dir.EVERYWHERE)
    if kind.read is None and (result.json_file or plan.uri == folder):
        reason = "the command has no ranks, and so no result: leave it out, add --evidence, or"
        if not result.json_file:
            reason = "the command runs once, outside of Ray, which alone downloads it: name a folder, or"
        raise WorkloadError(f"{'--json' if result.json_file else f'--working-dir {plan.uri}'}: {reason} add --nodes 1")
    if code.dry_run:
        present(plan, _show_plan, plan.as_json(stack.outputs), result.json_file)
        return Exit.OK
    if result.rendered is not None:
        return Exit.OK
    if plan.uri != folder and not Path(folder).is_dir():
        raise WorkloadError(f"--working-dir {folder}: no such folder on this node: all nodes must have it")
    uri = None if code.working_dir == "." and has_working_dir() else plan.uri
    record = record_of(stack.outputs, job_id := new_id("run"), plan.metadata)
    if kind.read is None:
        found = driver_environment(JOB_ENVIRONMENT | plan.options.environment, uri)
        os.chdir(folder)
        return run_command(plan.options.command, found, dict(plan.secrets), record)
    here: dict[str, Any] = {"secrets_here": True}
    if plan.options.evidence:
        here |= {"folder": folder, "of_ray": JOB_CONFIG in os.environ}
    request = plan.options.model_copy(update=here).model_dump_json(exclude_defaults=True)
    ended = run_here(job_id, kind, request, {}, working_dir=uri, private=plan.secrets, record=record)
    return conclude(stack.outputs.ray.cluster, stack.outputs.machine, ended, kind, result.json_file)


def _start(api: JobsApi, job_id: str, words: list[str], plan: RunPlan) -> None:
    """Upload the code, submit the job, and send the secrets to its driver."""
    for note in plan.notes():
        print(note, file=sys.stderr)
    options = plan.options
    environment = {"RAY_JOB_STOP_WAIT_TIME_S": str(math.ceil(options.end_s) + STOP_MARGIN_S)}
    if options.mode == "driver":
        environment |= options.environment  # also for the driver's tasks and actors on other nodes
    runtime_env: dict[str, Any] = {
        "working_dir": upload_package(api, plan.archive) if plan.archive else plan.uri,
        "py_modules": [own_package(api)],
        "env_vars": JOB_ENVIRONMENT | environment,
    }
    if plan.packages:
        runtime_env["pip"] = requirements.environment(api, plan.packages)
    print(f"job {job_id} on {api.cluster}: {plan.folder or plan.uri}", file=sys.stderr)
    submit(api, job_id, words, runtime_env, {**plan.metadata, "request": plan.digest})
    if plan.key is not None:
        deliver(api, job_id, plan.key, plan.secrets)


def _attached(api: JobsApi, job_id: str, plan: RunPlan) -> bool:
    """Return whether a job with this ID exists. WorkloadError if it runs something else."""
    job = next((job for job in api.jobs() if job.id == job_id), None)
    if job is None:
        return False
    if job.metadata.get("request") != plan.digest:
        raise WorkloadError(
            f"--request-id {job_id}: a job with this ID already exists with a different command, options or code"
            f" ({job.status}): use another ID"
        )
    kept = ", with the secrets of the client that started it" if plan.secrets else ""
    print(f"job {job_id} exists ({job.status}): nothing is started{kept}", file=sys.stderr)
    return True


def _detached(api: JobsApi, job_id: str, json_file: str | None) -> int:
    print(f"job {job_id} runs: rdma-ray attach {job_id}, rdma-ray stop {job_id}", file=sys.stderr)
    if json_file:
        write_json({"schema": "rdma-ray/job/1", "cluster": api.cluster, **row_of(api.job(job_id))}, json_file)
    if json_file != "-":
        print(job_id)
    return Exit.OK


def _show_plan(plan: RunPlan, console: Console) -> None:
    options = plan.options
    where = "once, on the head"
    if options.nodes is not None:
        device = "a GPU" if options.use_gpu else "a CPU"
        where = f"{options.nodes} nodes with {options.per_node} ranks each, {device} per rank"
    facts = {
        "command": shlex.join(options.command),
        "runs": f"{where} ({options.mode})",
        "variables": ", ".join(sorted(options.environment)),
        "secrets": ", ".join(sorted(plan.secrets)),
        "packages": ", ".join(plan.packages),
        "upload" if plan.folder else "folder": str(plan.folder or plan.uri),
    }
    for name, value in facts.items():
        if value:
            say(console, f"{name:<10} {value}")
    if options.layout is not None:
        say(console, options.layout.table())
    for note in plan.notes():
        say(console, note)
