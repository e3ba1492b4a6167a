"""Copy of the project in its own folder, with a space in its name, in which tests run the real engine.

A copy has its own state and its own cluster folder, so a test never uses the developer's stack.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from infra.local.folder import ClusterFolder
from infra.local.processes import MARK as NODE_MARK
from infra.outputs import Outputs
from rehearsal.changes import copy_program

PROJECT = Path(__file__).resolve().parents[1]
# Every process of a test inherits it, whatever its process group.
MARK = "RDMA_RAY_TEST"
T = TypeVar("T")


class Clone:
    """Copy of the project; `said` collects the output of its commands."""

    def __init__(self, parent: Path) -> None:
        self.path = parent / "a clone"
        copy_program(self.path)
        (self.path / ".venv").symlink_to(PROJECT / ".venv")
        self.mark = str(self.path)
        self.said = ""
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "RAY_", "RDMA_", "MAKE"))
        } | {MARK: self.mark}
        # The engine, from the cache of the project's own setup.
        self.run("python3", "tools/setup.py", "run")

    def run(self, *command: str, check: bool = True, timeout_s: float = 600) -> str:
        """Run a command in the copy; return its output, standard error included."""
        process = self.start(*command)
        said, _ = process.communicate(timeout=timeout_s)
        self.said += said
        assert not check or process.returncode == 0, f"{command} exited with {process.returncode}:\n{said}"
        return said

    def pulumi(self, *arguments: str, stack: str = "local", check: bool = True) -> str:
        """Run the engine on a stack."""
        return self.run("bin/pulumi", *arguments, "--stack", stack, "--non-interactive", check=check)

    def up(self, stack: str = "local") -> str:
        """Run `pulumi up` without prompts."""
        return self.pulumi("up", "--yes", "--skip-preview", stack=stack)

    def destroy(self, stack: str = "local") -> str:
        """Run `pulumi destroy` without prompts."""
        return self.pulumi("destroy", "--yes", "--skip-preview", stack=stack)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command as a terminal would: in the foreground process group of its own session."""
        return subprocess.Popen(
            command,
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def resources(self, stack: str = "local") -> dict[str, dict[str, Any]]:
        """Return the outputs of the stack's own resources by name, with `id` and without encrypted ones."""
        shown = self._read("stack", "export", "--stack", stack)
        return {
            # Encrypted with a new nonce at every update, so their text cannot be compared.
            resource["urn"].rpartition("::")[2]: {
                key: value for key, value in resource.get("outputs", {}).items() if not isinstance(value, dict)
            }
            | {"id": resource["id"]}
            for resource in json.loads(shown)["deployment"].get("resources") or []
            if resource.get("custom") and not resource["type"].startswith("pulumi:")
        }

    def outputs(self, stack: str = "local") -> Outputs:
        """Return the stack's outputs, the token included; not added to `said`."""
        return Outputs.model_validate_json(self._read("stack", "output", "--json", "--show-secrets", "--stack", stack))

    def _read(self, *arguments: str) -> str:
        """Return the engine's standard output, which may contain secrets and is not added to `said`."""
        command = ["bin/pulumi", *arguments]
        done = subprocess.run(command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def folder(self, stack: str = "local") -> ClusterFolder:
        """The folder of the stack's nodes."""
        return ClusterFolder.of(self.path, stack)

    def processes(self, *names: str) -> list[psutil.Process]:
        """Return the running processes of this copy; with `names`, only those."""
        return [
            process
            for process in psutil.process_iter(["name"])
            if (not names or process.info["name"] in names) and _environment(process).get(MARK) == self.mark
        ]

    def engine_processes(self) -> list[psutil.Process]:
        """Return those that are no part of a node: the engine, its language host and its provider."""
        return [process for process in self.processes() if NODE_MARK not in _environment(process)]

    def remove(self) -> None:
        """End the processes that a failed test left, by process id."""
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for file in self.path.glob("Pulumi.*.yaml"):
            self.folder(file.name.split(".")[1]).remove()


def interrupt(process: subprocess.Popen[str]) -> None:
    """Send SIGINT to the whole foreground process group, as Ctrl-C does."""
    os.killpg(process.pid, signal.SIGINT)


def executable(file: Path, text: str) -> Path:
    """Write a program, with its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def wait_until(condition: Callable[[], T], what: str | Callable[[], object] = "", timeout_s: float = 300) -> T:
    """Wait until a condition is true, and return its value; fail with `what` on timeout."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what() if callable(what) else what}"
        time.sleep(0.05)
    return found


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
    except (psutil.Error, OSError):
        return {}
