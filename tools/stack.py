"""Bring a stack up and prove it, show what would change, take it down: `make up`, `make preview`, `make down`.

Ctrl-C at any moment leaves things as they were before: what this run brought up is taken down again; a cluster that
was up already stays.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from infra.local.folder import ClusterFolder
from infra.problems import SettingsError
from infra.settings import from_stack_file
from tools.aws_tags import UnclearError
from tools.recovery import Place, mend_state_folder, settle
from tools.summary import Phase, print_summary, setup_phases

ROOT = Path(__file__).resolve().parents[1]
PULUMI = str(ROOT / "bin" / "pulumi")
RDMA_RAY = str(ROOT / "bin" / "rdma-ray")
# The engine finishes the operation that it is in before it stops; the slowest is the start of a node.
_STOP_TIMEOUT_S = 150.0
# A cloud's slowest is a cluster or a node pool, and the engine's own limit for those is below this.
_CLOUD_STOP_TIMEOUT_S = 7200.0


class Interrupted(BaseException):
    """Ctrl-C, SIGTERM, or the terminal went away. Not an Exception: nothing may swallow it."""


class CommandFailedError(RuntimeError):
    """A step failed; its own message stands above."""

    def __init__(self, step: str, status: int) -> None:
        super().__init__(f"{step} failed with exit status {status}")
        self.status = status


def up(stack: str, changes: list[str]) -> None:
    """Bring `stack` up with `changes` ("nodes.count=3"); a local one is benchmarked, trained on and summed up.

    Raises:
        CommandFailedError: a step failed. The cluster stays up, so that one can look at it.
    """
    select(stack)
    release_lock_of_dead_engine(stack)
    change_settings(stack, changes)
    if is_local(stack):
        up_local(stack)
    else:
        up_cloud(stack)


def up_cloud(stack: str) -> None:
    """Bring a cloud stack up, after settling what an engine that died was creating.

    Nothing is benchmarked: that takes GPUs, which come when a job asks for them and cost from then on. An interruption
    leaves what was made: the next run goes on from there.
    """
    settle_pending_creates(stack)
    arguments = ("up", "--yes", "--skip-preview", "--suppress-outputs", "--stack", stack)
    try:
        pulumi(*arguments, patience_s=_CLOUD_STOP_TIMEOUT_S)
    except Interrupted:
        print(
            f"\nInterrupted. What was made stays and may cost. Go on: make up STACK={stack}; or make down STACK={stack}"
        )
        raise
    settings = from_stack_file(stack_file(stack))
    nodes = (
        f"{settings.nodes.min} GPU nodes stay up" if settings.nodes.min else "GPU nodes come when a job asks for them"
    )
    print(f"\nStack {stack} is up; {nodes}. How to get in: docs/{settings.target}.md")


def settle_pending_creates(stack: str) -> None:
    """Find out what a killed engine had created and not written down; the state is right afterwards."""
    try:
        settled = settle(
            read("stack", "export", "--stack", stack),
            Place.of(stack, stack_file(stack)),
            lambda *arguments: pulumi(*arguments, "--stack", stack),
        )
    except UnclearError as unclear:
        sys.exit(f"\n{unclear}")
    if settled:
        print(f"{settled} resources that an interrupted run was creating are accounted for.")


def up_local(stack: str) -> None:
    """Bring a local stack up, run the benchmark and the training on it, print a summary."""
    results = ROOT / "results" / stack
    results.mkdir(parents=True, exist_ok=True)
    was_up = has_resources(stack)
    phases = setup_phases(ROOT)
    try:
        with phase(phases, "cluster"):
            # Refreshed first: a node that died since the last time is made anew.
            pulumi("up", "--yes", "--skip-preview", "--refresh", "--suppress-outputs", "--stack", stack)
        with phase(phases, "benchmark"):
            run(RDMA_RAY, "bench", "nccl", "--stack", stack, "--out", str(results / "nccl"))
        with phase(phases, "training"):
            run(RDMA_RAY, "train", "digits", "--stack", stack, "--json", str(results / "digits.json"))
    except Interrupted:
        if was_up:
            print(f"\nInterrupted. The cluster was up before and stays up; take it down with: make down STACK={stack}")
        else:
            print("\nInterrupted. Taking down what this run brought up; this cannot be interrupted …", flush=True)
            take_down(stack)
        raise
    print_summary(stack, outputs(stack), phases, results)


def select(stack: str) -> None:
    """Make `stack` the current one, and make it if there is none yet; its stack file is checked first."""
    _check(stack)
    mend_state_folder(ROOT / ".pulumi" / "state")
    pulumi("stack", "select", "--create", "--stack", stack, quiet=True)


def change_settings(stack: str, changes: list[str]) -> None:
    """Write changes ("nodes.count=3") into the stack file; if the result has a problem, the file stays as it was."""
    file = stack_file(stack)
    before = file.read_text()
    try:
        for change in changes:
            key, equals, value = change.partition("=")
            if not equals:
                sys.exit(f'SET={change}: write SETTING=VALUE, as in SET="nodes.count=3 nodes.cpus=1"')
            pulumi("config", "set", "--stack", stack, "--path", f"rdma-ray:{key}", value, quiet=True)
        _check(stack)
    except BaseException:
        file.write_text(before)
        raise


def preview(stack: str) -> None:
    """Show what `up` would do."""
    select(stack)
    pulumi("preview", "--diff", "--stack", stack)


def down(stack: str) -> None:
    """Destroy the stack's resources; its configuration and history stay."""
    select(stack)
    if from_stack_file(stack_file(stack)).protect and has_resources(stack):
        sys.exit(
            f"rdma-ray:protect is true, so stack {stack} is not taken down. To take it down:\n"
            f'  make up STACK={stack} SET="protect=false"\n  make down STACK={stack}'
        )
    take_down(stack)
    what = "process, no resource and no file of the cluster" if is_local(stack) else "resource of the stack"
    print(f"Stack {stack} is down: no {what} is left.")


def take_down(stack: str) -> None:
    """Destroy, whatever state an interrupted run left."""
    release_lock_of_dead_engine(stack)
    if is_local(stack):
        pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)
        # What a killed engine had started and not yet written down.
        ClusterFolder.of(ROOT, stack).remove()
    else:
        settle_pending_creates(stack)
        pulumi("destroy", "--yes", "--skip-preview", "--stack", stack, patience_s=_CLOUD_STOP_TIMEOUT_S)


def is_local(stack: str) -> bool:
    """Whether the stack lives on this machine."""
    return from_stack_file(stack_file(stack)).target == "local"


def release_lock_of_dead_engine(stack: str) -> None:
    """A killed engine leaves its lock behind. The lock of a running one stays: somebody is at work on the stack."""
    locks = ROOT / ".pulumi" / "state" / ".pulumi" / "locks" / "organization" / "rdma-ray" / stack
    holders = [json.loads(file.read_text()) for file in locks.glob("*.json")]
    here = socket.gethostname()
    if holders and not any(holder["hostname"] != here or psutil.pid_exists(holder["pid"]) for holder in holders):
        pulumi("cancel", "--yes", "--stack", stack, quiet=True)


def has_resources(stack: str) -> bool:
    """Whether the stack has anything of its own now; the stack itself and providers do not count."""
    deployment = read("stack", "export", "--stack", stack)["deployment"]
    return any(
        resource.get("custom") and not resource["type"].startswith("pulumi:")
        for resource in deployment.get("resources") or []
    )


def outputs(stack: str) -> dict[str, Any]:
    """The stack's outputs, secrets masked."""
    return read("stack", "output", "--json", "--stack", stack)


def read(*arguments: str) -> dict[str, Any]:
    """What the engine prints as JSON.

    Raises:
        CommandFailedError: it failed; its message has been shown.
    """
    done = subprocess.run([PULUMI, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise CommandFailedError(" ".join(["pulumi", *arguments[:2]]), done.returncode)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def pulumi(*arguments: str, quiet: bool = False, patience_s: float = _STOP_TIMEOUT_S) -> None:
    """Run the engine; see `run`."""
    run(PULUMI, *arguments, "--non-interactive", quiet=quiet, patience_s=patience_s)


def run(*command: str, quiet: bool = False, patience_s: float = _STOP_TIMEOUT_S) -> None:
    """Run a command in a process group of its own, so that Ctrl-C reaches it once, and through us.

    Interrupted, it has `patience_s` seconds to end by itself.

    Raises:
        CommandFailedError: it failed. Its output has been shown, even if `quiet`.
        Interrupted: we were interrupted; the command was, too, and has ended.
    """
    output = subprocess.PIPE if quiet else None
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if quiet else None,
        start_new_session=True,
        text=True,
    )
    try:
        text, _ = child.communicate()
    except BaseException:
        _interrupt(child, patience_s)
        raise
    if child.returncode:
        if text:
            print(text, end="")
        raise CommandFailedError(" ".join([Path(command[0]).name, *command[1:3]]), child.returncode)


def _interrupt(child: subprocess.Popen[str], patience_s: float) -> None:
    """Ask the command to stop, and make it stop if it does not."""
    for how, timeout_s in ((signal.SIGINT, patience_s), (signal.SIGTERM, 10.0)):
        if child.poll() is None:
            child.send_signal(how)
            try:
                child.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                continue
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextmanager
def phase(phases: list[Phase], name: str) -> Iterator[None]:
    """Announce a phase and note how long it took."""
    print(f"\n== {name} ==", flush=True)
    began = time.monotonic()
    yield
    phases.append(Phase(name, time.monotonic() - began))


def stack_file(stack: str) -> Path:
    """Where the engine looks for the stack's settings."""
    return ROOT / f"Pulumi.{stack}.yaml"


def _check(stack: str) -> None:
    """Refuse a stack without a file, and report the file's problems before the engine starts."""
    file = stack_file(stack)
    if not file.exists():
        known = ", ".join(sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml")))
        sys.exit(f"STACK={stack}: there is no Pulumi.{stack}.yaml. Stacks with a file: {known}")
    try:
        from_stack_file(file)
    except SettingsError as problems:
        sys.exit(f"\n{problems}")


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Parse the command line and run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/stack.py", description=__doc__)
    parser.add_argument("command", choices=["up", "preview", "down"])
    parser.add_argument("--stack", default="local")
    parser.add_argument("--set", default="", metavar="KEY=VALUE …", help="settings to change first, as nodes.count=3")
    arguments = parser.parse_args()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # From here on things are being put in order; a second Ctrl-C would leave them half done.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted

    for number in _SIGNALS:
        signal.signal(number, interrupt)
    try:
        match arguments.command:
            case "up":
                up(arguments.stack, arguments.set.split())
            case "preview":
                preview(arguments.stack)
            case "down":
                down(arguments.stack)
    except CommandFailedError as failure:
        print(f"\nmake {arguments.command}: {failure}", file=sys.stderr)
        return failure.status
    except Interrupted:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
