"""The real Pulumi engine in a rehearsal's workspace: commands, their output, and the state."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.engine.state import State, Step, View
from rehearsal.engine.workspace import ROOT, Workspace
from tools.recovery import DESTROY, UP, Place, mend_state_folder, settle

PULUMI = ROOT / ".tools" / "bin" / "pulumi"
PARALLEL = 16
"""Parallel operations. The engine's default depends on the number of cores, but a rehearsal must not."""


@dataclass(frozen=True)
class CommandResult:
    """Result of a finished command: exit status (negative: the signal that ended it), output."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.status == 0

    @property
    def why(self) -> str:
        """The diagnostics of the engine."""
        return (self.text.partition("Diagnostics:")[2] or self.text).strip()

    @property
    def first_refusal(self) -> str:
        """The first line of a simulated cloud that refuses."""
        refusals = (line.strip() for line in self.text.splitlines() if "REHEARSAL:" in line)
        return next(refusals, "REHEARSAL: the engine died").partition("REHEARSAL: ")[2]


class EngineError(RuntimeError):
    """A command that must succeed failed."""

    def __init__(self, command: str, said: CommandResult) -> None:
        super().__init__(f"REHEARSAL: pulumi {command} failed with exit status {said.status}:\n{said.text}")
        self.said = said


class Engine:
    """Runs the engine on one stack of a workspace. The cloud state records the steps of each command."""

    def __init__(self, workspace: Workspace, stack: str) -> None:
        self.workspace = workspace
        self.stack = stack
        self.cloud_state = State(workspace.cloud_state)
        self._logs = workspace.folder / "logs"
        self._logs.mkdir(exist_ok=True)
        self._count = 0

    @classmethod
    def deployed(
        cls, workspace: Workspace, stack: str, file: Path, prepare: Callable[[View], object] = lambda _state: None
    ) -> Engine:
        """Preview a stack file and bring it up in a new workspace, with what `prepare` adds first to the clouds.

        Raises `EngineError`.
        """
        workspace.begin(stack, file)
        engine = cls(workspace, stack)
        with engine.cloud_state.transaction() as state:
            prepare(state)
        engine.init()
        engine.first_preview()
        said = engine.up()
        if not said.ok:
            raise EngineError("up", said)
        return engine

    def init(self) -> None:
        """Create the stack."""
        self.must("stack", "init", self.stack)

    def up(self, *arguments: str) -> CommandResult:
        """Run `pulumi up`, as `make up` does."""
        return self.run(*UP, *arguments, "--parallel", str(PARALLEL), stack=True)

    def first_preview(self) -> int:
        """Run the preview with which every user begins, of a stack without resources; return the number of creates.

        It is the only command in which outputs of the cloud are unknown. `up` runs without a preview.

        Raises:
            EngineError: the preview failed, or would do anything else.
        """
        said = self.must("preview", stack=True)
        planned = re.findall(r"^ +\S+ (\d+) (to \w+|errored|changes?)", said.text, re.MULTILINE)
        if [what for _, what in planned] != ["to create"]:
            raise EngineError("preview of the empty stack", said)
        return int(planned[0][0])

    def preview(self, *arguments: str) -> CommandResult:
        """Run `pulumi preview`. It fails if there are changes."""
        return self.run("preview", "--expect-no-changes", "--diff", *arguments, stack=True)

    def destroy(self) -> CommandResult:
        """Run `pulumi destroy`, as `make down` does."""
        return self.run(*DESTROY, "--parallel", str(PARALLEL), stack=True)

    def planned(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the steps of the next `up` without protection, with which the engine would stop early.

        Raises:
            EngineError: the preview failed; the text has its errors.
        """
        said = self.run("preview", "--json", "--ignore-protect", *arguments, stack=True)
        if "{" not in said.text:
            raise EngineError("preview", said)
        plan, _ = json.JSONDecoder().raw_decode(said.text[said.text.index("{") :])
        if not said.ok:
            # What a program writes to stderr, such as its problems, has the second severity.
            messages = [each for each in plan.get("diagnostics", ()) if each["severity"] in ("error", "info#err")]
            errors = "".join(each["message"].replace("\n\n", "\n") for each in messages)
            raise EngineError("preview", CommandResult(said.status, errors))
        steps: list[dict[str, Any]] = plan["steps"]
        return steps

    def deployment(self) -> dict[str, Any]:
        """Return the state with encrypted secrets."""
        deployment: dict[str, Any] = self.exported()["deployment"]
        return deployment

    def exported(self) -> dict[str, Any]:
        """Return the state in the format of `stack import`: the deployment and the version of its format."""
        exported: dict[str, Any] = json.loads(self.must("stack", "export", stack=True).text)
        return exported

    def must(self, *arguments: str, stack: bool = False) -> CommandResult:
        """Run a command that must succeed. Raises `EngineError`."""
        said = self.run(*arguments, stack=stack)
        if not said.ok:
            raise EngineError(" ".join(arguments[:2]), said)
        return said

    def run(self, *arguments: str, stack: bool = False) -> CommandResult:
        """Run a command to its end. The workspace keeps its output."""
        self._count += 1
        name = f"{self._count:03} {arguments[0]}"
        with self.cloud_state.transaction() as state:
            state.set("command", name)
        # The workspace has the plugins. Otherwise a real language host would look for the real ones.
        here = (
            ["--skip-plugin-pre-install"] if arguments[0] in ("up", "preview", "refresh", "destroy", "import") else []
        )
        command = [str(PULUMI), *arguments, *here, "--non-interactive", *(["--stack", self.stack] if stack else [])]
        # JSON output must not contain warnings.
        apart = arguments[0] == "stack" or "--json" in arguments
        done = subprocess.run(
            command,
            cwd=self.workspace.folder,
            env=self.workspace.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            text=True,
        )
        everything = done.stdout + (done.stderr or "")
        (self._logs / f"{name}.txt").write_text(everything)
        return CommandResult(done.returncode, everything if done.returncode else done.stdout)

    def steps(self) -> list[Step]:
        """Return the changes that the last command requested, in order."""
        with self.cloud_state.transaction() as state:
            return state.steps(state.setting("command", ""))

    def objects(self) -> frozenset[tuple[str, str]]:
        """Return every object in the simulated clouds, as (type, id)."""
        with self.cloud_state.transaction() as state:
            return frozenset((type_, id_) for type_, id_, _ in state.all())


def recover(engine: Engine) -> int:
    """Recover a stack after its engine died, as `make up` does: repair state files, cancel the lock, settle creates."""
    mend_state_folder(folder := engine.workspace.folder / "state")
    if any((folder / ".pulumi" / "locks").rglob("*.json")):
        engine.must("cancel", "--yes", engine.stack)
    return settle(
        Place.of(engine.stack, engine.workspace.folder / f"Pulumi.{engine.stack}.yaml", engine.workspace.environment()),
        lambda *arguments: engine.must(*arguments, stack=True),
        lambda *arguments: engine.must(*arguments, stack=True).text,
    )
