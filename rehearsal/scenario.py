"""Phases of a rehearsal of a stack file, until a phase fails.

preview of the empty stack → up → empty preview → empty preview after drift → (a change, previewed and applied) →
refused destroy while the stack is protected → destroy → nothing left. Depth `cluster` uses a real Kubernetes API server
and adds phases: the workers scale up and down, and the objects are deleted one by one. Depth `pods` has real nodes, on
which a Ray job scales the workers up; the rehearsal must leave nothing on this machine.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.settings import CloudSettings, ClusterSettings, KubernetesSettings, from_stack_file
from rehearsal import depths, users_cluster
from rehearsal.clouds.kubernetes import schemas
from rehearsal.clouds.registry import drift, running_nodes
from rehearsal.depths import Depth
from rehearsal.engine import faults
from rehearsal.engine.commands import CommandResult, Engine, EngineError, recover
from rehearsal.engine.faults import Fault, FaultError
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.graph import Graph
from rehearsal.invariants.invariant import Stack
from rehearsal.invariants.violations import INVARIANTS, violations
from rehearsal.report.outcome import OPERATIONS, Change, Outcome, Phase

if TYPE_CHECKING:
    from rehearsal.cluster.phases import ClusterPhases

_SIMULATED = "The clouds are simulated: they apply their rules and compute outputs, nothing more."
_PUBLISHED = "Times of real clouds come from public logs (rehearsal/report/durations.py); other resources have none."
_QUICK = "Depth quick: the Kubernetes API is in memory. No operator, scheduler, autoscaler or pod runs."


@dataclass(frozen=True, kw_only=True)
class RehearsalRequest:
    """Request for a rehearsal.

    Args:
        stack: name of the stack.
        file: the stack file.
        before: folder of another version of the project (a git worktree). Its program and stack file create the stack
            first, to rehearse the upgrade from that version to this one.
        changes: settings to change after the first `up` ("nodes.max=8").
        faults: faults to inject: of a create or a step into the first `up`, of an update into that of the changes, of a
            delete into the first command that matches.
        depth: environment of the `kubernetes` provider.
    """

    stack: str
    file: Path
    before: Path | None = None
    changes: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    depth: Depth = "quick"

    @property
    def has_change(self) -> bool:
        """Whether the rehearsal changes the stack after the first `up`."""
        return self.before is not None or bool(self.changes)


class NoCloudError(ValueError):
    """The stack's target is not simulated."""


class PhaseFailedError(Exception):
    """A phase failed; the remaining phases would prove nothing."""


class Scenario:
    """One rehearsal.

    Args:
        request: the request.
        workspace: folder of the rehearsal.
        on_phase: receives the name of each phase, with None when it starts and with the result when it ends.
        on_event: receives one line per event in the cluster (depth `cluster`).
    """

    def __init__(
        self,
        request: RehearsalRequest,
        workspace: Workspace,
        on_phase: Callable[[str, Phase | None], None],
        on_event: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._request = request
        self._workspace = workspace
        self._on_phase = on_phase
        self._on_event = on_event
        self._cluster_phases: ClusterPhases | None = None
        self._faults = list(request.faults)
        self._ends: tuple[type[Exception], ...] = (PhaseFailedError, EngineError)
        self._phases: list[Phase] = []
        self._changes: tuple[Change, ...] = ()
        self._cost: tuple[float | None, float | None] = (None, None)
        self._leftovers: tuple[str, ...] = ()
        self._users: users_cluster.Users = {}
        self._graph = Graph({})
        self._before: Graph | None = None
        self._unchecked_fields: str | None = None

    def run(self) -> Outcome:
        """Run the rehearsal.

        Raises:
            SettingsError, NoCloudError, NotRunError, DepthError, FaultError: nothing has started.
        """
        if any(fault.verb == "update" for fault in self._faults) and not self._request.has_change:
            raise FaultError("--fault: nothing is updated; add --change SETTING=VALUE, whose `up` the fault is for")
        settings = self._settings = from_stack_file(self._request.file)
        if not isinstance(settings, ClusterSettings):
            raise NoCloudError(f"target: {settings.target} is not simulated; those that are: gke, eks, kubernetes")
        began = time.monotonic()
        depths.must_run(self._request.depth)
        before, file = self._request.before, self._request.file
        self._workspace.begin(self._request.stack, before / file.name if before else file)
        if before:
            self._workspace.use(before)
        self.engine = Engine(self._workspace, self._request.stack)
        with ExitStack() as resources:
            self._begin(resources)
            with suppress(PhaseFailedError):
                self._run_phases()
            timeline, notes = self._timeline_and_notes()
        if self._cluster_phases is not None and self._cluster_phases.traces is not None:
            with suppress(PhaseFailedError):
                self._machine_is_clean(self._cluster_phases.traces)
        return Outcome(
            stack=self._request.stack,
            target=settings.target,
            seconds=time.monotonic() - began,
            phases=tuple(self._phases),
            graph=self._graph,
            graph_before=self._before,
            leftovers=self._leftovers,
            changes=self._changes,
            cost=self._cost,
            timeline=timeline,
            notes=notes,
        )

    def _begin(self, resources: ExitStack) -> None:
        if self._request.depth == "quick":
            # Before the engine starts, since it may download the CRDs.
            self._unchecked_fields = schemas.unchecked()
            self._prepare()
            self.engine.init()
            return
        with self._phase("start a Kubernetes control plane") as phase:
            request = self._request
            self._cluster_phases = depths.begin(request.depth, resources, self.engine, self._settings, self._on_event)
            self._ends += self._cluster_phases.ends
            if not isinstance(self._settings, KubernetesSettings):
                self._prepare()
            self._cluster_phases.put(
                live for (type_, _), live in self._users.items() if live and "kubernetes:" in type_
            )
            phase.said = ", ".join(self._cluster_phases.environment.plane.running())

    def _prepare(self) -> None:
        """Add what the stack file names to the simulated cluster of the user."""
        with self.engine.cloud_state.transaction() as state:
            self._users = {**users_cluster.prepare(state, from_stack_file(self._stack_file)), **self._users}

    def _run_phases(self) -> None:
        self._make()
        if self._request.before is None:
            # Invariants may be newer than the other version.
            self._check_invariants()
        if self._cluster_phases is not None:
            with self._phase("workers scale up") as phase:
                phase.said = self._cluster_phases.scale_up(self._graph)
        self._preview_phases()
        if self._cluster_phases is not None:
            with self._phase("workers scale down") as phase:
                phase.said = self._cluster_phases.scale_down(self._graph)
        if self._request.has_change:
            self._change()
        if from_stack_file(self._stack_file).protect:
            self._protected()
        if self._cluster_phases is not None and self._request.depth == "cluster":
            with self._phase("objects in the cluster are deleted one by one") as phase:
                phase.said = self._cluster_phases.delete_one_by_one(self.engine, self._graph)
            with self._phase("up again") as phase:
                self._must(self.engine.up(), phase)
                phase.said = self._requests_done()
        self._destroy()

    def _machine_is_clean(self, traces: Callable[[], list[str]]) -> None:
        with self._phase("nodes are stopped, nothing is left on this machine") as phase:
            if left := traces():
                raise phase.failed("\n".join(left))
            phase.said = "no process, mount, link, route, network namespace, nftables table, cgroup or file is left"

    def _timeline_and_notes(self) -> tuple[tuple[tuple[float, str], ...], tuple[str, ...]]:
        """Return the timeline and the notes."""
        if self._cluster_phases is None:
            return (), tuple(filter(None, (_SIMULATED, _QUICK, _PUBLISHED, self._unchecked_fields)))
        environment = self._cluster_phases.environment
        return environment.timeline.moments, (_SIMULATED, *environment.notes, _PUBLISHED)

    def _make(self) -> None:
        with self._phase("preview of the empty stack") as phase:
            phase.said = f"{self.engine.first_preview()} resources to create"
        self._command("up", self.engine.up, "create")
        deployment = self.engine.deployment()
        self._graph = Graph.from_deployment(deployment)
        root = next(each for each in deployment["resources"] if each["type"] == "pulumi:pulumi:Stack")
        self._cost = ((root["outputs"].get("cost") or {}).get("most"),) * 2  # None of an older version

    def _command(
        self,
        name: str,
        command: Callable[[], CommandResult],
        *verbs: str,
        finished: Callable[[_RunningPhase], str] | None = None,
    ) -> None:
        """Run a command, and again after its faults. `verbs` are those of its faults; `finished` checks and reports."""
        report = finished or (lambda _: self._requests_done())
        due = [fault for fault in self._faults if fault.verb in verbs or (name == "up" and fault.verb == "*")]
        with self._phase(f"{name}, with faults" if due else name) as phase:
            said, waiting = faults.inject_into(self.engine.cloud_state, due, command)
            self._faults = [fault for fault in self._faults if fault not in due or fault in waiting]
            # Every rehearsal ends with `destroy`, which deletes everything.
            if lost := [fault for fault in waiting if fault.verb != "delete" or name == "destroy"]:
                raise phase.failed(f"{len(lost)} faults were not injected: no request matched")
            if len(waiting) == len(due):
                self._must(said, phase)
                phase.said = report(phase)
                return
            phase.said = f"failed as injected: {said.first_refusal}" if not said.ok else "succeeded nevertheless"
        with self._phase(f"{name} again") as phase:
            settled = recover(self.engine)
            self._must(command(), phase)
            phase.said = report(phase) + (f"; {settled} interrupted creates settled first" if settled else "")

    def _check_invariants(self) -> None:
        with self._phase("invariants hold") as phase:
            # The stack file is the current one: a change may have needed protection off.
            if wrong := violations(Stack(self._graph, from_stack_file(self._stack_file))):
                raise phase.failed("\n".join(wrong))
            phase.said = f"{len(INVARIANTS)} invariants checked on the graph that the engine registered"

    def _preview_phases(self) -> None:
        with self._phase("preview is empty") as phase:
            self._must(self.engine.preview(), phase)
            phase.said = "no changes"
        with self._phase("preview is empty after drift") as phase:
            with self.engine.cloud_state.transaction() as state:
                if changed := [*users_cluster.changed(state, self._users)]:
                    raise phase.failed("\n".join(changed))
                touched = drift(state)
                self._users = users_cluster.now(state, self._users)
            self._must(self.engine.preview(), phase)
            phase.said = f"{touched} objects drifted, no false difference"

    def _change(self) -> None:
        previous_text = self._stack_file.read_text()
        if self._request.before is not None:
            self._stack_file.write_text(self._request.file.read_text())
            self._workspace.use(ROOT)
        with self._phase("change") as phase:
            for change in self._request.changes:
                key, _, value = change.partition("=")
                self.engine.must("config", "set", "--path", f"rdma-ray:{key}", value, stack=True)
            if self._cluster_phases is None:
                self._prepare()
            if isinstance(settings := from_stack_file(self._stack_file), CloudSettings):
                self._cost = (self._cost[0], settings.cost.most)
            self._changes = tuple(Change.of(self.engine.planned()))
            counts = {op: sum(change.op == op for change in self._changes) for op in OPERATIONS}
            phase.said = ", ".join(f"{count} to {op}" for op, count in counts.items() if count) or "no changes"
            phase.said += self._unchecked()
            refused = any(change.ends for change in self._changes) and not self.engine.run("preview", stack=True).ok
            # The program refuses these when it updates the group.
            if refused := refused or any(change.recreates for change in self._changes):
                phase.said += "; refused while rdma-ray:protect is true"
        if refused:
            # Like a user, turn protection off on the current stack, then apply the change.
            wanted = self._stack_file.read_text()
            self._stack_file.write_text(previous_text)
            self._unprotect()
            self._stack_file.write_text(wanted)
            self.engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
        before = self._nodes()

        def none_drained(phase: _RunningPhase) -> str:
            now, replaced = self._nodes(), {change.type for change in self._changes if change.ends}
            ended = [
                f"{group}: {count} → {now[type_, group]}"
                for (type_, group), count in before.items()
                if count > now[type_, group] and type_ not in replaced
            ]
            if ended:
                raise phase.failed(f"running nodes were drained: {', '.join(ended)}")
            return self._requests_done()

        self._command("up, changed", self.engine.up, "update", "delete", finished=none_drained)
        with self._phase("preview is empty again") as phase:
            # It refreshes: an update may have changed more than it was sent.
            self._must(self.engine.preview(), phase)
            phase.said = "no changes"
        self._before, self._graph = self._graph, Graph.from_deployment(self.engine.deployment())
        if self._request.before is not None:
            self._check_invariants()

    def _nodes(self) -> dict[tuple[str, str], int]:
        """Return the number of running nodes of each node group, by type and id."""
        with self.engine.cloud_state.transaction() as state:
            return defaultdict(int, running_nodes(state))

    def _unchecked(self) -> str:
        """Return the kinds that the API server could not dry-run, as a clause of a message (depth `cluster`)."""
        with self.engine.cloud_state.transaction() as state:
            types = state.setting("unchecked", [])
            state.set("unchecked", [])
        kinds = ", ".join(type_.rpartition(":")[2] for type_ in types)
        return f"; not dry-run, because kind or namespace do not exist yet: {kinds}" if kinds else ""

    def _protected(self) -> None:
        with self._phase("destroy is refused while protected") as phase:
            before = self._objects()
            said = self.engine.destroy()
            if said.ok:
                raise phase.failed("destroy succeeded although protect is true")
            if self._objects() != before:
                raise phase.failed("destroy deleted objects before it was refused")
            phase.said = "refused, nothing changed"
        self._unprotect()

    def _unprotect(self) -> None:
        with self._phase("protection off") as phase:
            self.engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
            self._must(self.engine.up(), phase)
            phase.said = "rdma-ray:protect is false"

    @property
    def _stack_file(self) -> Path:
        """The workspace's copy of the stack file."""
        return self._workspace.folder / f"Pulumi.{self._request.stack}.yaml"

    def _destroy(self) -> None:
        def leftovers(_phase: _RunningPhase) -> str:
            left = self.engine.deployment().get("resources") or []
            with self.engine.cloud_state.transaction() as state:
                changed = [*users_cluster.changed(state, self._users)]
            self._leftovers = (*self._objects(), *(f"in the state: {one['urn']}" for one in left), *changed)
            return f"{len(self._leftovers)} objects left"

        self._command("destroy", self.engine.destroy, "delete", finished=leftovers)

    def _objects(self) -> list[str]:
        things = [f"{type_} {id_}" for type_, id_ in sorted(self.engine.objects() - self._users.keys())]
        if self._cluster_phases is None:
            return things
        # The API server has the namespaces; the simulated Helm makes one in the state if it finds none there.
        return [*(each for each in things if ":Namespace " not in each), *self._cluster_phases.left()]

    def _requests_done(self) -> str:
        return f"{sum(step.outcome == 'done' for step in self.engine.steps())} requests done"

    def _must(self, said: CommandResult, phase: _RunningPhase) -> None:
        if not said.ok:
            raise phase.failed(said.why)

    @contextmanager
    def _phase(self, name: str) -> Iterator[_RunningPhase]:
        self._on_phase(name, None)
        began = time.monotonic()
        phase, ok = _RunningPhase(), False
        try:
            yield phase
            ok = True
        except self._ends as problem:
            phase.said = problem.said.why if isinstance(problem, EngineError) else str(problem)
            raise PhaseFailedError(phase.said) from problem
        finally:
            self._phases.append(Phase(name=name, ok=ok, seconds=time.monotonic() - began, said=phase.said))
            self._on_phase(name, self._phases[-1])


class _RunningPhase:
    """A running phase. `said` is its message."""

    said = ""

    def failed(self, why: str) -> PhaseFailedError:
        """Set the message and return the error that ends the rehearsal."""
        self.said = why
        return PhaseFailedError(why)
