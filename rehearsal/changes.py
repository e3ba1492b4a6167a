"""`make changes`: the changes that people make to a stack, while its autoscaler has GPU nodes running.

Each change is previewed and applied to a copy of a stack that is up and whose nodes run: with protection on; if that is
refused, with protection off; and without a refresh. The simulated clouds know which updates replace nodes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.pins import EKS_NEXT, KUBERAY, RAY
from rehearsal.clouds.aws.tokens import ROLE
from rehearsal.clouds.gcp.references import CLUSTER
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.registry import drift, running_nodes
from rehearsal.engine.commands import CommandResult, Engine, EngineError
from rehearsal.engine.state import View
from rehearsal.engine.workspace import ROOT, Workspace, in_parallel
from rehearsal.fork_server import ForkServer
from rehearsal.report.labels import kind
from rehearsal.report.outcome import Change
from tools.recovery import UP

STACKS = ("gke", "eks")
NODES = 2
"""GPU nodes that run when a change is applied."""
DOCUMENT = ROOT / "docs" / "changes.md"
BEGIN, END = "<!-- make changes -->\n", "<!-- end -->\n"
JOBS = (identity.RAY_CLUSTER, identity.RAY_JOB, identity.JOB, identity.NAMESPACE)
"""Kinds whose deletion, also for a replacement, ends a job. KubeRay leaves the pods of a RayCluster that was updated as
they are (kuberay v1.6.2: raycluster_controller.go, shouldRecreatePodsForUpgrade)."""
PROTECTED = ("marked for protection", "rdma-ray:protect is true")
"""Messages of the engine and the program when they refuse a change because of `rdma-ray:protect`."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change that people make: settings ("nodes.max=6", or a provider's, "aws:defaultTags.tags.team=ml"), a line of
    the program (file, text, new text), or something in the cloud, alone or before. `first` are settings that the stack
    has besides those of its file; `possible` is whether it can be made without protection."""

    name: str
    stack: str
    first: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    line: tuple[str, str, str] | None = None
    event: Callable[[View], None] | None = None
    possible: bool = True

    @property
    def by(self) -> str:
        """Description of the change, for the table."""
        line = f"`{Path(self.line[0]).name}`: `{self.line[2]}`" if self.line is not None else ""
        setting = f"`{self.settings[0]}`" if self.settings else ""
        return ", ".join(filter(None, (line, setting))) or "`gcloud container clusters upgrade`"


def _next_minor(state: View) -> None:
    for type_, id_, live in list(state.all(CLUSTER)):
        state.put(type_, id_, {**live, "masterVersion": "1.36.4-gke.1200000"})


def _both(name: str, setting: str) -> tuple[Edit, ...]:
    return tuple(Edit(name=name, stack=stack, settings=(setting,)) for stack in STACKS)


PINS = "infra/catalog/pins.py"
NODE_IMAGE = (PINS, "{EKS}.8-20260930", "{EKS}.9-20261014")
OPERATOR = f'KUBERAY = Chart("kuberay-operator", "{KUBERAY.version}"'
EDITS = (
    *_both("raise the maximum", "nodes.max=6"),
    *_both("lower the maximum, not below what runs", "nodes.max=3"),
    *_both("lower the maximum below what runs", "nodes.max=1"),
    *_both("new image of Ray", f"ray.image=registry.example.com/ray:{RAY}-2"),
    Edit(name="new maximum run time", stack="gke", settings=("nodes.maxRunHours=24",)),
    *_both("a time limit of the workload", "nodes.maxHours=48"),
    *_both("add a bucket", "storage.bucket=my-training-data"),
    *_both("what audits require", "hardening=true"),
    Edit(name="nodes not close together", stack="gke", settings=("nodes.compact=false",)),
    Edit(name="another GPU driver", stack="gke", settings=("nodes.gpuDriver=default",)),
    Edit(name="one more authorized network", stack="gke", settings=("access.authorizedNetworks[0]=10.9.0.0/16",)),
    Edit(name="one more authorized network", stack="eks", settings=("access.authorizedNetworks[1]=198.51.100.7/32",)),
    Edit(
        name="one more administrator",
        stack="eks",
        settings=("access.administrators[0]=arn:aws:iam::123456789012:role/ops",),
        event=lambda state: state.put(ROLE, "ops", {"name": "ops"}),
    ),
    *(
        Edit(name="newer KubeRay", stack=stack, line=(PINS, OPERATOR, OPERATOR.replace(KUBERAY.version, "1.7.0")))
        for stack in STACKS
    ),
    Edit(name="newer minor version of Kubernetes", stack="gke", event=_next_minor),
    Edit(name="newer minor version of Kubernetes", stack="eks", settings=(f"cluster.version={EKS_NEXT}",)),
    Edit(name="larger boot disks", stack="gke", settings=("nodes.bootDiskGib=150",)),
    Edit(name="newer node image", stack="eks", line=NODE_IMAGE),
    Edit(
        name="newer node image, and a maximum below what runs",
        stack="eks",
        line=NODE_IMAGE,
        settings=("nodes.max=1",),
        possible=False,
    ),
    Edit(
        name="a larger shared folder",
        stack="eks",
        first=("storage.bucket=my-training-data", "storage.capacityGib=2400"),
        settings=("storage.capacityGib=4800",),
    ),
    Edit(
        name="a smaller shared folder",
        stack="eks",
        first=("storage.bucket=my-training-data", "storage.capacityGib=4800"),
        settings=("storage.capacityGib=2400",),
    ),
    Edit(name="another second zone", stack="eks", settings=("network.secondZone=us-east-2c",), possible=False),
    Edit(name="a tag for every resource", stack="eks", settings=("aws:defaultTags.tags.team=ml",)),
)


@dataclass(frozen=True)
class Up:
    """An `up`: its problem, or "" if it succeeded, whether protection was the reason, and the nodes that ended."""

    problem: str
    protected: bool
    gpu_nodes: int
    head_nodes: int
    job_deleted: bool

    @property
    def ends_job(self) -> bool:
        """Whether a running job ends."""
        return bool(self.gpu_nodes or self.head_nodes or self.job_deleted)

    def __str__(self) -> str:
        ended = [f"{self.gpu_nodes} GPU nodes end"] * bool(self.gpu_nodes)
        ended += ["the head's node is replaced"] * bool(self.head_nodes)
        job = "the job ends" if self.ends_job else "the job continues"
        said = "refused by `protect`" if self.protected else f"refused: {self.problem}" if self.problem else "done"
        return ", ".join((said, *ended, job))


@dataclass(frozen=True, kw_only=True)
class EditResult:
    """An edit with what its preview shows, its `up` with protection on, with protection off if that refused it, and
    without a refresh; `again` is what the next preview shows, or ""."""

    edit: Edit
    planned: str
    up: Up
    unprotected: Up | None
    stale: Up
    again: str

    @property
    def wrong(self) -> str:
        """What must not be."""
        if self.up.ends_job:
            return "the job ends although protect is true"
        if self.unprotected is not None and bool(self.unprotected.problem) is self.edit.possible:
            return self.unprotected.problem or "the change was made, but should have been refused"
        return self.again

    @property
    def row(self) -> str:
        """The line of the table."""
        off = str(self.unprotected) if self.unprotected else "–"
        cells = (self.edit.name, self.edit.stack, self.edit.by, self.planned, str(self.up), off, str(self.stale))
        return f"| {' | '.join(cells)} |"


class Drill:
    """Copies of stacks that are up, with running GPU nodes. `folder` has their workspaces."""

    def __init__(self, folder: Path, plugins: Path) -> None:
        self._folder, self._plugins = folder, plugins
        self._starts: dict[str, Workspace] = {}

    def prepare(self, stack: str) -> None:
        """Bring a stack up, and let its autoscaler add nodes."""
        self._starts[stack] = self.workspace(f"start-{stack}")
        engine = Engine.deployed(self._starts[stack], stack, ROOT / f"Pulumi.{stack}.yaml")
        for _ in range(NODES):
            with engine.cloud_state.transaction() as state:
                drift(state)

    def workspace(self, name: str) -> Workspace:
        """Return a workspace of the drill."""
        return Workspace(self._folder / name, self._plugins)

    def run(self, edit: Edit, workspace: Workspace) -> EditResult:
        """Apply an edit in copies of the stack."""
        project = self._project(edit, workspace)
        engine = self._copy(edit, workspace)
        before = _stack_file(engine).read_text()
        _apply(engine, edit, project)
        try:
            planned = _words(tuple(Change.of(engine.planned())))
        except EngineError as problem:
            planned = f"refused: {_refusal(problem.said.text)}"
        up, unprotected = _up(engine), None
        if up.protected:
            wanted = _stack_file(engine).read_text()
            # Like a user, turn protection off on the stack as it is, then apply the change.
            for text, program in ((before, ROOT), (wanted, project)):
                _stack_file(engine).write_text(text)
                workspace.use(program)
                engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
                unprotected = _up(engine)
        done = not (unprotected or up).problem
        preview = engine.preview() if done else CommandResult(0, "")
        again = "" if preview.ok else f"the next preview is not empty:\n{preview.text}"
        engine = self._copy(edit, workspace)
        _apply(engine, edit, project)
        # The worst case: otherwise the refusal of one node group may come before the update of another.
        stale = _up(engine, "--refresh=false", "--continue-on-error")
        return EditResult(edit=edit, planned=planned, up=up, unprotected=unprotected, stale=stale, again=again)

    def _copy(self, edit: Edit, workspace: Workspace) -> Engine:
        shutil.rmtree(workspace.folder, ignore_errors=True)
        shutil.copytree(self._starts[edit.stack].folder, workspace.folder)
        engine = Engine(workspace, edit.stack)
        if edit.first:
            _set(engine, edit.first)
            engine.must(*UP, stack=True)
        return engine

    def _project(self, edit: Edit, workspace: Workspace) -> Path:
        """Return the project with the edited line, or this one."""
        if edit.line is None:
            return ROOT
        name, text, new = edit.line
        place = workspace.folder.with_name(f"{workspace.folder.name} project")
        shutil.rmtree(place, ignore_errors=True)
        copy_program(place)
        source = (place / name).read_text()
        if source.count(text) != 1:
            raise ValueError(f"{name} does not contain {text} exactly once")
        (place / name).write_text(source.replace(text, new))
        return place


def copy_program(place: Path) -> None:
    """Copy this project without its tests, documentation and results to a new folder."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        top = {"tests", "results", "docs"} if Path(folder) == ROOT else set()  # a package may have such a name
        return {name for name in names if name.startswith(".") or name == "__pycache__" or name in top}

    shutil.copytree(ROOT, place, ignore=left_out)


def _stack_file(engine: Engine) -> Path:
    return engine.workspace.folder / f"Pulumi.{engine.stack}.yaml"


def _set(engine: Engine, settings: Iterable[str]) -> None:
    for setting in settings:
        key, _, value = setting.partition("=")
        engine.must("config", "set", "--path", key if ":" in key else f"rdma-ray:{key}", value, stack=True)


def _apply(engine: Engine, edit: Edit, project: Path) -> None:
    _set(engine, edit.settings)
    engine.workspace.use(project)
    if edit.event is not None:
        with engine.cloud_state.transaction() as state:
            edit.event(state)


def _up(engine: Engine, *arguments: str) -> Up:
    with engine.cloud_state.transaction() as state:
        before = running_nodes(state)
        state.set("recreated", {})
    said = engine.up(*arguments)
    with engine.cloud_state.transaction() as state:
        after, recreated = running_nodes(state), state.setting("recreated", {})
    ended = {True: 0, False: 0}
    for (type_, id_), count in before.items():
        lost = count if id_ in recreated else max(0, count - after.get((type_, id_), 0))
        ended[re.split("[:/]", id_)[-1] == "system"] += lost
    deleted = any(step.verb == "delete" and step.type in JOBS and step.outcome == "done" for step in engine.steps())
    protected = not said.ok and any(words in said.text for words in PROTECTED)
    return Up("" if said.ok else _refusal(said.text), protected, ended[False], ended[True], deleted)


def _refusal(text: str) -> str:
    """Return the first error of the engine's output, and of a hook's sentence the reason."""
    lines = [line.partition("error: ")[2].strip() for line in text.splitlines() if "error: " in line]
    error = next(filter(None, lines), text.strip())
    hook = re.search(r'before hook "[^"]+" failed: (.+?)(?:[;:] |$)', error)
    return hook[1] if hook else re.sub(r"^REHEARSAL: ", "", error)


def _words(changes: Iterable[Change]) -> str:
    """Return what a preview shows, by operation."""
    counts: dict[str, Counter[str]] = {}
    for change in sorted(changes, key=lambda one: (one.op, kind(one.type))):
        if not change.type.startswith("rdma-ray:"):
            counts.setdefault(change.op, Counter())[kind(change.type)] += 1
    words = {op: [f"{count} {name}" if count > 1 else name for name, count in of.items()] for op, of in counts.items()}
    return "; ".join(f"{op} {', '.join(names)}" for op, names in words.items()) or "nothing"


def table(results: Sequence[EditResult]) -> str:
    """Return the results as a table in Markdown."""
    head = "| change | stack | made by | the preview shows | `up` | `up` with `protect: false` | `up --refresh=false` |"
    return "\n".join((head, "|---|---|---|---|---|---|---|", *(one.row for one in results))) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run every edit, and write the table into the document; return 1 if a row is wrong."""
    parser = argparse.ArgumentParser(prog="make changes", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / ".rehearsal" / "changes")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.folder, ignore_errors=True)
    with ForkServer() as fork_server:
        drill = Drill(options.folder, fork_server.bin)
        for stack in STACKS:
            drill.prepare(stack)
        workspaces = [drill.workspace(f"worker-{number}") for number in range(options.workers)]
        results = in_parallel(EDITS, workspaces, drill.run, lambda _edit, done: print(done.row, flush=True))
    wrong = [f"{one.edit.name} on {one.edit.stack}: {one.wrong}" for one in results if one.wrong]
    print("\n".join(wrong))
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}{table(results)}{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
