"""Sweep of faults over every step of `up` and `destroy`: check that the next run repairs the stack without orphans.

A case starts from a copy of a prepared workspace, runs a command with an injected fault, runs the recovery of `make up`
or `make down` once, and compares the ids in the simulated clouds and the names in the state with those of a run without
a fault.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rehearsal.engine import faults
from rehearsal.engine.commands import CommandResult, Engine, EngineError, recover
from rehearsal.engine.faults import Fault, How
from rehearsal.engine.workspace import ROOT, Workspace, in_parallel
from tools.recovery import UnclearError

Command = Literal["up", "destroy"]
COMMANDS: tuple[Command, ...] = get_args(Command)
Thing = tuple[str, str]
"""Type and id of an object in a cloud."""


@dataclass(frozen=True)
class Case:
    """One fault. `step` counts the changes within `command` from 1.

    With a `type`, the fault hits the first change of such a resource, at whichever step.
    """

    command: Command
    step: int
    how: How
    type: str = ""

    def __str__(self) -> str:
        return f"{self.command} {self.type or f'step {self.step}'} {self.how}"

    @property
    def fault(self) -> Fault:
        """The fault to inject."""
        return Fault(self.how, type=self.type) if self.type else Fault(self.how, step=self.step)

    def again(self, stack: str) -> str:
        """The command line that runs only this case."""
        where = f"--type {self.type}" if self.type else f"--step {self.step}"
        words = f"--stack {stack} --command {self.command} {where} --how {self.how}"
        return f".venv/bin/python -m rehearsal.faults {words}"


@dataclass(frozen=True)
class EngineState:
    """The engine's state: every URN, the cloud objects, and the number of pending operations."""

    urns: frozenset[str]
    things: frozenset[Thing]
    pending: int

    @classmethod
    def of(cls, workspace: Workspace, stack: str) -> EngineState:
        """Read ids and names from the state file, which needs no engine, unlike an export."""
        file = workspace.folder / "state" / ".pulumi" / "stacks" / "rdma-ray" / f"{stack}.json"
        latest: dict[str, Any] = json.loads(file.read_text())["checkpoint"].get("latest") or {}
        resources = latest.get("resources") or []
        things = {(each["type"], each["id"]) for each in resources if each.get("id")}
        urns = frozenset(each["urn"] for each in resources)
        return cls(urns, frozenset(things), len(latest.get("pending_operations") or []))


@dataclass(frozen=True)
class Start:
    """Initial state of a command's cases, and their expected final state.

    `steps` is the number of changes without a fault. `made_by_others` are objects outside the state, such as the CRDs
    that a Helm chart installs; they are not orphans.
    """

    workspace: Workspace
    steps: int
    engine_state: EngineState
    objects: frozenset[Thing]

    @property
    def made_by_others(self) -> frozenset[Thing]:
        """The objects that are never in the state."""
        return self.objects - self.engine_state.things


@dataclass(frozen=True)
class TrialResult:
    """Result of a case: the request that the fault hit ("create gcp:compute/network:Network cluster"), and the
    problems.

    `orphans` exist in a cloud and are not in the state.
    """

    case: Case
    injected: str
    wrong: tuple[str, ...]
    orphans: tuple[Thing, ...]
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether the next run repaired everything."""
        return not self.wrong and not self.orphans


class PreparationError(RuntimeError):
    """The commands do not reach the expected state without a fault."""


class Sweep:
    """Cases of one stack. `folder` has their workspaces, `plugins` the executables for the engine."""

    def __init__(self, stack: str, folder: Path, plugins: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._plugins = plugins
        self.starts: dict[Command, Start] = {}

    def prepare(self) -> None:
        """Create the starting points by commands without a fault. Raises `PreparationError` or `EngineError`."""
        shutil.rmtree(self._folder, ignore_errors=True)
        empty, made = self._workspace("start-up"), self._workspace("start-destroy")
        empty.begin(self._stack, ROOT / f"Pulumi.{self._stack}.yaml")
        Engine(empty, self._stack).init()
        shutil.copytree(empty.folder, made.folder)
        engine = Engine(made, self._stack)
        self._must(engine.up(), "up")
        self.starts["up"] = Start(empty, len(engine.steps()), EngineState.of(made, self._stack), engine.objects())
        engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
        self._must(engine.up(), "up without protection")
        trial = self._workspace("trial")
        shutil.copytree(made.folder, trial.folder)
        engine = Engine(trial, self._stack)
        self._must(engine.destroy(), "destroy")
        after = EngineState.of(trial, self._stack)
        if after.urns or engine.objects():
            raise PreparationError(f"destroy without a fault leaves {[*after.urns, *engine.objects()]}")
        self.starts["destroy"] = Start(made, len(engine.steps()), after, frozenset())
        shutil.rmtree(trial.folder)

    def cases(self, commands: Sequence[Command] = COMMANDS, hows: Sequence[How] = faults.HOWS) -> Iterator[Case]:
        """Return every case of these commands and kinds of fault."""
        for command in commands:
            for step in range(1, self.starts[command].steps + 1):
                for how in hows:
                    yield Case(command, step, how)

    def run(self, cases: Sequence[Case], workers: int, report: Callable[[TrialResult], None]) -> list[TrialResult]:
        """Run cases, `workers` at a time. `report` receives each result. Workspaces of failed cases stay."""
        workspaces = [self._workspace(f"worker-{number}") for number in range(workers)]
        return in_parallel(cases, workspaces, self._run, lambda _case, result: report(result))

    def _run(self, case: Case, workspace: Workspace) -> TrialResult:
        began = time.monotonic()
        start = self.starts[case.command]
        shutil.rmtree(workspace.folder, ignore_errors=True)
        shutil.copytree(start.workspace.folder, workspace.folder)
        engine = Engine(workspace, self._stack)
        command = engine.up if case.command == "up" else engine.destroy
        injected, wrong = _injected(engine, case, *faults.inject_into(engine.cloud_state, [case.fault], command))
        try:
            recover(engine)
            said = command()
            if not said.ok:
                wrong.append(f"the next {case.command} failed: {_last_words(said)}")
            elif case.command == "up" and not (said := engine.preview()).ok:
                wrong.append(f"the preview afterwards is not empty: {_last_words(said)}")
        except EngineError as problem:
            wrong.append(f"recovery failed: {_last_words(problem.said)}")
        except UnclearError as unclear:
            wrong.append(f"recovery stopped: {unclear}")
        engine_state, objects_now = EngineState.of(workspace, self._stack), engine.objects()
        wrong += _differences(engine_state, objects_now, start)
        orphans = tuple(sorted(objects_now - engine_state.things - start.made_by_others))
        result = TrialResult(case, injected, tuple(wrong), orphans, time.monotonic() - began)
        if not result.converged:
            shutil.copytree(workspace.folder, self._folder / f"failed {case}".replace("/", "-"), dirs_exist_ok=True)
        return result

    def _workspace(self, name: str) -> Workspace:
        return Workspace(self._folder / name, self._plugins)

    def _must(self, said: CommandResult, what: str) -> None:
        if not said.ok:
            raise PreparationError(f"{what} failed without a fault:\n{said.text}")


def _injected(engine: Engine, case: Case, said: CommandResult, waiting: list[Fault]) -> tuple[str, list[str]]:
    """Return the request that the fault hit and the problem with it, if any."""
    steps = engine.steps()
    if waiting:
        return "nothing", [f"the fault was not injected: {len(steps)} changes were requested"]
    step = next(step for step in steps if case.fault.matches(step.type, step.verb, step.number))
    return f"{step.verb} {step.type} {step.urn.rpartition('::')[2]}", (
        [f"{case.command} succeeded although a fault was injected"] if said.ok else []
    )


def _differences(engine_state: EngineState, objects: frozenset[Thing], start: Start) -> Iterator[str]:
    """Yield the differences of state and cloud objects from a run without a fault, except orphans."""
    if engine_state.pending:
        yield f"{engine_state.pending} operations are still pending"
    for urn in sorted(start.engine_state.urns - engine_state.urns):
        yield f"not in the state: {urn}"
    for urn in sorted(engine_state.urns - start.engine_state.urns):
        yield f"unexpected in the state: {urn}"
    for type_, id_ in sorted(start.objects - objects):
        yield f"does not exist: {type_} {id_}"
    for type_, id_ in sorted(objects - start.objects):
        yield f"exists unexpectedly: {type_} {id_}"


def _last_words(said: CommandResult) -> str:
    """Return the engine's errors in one line."""
    errors = [line.strip() for line in (said.text or "").splitlines() if "error:" in line]
    return " | ".join(errors[:3]) or f"exit status {said.status}"


def table(results: Sequence[TrialResult]) -> str:
    """Return a Markdown table of the results by command and kind of fault, and every case that did not converge."""
    groups: dict[tuple[str, str], list[TrialResult]] = {}
    for result in results:
        groups.setdefault((result.case.command, result.case.how), []).append(result)
    groups |= {("all", ""): list(results)} if results else {}
    lines = ["| command | fault | cases | resources hit | converged | orphans | seconds per case |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for (command, how), group in groups.items():
        hit, converged = len({result.injected for result in group}), sum(result.converged for result in group)
        orphans, mean = sum(len(result.orphans) for result in group), sum(one.seconds for one in group) / len(group)
        lines.append(f"| {command} | {how} | {len(group)} | {hit} | {converged} | {orphans} | {mean:.1f} |")
    failed = [f"- {result.case} ({result.injected}): {why(result)}" for result in results if not result.converged]
    return "\n".join([*lines, "", *(["Not converged:", "", *failed] if failed else ["Every case converged."])]) + "\n"


def why(result: TrialResult) -> str:
    """Return the problems of a case in one line."""
    reasons = [*result.wrong, *(f"orphan: {type_} {id_}" for type_, id_ in result.orphans)]
    return "; ".join(reasons[:4]) + (f"; {len(reasons) - 4} more" if len(reasons) > 4 else "")
