"""What a rehearsal does with a stack file, phase by phase, until one of them fails.

up → empty preview → empty preview after the clouds have changed what they change → (a change, previewed and made) →
destroy refused while the stack is protected → destroy → nothing is left. Depth `cluster` has a real Kubernetes behind
it, and more phases: workers are wanted, come and go, and the objects are deleted one by one. Depth `pods` has real
nodes, on which a job of Ray's makes the workers come; nothing of it may be left on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.settings import from_stack_file
from rehearsal import depths
from rehearsal.clouds import faults
from rehearsal.clouds.faults import Fault
from rehearsal.clouds.registry import drift
from rehearsal.depths import Depth
from rehearsal.engine import PARALLEL, Engine, Said
from rehearsal.graph import Graph
from rehearsal.invariants.by_target import INVARIANTS
from rehearsal.invariants.invariant import Stack, violations
from rehearsal.report.outcome import Change, Operation, Outcome, Phase
from rehearsal.workspace import ROOT, Workspace
from tools.recovery import Place, mend_state_folder, settle

if TYPE_CHECKING:
    from rehearsal.cluster.phases import ClusterPhases

_SIMULATED = (
    "The clouds are simulated: they refuse what their rules say and compute what their kinds say, nothing more."
)
_PREDICTED = "Times of the real thing are predictions from published or estimated durations (rehearsal/durations.py)."
NOTES = (
    _SIMULATED,
    "Depth quick: the Kubernetes API is in memory. No operator, scheduler or autoscaler runs, and no pod.",
    _PREDICTED,
)
_OPERATIONS: Mapping[str, Operation] = {
    "create": "create",
    "update": "update",
    "delete": "delete",
    "replace": "replace",
}


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to rehearse.

    file: the stack file. before: the folder of another version of the project (a git worktree), whose program and
    stack file make the stack first, if the way from that version to this one is to be rehearsed. changes: settings to
    change after the first `up` ("nodes.max=8"). faults: what goes wrong in it. depth: what is behind the `kubernetes`
    provider.
    """

    stack: str
    file: Path
    before: Path | None = None
    changes: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    depth: Depth = "quick"

    @property
    def has_change(self) -> bool:
        """Whether there is a second state to go to."""
        return self.before is not None or bool(self.changes)


class NoCloudError(ValueError):
    """The stack's target is not simulated."""


class PhaseFailedError(Exception):
    """A phase did not go as it must; the rest would say nothing."""


class Scenario:
    """One rehearsal. `tell` is given a line for each phase, as it begins (without an end) and when it is over.

    `happens` is given what happens in the cluster meanwhile, line by line (depth `cluster`).
    """

    def __init__(
        self,
        order: Order,
        workspace: Workspace,
        tell: Callable[[str, Phase | None], None],
        happens: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._order = order
        self._workspace = workspace
        self._tell = tell
        self._happens = happens
        self._cluster_phases: ClusterPhases | None = None
        self._ends: tuple[type[Exception], ...] = (PhaseFailedError,)
        self._phases: list[Phase] = []
        self._changes: tuple[Change, ...] = ()
        self._leftovers: tuple[str, ...] = ()
        self._graph = Graph({})
        self._before: Graph | None = None

    def run(self) -> Outcome:
        """Rehearse. Raises `SettingsError`, `NoCloudError`, `NotRunError` or `DepthError` before anything starts."""
        settings = self._settings = from_stack_file(self._order.file)
        if settings.target not in INVARIANTS:
            raise NoCloudError(
                f"target: {settings.target} has no simulated cloud; those that have: {', '.join(INVARIANTS)}"
            )
        began = time.monotonic()
        depths.must_run(self._order.depth)
        before = self._order.before
        self._workspace.begin(self._order.stack, before / self._order.file.name if before else self._order.file)
        if before is not None:
            self._workspace.use(before)
        self.engine = Engine(self._workspace, self._order.stack)
        with ExitStack() as behind:
            self._begin(behind)
            with suppress(PhaseFailedError):
                self._phases_of_it()
            timeline, notes = self._told()
        if self._order.depth == "pods":
            with suppress(PhaseFailedError):
                self._machine_is_clean()
        return Outcome(
            stack=self._order.stack,
            target=settings.target,
            seconds=time.monotonic() - began,
            parallel=PARALLEL,
            phases=tuple(self._phases),
            graph=self._graph,
            graph_before=self._before,
            leftovers=self._leftovers,
            changes=self._changes,
            timeline=timeline,
            notes=notes,
        )

    def _begin(self, behind: ExitStack) -> None:
        if self._order.depth == "quick":
            self.engine.init()
            return
        with self._phase("a Kubernetes control plane starts") as phase:
            self._setup = depths.DepthSetup(self._order.depth, self._workspace, self._settings, self._happens)
            self._cluster_phases = self._setup.begin(behind, self.engine)
            self._ends = (PhaseFailedError, *self._setup.ends)
            phase.said = ", ".join(self._cluster_phases.environment.plane.running())

    def _phases_of_it(self) -> None:
        self._make()
        if self._order.before is None:
            # Another version may have promised less.
            self._promise()
        if self._cluster_phases is not None:
            with self._phase("workers are wanted, and come") as phase:
                phase.said = self._cluster_phases.come(self._graph)
        self._look()
        if self._cluster_phases is not None:
            with self._phase("workers are not wanted any longer, and go") as phase:
                phase.said = self._cluster_phases.go(self._graph)
        if self._order.has_change:
            self._change()
        if from_stack_file(self._stack_file).protect:
            self._protected()
        if self._cluster_phases is not None and self._order.depth == "cluster":
            with self._phase("objects in the cluster are deleted one by one") as phase:
                phase.said = self._cluster_phases.go_one_by_one(self.engine, self._graph)
            with self._phase("up again") as phase:
                self._must(self.engine.up(), phase)
                phase.said = self._made()
        self._destroy()

    def _machine_is_clean(self) -> None:
        with self._phase("the nodes are off, and this machine is as it was") as phase:
            if left := self._setup.traces():
                raise phase.failed("\n".join(left))
            phase.said = "no process, mount, link, route, network namespace, nftables table, cgroup or file is left"

    def _told(self) -> tuple[tuple[tuple[float, str], ...], tuple[str, ...]]:
        """The time line and the notes."""
        if self._cluster_phases is None:
            return (), NOTES
        return self._cluster_phases.environment.timeline.moments, (
            _SIMULATED,
            *self._cluster_phases.environment.notes,
            _PREDICTED,
        )

    def _make(self) -> None:
        if self._order.faults:
            self._fail_and_recover()
        else:
            with self._phase("up") as phase:
                self._must(self.engine.up(), phase)
                phase.said = self._made()
        self._graph = Graph.from_deployment(self.engine.deployment())

    def _fail_and_recover(self) -> None:
        with self.engine.cloud_state.transaction() as state:
            faults.order(state, list(self._order.faults))
        with self._phase("up, with faults") as phase:
            said = self.engine.up()
            with self.engine.cloud_state.transaction() as state:
                waiting = faults.pending(state)
                faults.order(state, [])
            if waiting:
                raise phase.failed(f"{len(waiting)} of the ordered faults never struck: no request was like them")
            phase.said = (
                f"failed as ordered: {_first_refusal(said.text)}" if not said.ok else "went through all the same"
            )
        with self._phase("up again") as phase:
            settled = recover(self.engine)
            self._must(self.engine.up(), phase)
            phase.said = self._made() + (f"; {settled} interrupted creates settled first" if settled else "")

    def _promise(self) -> None:
        with self._phase("promises hold") as phase:
            invariants = INVARIANTS[self._settings.target]
            wrong = violations(invariants, Stack(self._graph, self._settings))
            if wrong:
                raise phase.failed("\n".join(wrong))
            phase.said = f"{len(invariants)} promises, each checked on the graph that the engine registered"

    def _look(self) -> None:
        with self._phase("preview is empty") as phase:
            self._must(self.engine.preview(), phase)
            phase.said = "no changes"
        with self._phase("preview is empty after the clouds changed things") as phase:
            with self.engine.cloud_state.transaction() as state:
                touched = drift(state)
            self._must(self.engine.preview("--refresh"), phase)
            phase.said = f"{touched} objects changed by themselves, no false difference"

    def _change(self) -> None:
        made_from = self._stack_file.read_text()
        if self._order.before is not None:
            self._stack_file.write_text(self._order.file.read_text())
            self._workspace.use(ROOT)
        with self._phase("change") as phase:
            for change in self._order.changes:
                key, _, value = change.partition("=")
                self.engine.must("config", "set", "--path", f"rdma-ray:{key}", value, stack=True)
            self._changes = tuple(_changes(self.engine.planned()))
            counts = {op: sum(change.op == op for change in self._changes) for op in _OPERATIONS.values()}
            phase.said = ", ".join(f"{count} to {op}" for op, count in counts.items() if count) or "no changes"
            phase.said += self._unchecked()
            refused = bool(counts["replace"] or counts["delete"]) and not self.engine.run("preview", stack=True).ok
            if refused:
                phase.said += "; refused while rdma-ray:protect is true"
        if refused:
            # As a person would: protection off for the stack as it is, and then the change.
            wanted = self._stack_file.read_text()
            self._stack_file.write_text(made_from)
            self._unprotect()
            self._stack_file.write_text(wanted)
            self.engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
        with self._phase("up, changed") as phase:
            self._must(self.engine.up(), phase)
            phase.said = self._made()
        with self._phase("preview is empty again") as phase:
            self._must(self.engine.preview(), phase)
            phase.said = "no changes"
        self._before, self._graph = self._graph, Graph.from_deployment(self.engine.deployment())
        if self._order.before is not None:
            self._promise()

    def _unchecked(self) -> str:
        """Kinds whose creation the API server could not try out, or nothing (depth cluster)."""
        with self.engine.cloud_state.transaction() as state:
            types = state.setting("unchecked", [])
            state.set("unchecked", [])
        kinds = ", ".join(type_.rpartition(":")[2] for type_ in types)
        return f"; not tried out, since kind or namespace are still to come: {kinds}" if kinds else ""

    def _protected(self) -> None:
        with self._phase("destroy is refused while protected") as phase:
            before = self._things()
            said = self.engine.destroy()
            if said.ok:
                raise phase.failed("destroy went through although protect is true")
            if self._things() != before:
                raise phase.failed("destroy was refused only after it had deleted something")
            phase.said = "refused, nothing touched"
        self._unprotect()

    def _unprotect(self) -> None:
        with self._phase("protection off") as phase:
            self.engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
            self._must(self.engine.up(), phase)
            phase.said = "rdma-ray:protect is false"

    @property
    def _stack_file(self) -> Path:
        """The rehearsal's own copy."""
        return self._workspace.folder / f"Pulumi.{self._order.stack}.yaml"

    def _destroy(self) -> None:
        with self._phase("destroy") as phase:
            self._must(self.engine.destroy(), phase)
            folder = [
                f"in the state: {resource['urn']}" for resource in self.engine.deployment().get("resources") or []
            ]
            self._leftovers = (*self._things(), *folder)
            phase.said = f"{len(self._leftovers)} things left"

    def _things(self) -> list[str]:
        with self.engine.cloud_state.transaction() as state:
            things = [f"{type_} {id_}" for type_, id_, _ in state.all()]
        return things if self._cluster_phases is None else [*things, *self._cluster_phases.left()]

    def _made(self) -> str:
        with self.engine.cloud_state.transaction() as state:
            steps = state.steps(state.setting("command"))
        return f"{sum(step.outcome == 'done' for step in steps)} requests done"

    def _must(self, said: Said, phase: _Open) -> None:
        if not said.ok:
            raise phase.failed(_why(said.text))

    @contextmanager
    def _phase(self, name: str) -> Iterator[_Open]:
        self._tell(name, None)
        began = time.monotonic()
        phase = _Open()
        ok = False
        try:
            yield phase
            ok = True
        except self._ends as problem:
            phase.said = str(problem)
            raise PhaseFailedError(phase.said) from problem
        finally:
            self._phases.append(Phase(name=name, ok=ok, seconds=time.monotonic() - began, said=phase.said))
            self._tell(name, self._phases[-1])


class _Open:
    """A phase under way; `said` is what it will have to say."""

    said = ""

    def failed(self, why: str) -> PhaseFailedError:
        """The error that ends the rehearsal."""
        self.said = why
        return PhaseFailedError(why)


def recover(engine: Engine) -> int:
    """What `make up` does for a stack whose engine died: mend its files, release its lock, settle its creates."""
    folder = engine.workspace.folder / "state"
    mend_state_folder(folder)
    if any((folder / ".pulumi" / "locks").rglob("*.json")):
        engine.must("cancel", "--yes", engine.stack)
    workspace = engine.workspace
    return settle(
        engine.exported(),
        Place.of(engine.stack, workspace.folder / f"Pulumi.{engine.stack}.yaml", workspace.environment()),
        lambda *arguments: engine.must(*arguments, stack=True),
    )


def _changes(steps: list[dict[str, Any]]) -> Iterator[Change]:
    """The engine's steps as changes; a replacement is several steps, and told once."""
    for step in steps:
        op = _OPERATIONS.get(step["op"])
        if op is None:
            continue
        type_, name = step["urn"].split("::")[-2:]
        details = step.get("detailedDiff") or {}
        reasons = tuple(sorted(path for path, how in details.items() if "replace" in how["kind"]))
        yield Change(
            urn=step["urn"], name=name, type=type_.rpartition("$")[2], op=op, reasons=reasons if op == "replace" else ()
        )


def _first_refusal(text: str) -> str:
    found = [line.strip() for line in text.splitlines() if "REHEARSAL:" in line]
    return found[0].partition("REHEARSAL: ")[2] if found else "the engine died"


def _why(text: str) -> str:
    """The part of the engine's output that says what went wrong."""
    _, _, diagnostics = text.partition("Diagnostics:")
    return (diagnostics or text).strip()
