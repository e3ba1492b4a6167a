"""Every fault at every step of `up` and `destroy`: does the next run put things right, and is nothing left behind?

A case starts from a copy of a prepared workspace, runs a command into a fault, does what `make up` or `make down` does
next, once, and compares ids in the simulated clouds and names in the state with those of a run without a fault.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, get_args

from rehearsal.clouds import faults
from rehearsal.clouds.faults import Fault, How
from rehearsal.engine import Engine, EngineError, Said
from rehearsal.scenario import recover
from rehearsal.workspace import ROOT, Workspace
from tools.aws_tags import UnclearError

Command = Literal["up", "destroy"]
COMMANDS: tuple[Command, ...] = get_args(Command)
Thing = tuple[str, str]
"""The type and id of something that exists in a cloud."""


@dataclass(frozen=True)
class Case:
    """One fault: `step` counts the changes that the engine asks for within `command`, from 1.

    With a `type` it strikes the first change of such a resource instead, whichever step that is.
    """

    command: Command
    step: int
    how: How
    type: str = ""

    def __str__(self) -> str:
        return f"{self.command} {self.type or f'step {self.step}'} {self.how}"

    @property
    def fault(self) -> Fault:
        """What is ordered in the world."""
        return Fault(self.how, type=self.type) if self.type else Fault(self.how, step=self.step)

    def again(self, stack: str) -> str:
        """The command line that runs this case alone."""
        where = f"--type {self.type}" if self.type else f"--step {self.step}"
        words = f"--stack {stack} --command {self.command} {where} --how {self.how}"
        return f".venv/bin/python -m rehearsal.faults {words}"


@dataclass(frozen=True)
class EngineState:
    """What the engine knows: every URN, what it has in a cloud, and how many operations it never saw the end of."""

    urns: frozenset[str]
    things: frozenset[Thing]
    pending: int

    @classmethod
    def of(cls, workspace: Workspace, stack: str) -> EngineState:
        """Read the state file: for ids and names that is the same as an export, and needs no engine."""
        file = workspace.folder / "state" / ".pulumi" / "stacks" / "rdma-ray" / f"{stack}.json"
        latest: dict[str, Any] = json.loads(file.read_text())["checkpoint"].get("latest") or {}
        resources = latest.get("resources") or []
        things = {(each["type"], each["id"]) for each in resources if each.get("id")}
        urns = frozenset(each["urn"] for each in resources)
        return cls(urns, frozenset(things), len(latest.get("pending_operations") or []))


@dataclass(frozen=True)
class Start:
    """Where the cases of a command begin, and what they must end with.

    `steps` is how many changes the undisturbed command asks for. `made_by_others` is what exists afterwards without
    being in the state, such as the definitions that a Helm chart brings; none of it is an orphan.
    """

    workspace: Workspace
    steps: int
    engine_state: EngineState
    objects: frozenset[Thing]

    @property
    def made_by_others(self) -> frozenset[Thing]:
        """What no state ever has."""
        return self.objects - self.engine_state.things


@dataclass(frozen=True)
class Result:
    """How a case ended: what it struck ("create gcp:compute/network:Network cluster"), and what is wrong, if anything.

    `orphans` exist in a cloud and the state does not know them.
    """

    case: Case
    struck: str
    wrong: tuple[str, ...]
    orphans: tuple[Thing, ...]
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether the next run put everything right."""
        return not self.wrong and not self.orphans


class PreparationError(RuntimeError):
    """The undisturbed commands do not do what the cases will be compared with."""


class Sweep:
    """Cases on one stack; `folder` is where their workspaces are, `plugins` what the engine finds its plugins in."""

    def __init__(self, stack: str, folder: Path, plugins: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._plugins = plugins
        self.starts: dict[Command, Start] = {}

    def prepare(self) -> None:
        """Make what the cases start from, by commands without a fault. Raises `PreparationError` or `EngineError`."""
        shutil.rmtree(self._folder, ignore_errors=True)
        empty, made = self._workspace("start-up"), self._workspace("start-destroy")
        empty.begin(self._stack, ROOT / f"Pulumi.{self._stack}.yaml")
        Engine(empty, self._stack).init()
        shutil.copytree(empty.folder, made.folder)
        engine = Engine(made, self._stack)
        self._must(engine.up(), "up")
        self.starts["up"] = Start(empty, _asked(engine), EngineState.of(made, self._stack), _things(engine))
        engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
        self._must(engine.up(), "up without protection")
        trial = self._workspace("trial")
        shutil.copytree(made.folder, trial.folder)
        engine = Engine(trial, self._stack)
        self._must(engine.destroy(), "destroy")
        after = EngineState.of(trial, self._stack)
        if after.urns or _things(engine):
            raise PreparationError(f"destroy without a fault leaves {[*after.urns, *_things(engine)]}")
        self.starts["destroy"] = Start(made, _asked(engine), after, frozenset())
        shutil.rmtree(trial.folder)

    def cases(self, commands: Sequence[Command] = COMMANDS, hows: Sequence[How] = faults.HOWS) -> Iterator[Case]:
        """Every case of these commands and kinds of fault."""
        for command in commands:
            for step in range(1, self.starts[command].steps + 1):
                for how in hows:
                    yield Case(command, step, how)

    def run(self, cases: Sequence[Case], workers: int, tell: Callable[[Result], None]) -> list[Result]:
        """Run cases, `workers` at a time; `tell` hears of each as it ends. Workspaces of failed cases stay."""
        free: SimpleQueue[str] = SimpleQueue()
        for number in range(workers):
            free.put(f"worker-{number}")
        results = []

        def one(case: Case) -> Result:
            name = free.get()
            try:
                return self._run(case, self._workspace(name))
            finally:
                free.put(name)

        with ThreadPoolExecutor(workers) as pool:
            try:
                for done in as_completed([pool.submit(one, case) for case in cases]):
                    results.append(done.result())
                    tell(results[-1])
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return sorted(results, key=lambda result: list(cases).index(result.case))

    def _run(self, case: Case, workspace: Workspace) -> Result:
        began = time.monotonic()
        start = self.starts[case.command]
        shutil.rmtree(workspace.folder, ignore_errors=True)
        shutil.copytree(start.workspace.folder, workspace.folder)
        engine = Engine(workspace, self._stack)
        command = engine.up if case.command == "up" else engine.destroy
        with engine.cloud_state.transaction() as state:
            faults.order(state, [case.fault])
        struck, wrong = _struck(engine, case, command())
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
        engine_state, objects_now = EngineState.of(workspace, self._stack), _things(engine)
        wrong += _differences(engine_state, objects_now, start)
        orphans = tuple(sorted(objects_now - engine_state.things - start.made_by_others))
        result = Result(case, struck, tuple(wrong), orphans, time.monotonic() - began)
        if not result.converged:
            shutil.copytree(workspace.folder, self._folder / f"failed {case}".replace("/", "-"), dirs_exist_ok=True)
        return result

    def _workspace(self, name: str) -> Workspace:
        return Workspace(self._folder / name, self._plugins)

    def _must(self, said: Said, what: str) -> None:
        if not said.ok:
            raise PreparationError(f"{what} failed without a fault:\n{said.text}")


def _struck(engine: Engine, case: Case, said: Said) -> tuple[str, list[str]]:
    """What a fault struck, and what was wrong with that; afterwards no fault is waiting."""
    command = engine.command
    with engine.cloud_state.transaction() as state:
        waiting = faults.pending(state)
        steps = state.steps(command)
        faults.order(state, [])
    if waiting:
        return "nothing", [f"the fault never struck: {len(steps)} changes were asked for"]
    step = next(step for step in steps if case.fault.matches(step.type, step.verb, step.number))
    return f"{step.verb} {step.type} {step.urn.rpartition('::')[2]}", (
        [f"{case.command} went through although a fault struck it"] if said.ok else []
    )


def _differences(engine_state: EngineState, objects: frozenset[Thing], start: Start) -> Iterator[str]:
    """How a state and a objects differ from those of a run without a fault; orphans are told apart from this."""
    if engine_state.pending:
        yield f"{engine_state.pending} operations are still pending"
    for urn in sorted(start.engine_state.urns - engine_state.urns):
        yield f"not in the state: {urn}"
    for urn in sorted(engine_state.urns - start.engine_state.urns):
        yield f"in the state, and should not be: {urn}"
    for type_, id_ in sorted(start.objects - objects):
        yield f"does not exist: {type_} {id_}"
    for type_, id_ in sorted(objects - start.objects):
        yield f"exists, and should not: {type_} {id_}"


def _things(engine: Engine) -> frozenset[Thing]:
    with engine.cloud_state.transaction() as state:
        return frozenset((type_, id_) for type_, id_, _ in state.all())


def _asked(engine: Engine) -> int:
    """How many changes the last command asked for."""
    command = engine.command
    with engine.cloud_state.transaction() as state:
        return len(state.steps(command))


def _last_words(said: Said) -> str:
    """The engine's errors in one line."""
    errors = [line.strip() for line in (said.text or "").splitlines() if "error:" in line]
    return " | ".join(errors[:3]) or f"exit status {said.status}"
