"""Bring a stack up, preview it, take it down: `make up`, `make preview`, `make down`.

Ctrl-C during `up` of a local stack takes down the resources of this run; a cluster that was up before stays. The
resources of an interrupted run on a cloud stay, and the next run continues from there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import yaml
from rich.table import Table
from rich.text import Text

from infra.local.folder import ClusterFolder
from infra.remains import remains
from infra.settings import CloudSettings, ClusterSettings, Settings, from_stack_file
from infra.settings.cost import summary
from infra.settings.problems import SettingsError, empty_passphrase
from tools.process import INTERRUPTED, SIGNALS, Child
from tools.recovery import DESTROY, UP, Place, UnclearError, mend_state_folder, settle
from workloads.exits import Exit
from workloads.feedback.engine_runs import recording
from workloads.nccl.report import largest
from workloads.nccl.result import BenchResult
from workloads.nccl.units import format_size
from workloads.options import DEFAULT_STACK
from workloads.results.files import write_file
from workloads.terminal.console import Terminal, table_of

ROOT = Path(__file__).resolve().parents[1]
PULUMI = str(ROOT / "bin" / "pulumi")
RDMA_RAY = str(ROOT / "bin" / "rdma-ray")
# After SIGINT, the engine finishes its current operation, such as the start of a local node or a cloud's cluster.
_LOCAL_GRACE_S, _CLOUD_GRACE_S = 150.0, 7200.0
# A lock in the engine's error (pulumi 3.259.0: pkg/backend/diy/lock.go, checkForLock).
_LOCK = re.compile(r": created by (\S+)@(\S+) \(pid (\d+)\) at ([\dT:Z+-]+)")


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP. Not an Exception, so that no handler swallows it."""


class CommandFailedError(RuntimeError):
    """A step failed. The command has printed its message; `said` contains it if the command was an engine."""

    def __init__(self, step: str, status: int, said: str = "") -> None:
        super().__init__(f"{step} failed with exit status {status}")
        self.status = status
        self.said = said


class Stack:
    """A stack of this clone, by the name in its file Pulumi.NAME.yaml.

    Methods raise CommandFailedError if a command fails, and Interrupted when an interrupted command has ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.file = ROOT / f"Pulumi.{name}.yaml"
        self.settings = self._read_file()

    @property
    def is_local(self) -> bool:
        """Whether the stack's cluster is on this machine."""
        return self.settings.target == "local"

    def up(self, changes: list[str], *, ask: bool = True) -> None:
        """Change settings ("nodes.count=3"), and bring the stack up; a local one runs a benchmark and a training.

        After a failure the cluster stays up, for inspection. `ask` is whether pre-flight precedes a first `up`.
        """
        self._require_passphrase()
        self._select()
        self._release_lock_of_dead_engine()
        self._change_settings(changes)
        if self.is_local:
            self._up_local()
        else:
            if ask and not self._has_resources():
                self._preflight()
            self._up_cloud()

    def preview(self) -> None:
        """Show what `up` would change."""
        self._require_passphrase()
        self._select()
        self.pulumi("preview", "--diff")

    def down(self) -> None:
        """Destroy the stack's resources. Its configuration and history stay."""
        self._select()
        if self.settings.protect and self._has_resources():
            sys.exit(
                f"rdma-ray:protect is true, so stack {self.name} is not taken down. To take it down:\n"
                f'  make up STACK={self.name} SET="protect=false"\n  make down STACK={self.name}'
            )
        self._destroy()
        what = "process, no resource and no file of the cluster" if self.is_local else "resource of the stack"
        print(f"Stack {self.name} is down: no {what} is left.")
        if left := remains(self.settings, self.name):
            print("\nNot resources of the stack, and still there:", *left, sep="\n")

    def pulumi(self, *arguments: str, quiet: bool = False) -> None:
        """Run the engine on this stack; see `run`. If the stack is locked, print who holds the lock and what to do."""
        options = ("--stack", self.name, "--non-interactive", "--color", "always" if sys.stdout.isatty() else "never")
        try:
            # `rdma-ray evidence` reports how long each kind of resource took.
            recorded = recording(ROOT, self.name, arguments[0]) if arguments in (UP, DESTROY) else nullcontext(())
            with recorded as log:
                grace_s = _LOCAL_GRACE_S if self.is_local else _CLOUD_GRACE_S
                run(PULUMI, *arguments, *log, *options, quiet=quiet, grace_s=grace_s)
        except CommandFailedError as failure:
            print(explain_locks(self.name, failure.said), end="", file=sys.stderr)
            raise

    def _up_local(self) -> None:
        results = ROOT / "results" / self.name
        results.mkdir(parents=True, exist_ok=True)
        was_up = self._has_resources()
        # Durations that `tools/setup.py` recorded just before, if make ran it.
        setup = ROOT / ".tools" / "setup.json"
        seconds: dict[str, float] = json.loads(setup.read_text()) if setup.exists() else {}
        try:
            with _phase(seconds, "cluster"):
                self.pulumi(*UP)
            with _phase(seconds, "benchmark"):
                run(RDMA_RAY, "bench", "nccl", "--stack", self.name, "--out", str(results / "nccl"))
            with _phase(seconds, "training"):
                run(RDMA_RAY, "train", "digits", "--stack", self.name, "--json", str(results / "digits.json"))
        except Interrupted:
            if was_up:
                print(
                    f"\nInterrupted. The cluster was up before and stays up. To destroy it: make down STACK={self.name}"
                )
            else:
                print(
                    "\nInterrupted. Taking down the resources that this run created; this cannot be interrupted …",
                    flush=True,
                )
                self._destroy()
            raise
        print_summary(self.name, self._json("stack", "output", "--json"), seconds, results)

    def _up_cloud(self) -> None:
        # No benchmark: it would provision GPUs, which cost money.
        self._settle_pending_creates()
        try:
            self.pulumi(*UP)
        except Interrupted:
            print(
                f"\nInterrupted. The created resources stay and may cost money. Continue: make up STACK={self.name}. "
                f"Destroy: make down STACK={self.name}"
            )
            raise
        count = self.settings.nodes.min if isinstance(self.settings, ClusterSettings) else 0
        nodes = f"{count} worker nodes stay up" if count else "worker nodes are provisioned when a job requests them"
        print(f"\nStack {self.name} is up; {nodes}. How to connect: docs/{self.settings.target}.md")
        if isinstance(self.settings, CloudSettings):
            print(f"Cost: {summary(self.settings)}")

    def _preflight(self) -> None:
        """Exit if the account lacks something that a new stack needs. An existing stack is part of what it uses."""
        try:
            run(RDMA_RAY, "preflight", self.name)
        except CommandFailedError as failure:
            if failure.status == Exit.BELOW:
                go_on = f"make up STACK={self.name} PREFLIGHT=skip"
                sys.exit(f"\nNothing was created. Fix what is not ok, or go on without: {go_on}")
            if failure.status != Exit.NOT_AS_ASKED:
                raise
            print("\nNothing is known to be missing; what is unknown may still fail. Going on.\n", flush=True)

    def _require_passphrase(self) -> None:
        """Exit if a cloud stack of the state in this clone would get an empty passphrase, which its first use sets."""
        own = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
        chosen = any(map(os.environ.get, own)) or "secretsprovider" in yaml.safe_load(self.file.read_text())
        if not (self.is_local or chosen):
            sys.exit(f"\n{SettingsError([empty_passphrase(self.name)], origin='The environment')}")

    def _select(self) -> None:
        """Make this the current stack; create it on first use."""
        mend_state_folder(ROOT / ".pulumi" / "state")
        self.pulumi("stack", "select", "--create", quiet=True)

    def _change_settings(self, changes: list[str]) -> None:
        """Write changes into the stack file. If the result is not valid, the file is not changed."""
        before = self.file.read_text()
        try:
            for change in changes:
                key, equals, value = change.partition("=")
                if not equals:
                    sys.exit(f'SET={change}: write SETTING=VALUE, as in SET="nodes.count=3 nodes.cpus=1"')
                self.pulumi("config", "set", "--path", f"rdma-ray:{key}", value, quiet=True)
            self.settings = self._read_file()
        except BaseException:
            write_file(self.file, before)
            raise

    def _destroy(self) -> None:
        """Destroy the resources, including those of an interrupted run."""
        self._release_lock_of_dead_engine()
        if not self.is_local:
            self._settle_pending_creates()
        self.pulumi(*DESTROY)
        if self.is_local:
            # Processes that a killed engine started but did not record.
            ClusterFolder.of(ROOT, self.name).remove()

    def _settle_pending_creates(self) -> None:
        """Add resources to the state that a killed engine created but did not record."""
        try:
            settled = settle(Place.of(self.name, self.file), self.pulumi, self._read)
        except UnclearError as unclear:
            sys.exit(f"\n{unclear}")
        if settled:
            print(f"Recovered the state of {settled} resources that an interrupted run was creating.")

    def _release_lock_of_dead_engine(self) -> None:
        """Remove the lock of an engine that was killed on this machine, if the state is in a folder."""
        backend = os.environ.get("PULUMI_BACKEND_URL") or f"file://{ROOT}/.pulumi/state"
        if not backend.startswith("file://"):
            return
        folder = Path(backend.removeprefix("file://")).expanduser()
        locks = folder / ".pulumi" / "locks" / "organization" / "rdma-ray" / self.name
        holders = [json.loads(file.read_text()) for file in locks.glob("*.json")]
        here = socket.gethostname()
        if holders and not any(holder["hostname"] != here or psutil.pid_exists(holder["pid"]) for holder in holders):
            self.pulumi("cancel", "--yes", quiet=True)

    def _has_resources(self) -> bool:
        """Return whether the stack has resources other than itself and providers."""
        deployment = self._json("stack", "export")["deployment"]
        return any(
            resource.get("custom") and not resource["type"].startswith("pulumi:")
            for resource in deployment.get("resources") or []
        )

    def _json(self, *arguments: str) -> dict[str, Any]:
        """Return the engine's JSON output; secrets are masked."""
        found: dict[str, Any] = json.loads(self._read(*arguments))
        return found

    def _read(self, *arguments: str) -> str:
        """Return the engine's standard output."""
        done = subprocess.run([PULUMI, *arguments, "--stack", self.name], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise CommandFailedError(" ".join(["pulumi", *arguments[:2]]), done.returncode)
        return done.stdout

    def _read_file(self) -> Settings:
        """Return the settings, or exit with the problems of the stack file."""
        if not self.file.exists():
            known = ", ".join(sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml")))
            sys.exit(f"STACK={self.name}: there is no Pulumi.{self.name}.yaml. Stacks with a file: {known}")
        try:
            return from_stack_file(self.file)
        except SettingsError as problems:
            sys.exit(f"\n{problems}")


def run(*command: str, quiet: bool = False, grace_s: float = _LOCAL_GRACE_S) -> None:
    """Run a command. On an interruption, interrupt it and kill it after `grace_s` seconds.

    Raises:
        CommandFailedError: It failed. Its output is printed even if `quiet`.
        Interrupted: This process was interrupted; the command has ended.
    """
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if not quiet:
            print(line, end="", flush=True)

    child = Child(command, cwd=ROOT, on_line=on_line if quiet or command[0] == PULUMI else None)
    # Interrupt only the command itself: the engine interrupts its plugins when it is ready.
    if status := child.complete(grace_s, group=False):
        if quiet:
            print("".join(lines), end="")
        raise CommandFailedError(" ".join([Path(command[0]).name, *command[1:3]]), status, "".join(lines))


def explain_locks(stack: str, said: str) -> str:
    """Return who holds the locks that made the engine fail, and what to do; empty if none did."""
    text = ""
    for user, host, pid, since in _LOCK.findall(said):
        text += f"\nStack {stack} is locked by {user} on {host}, process {pid}, since {since}: "
        if host != socket.gethostname():
            text += "ask there whether that process still runs.\n"
        elif psutil.pid_exists(int(pid)):
            text += "that process runs; wait until it ends.\n"
        else:
            text += "no such process runs on this machine.\n"
    if text:
        text += (
            f"Only if it was killed: bin/pulumi cancel --stack {stack}, and run this again. Two engines at work on one"
        )
        text += " stack lose resources from its state.\n"
    return text


@contextmanager
def _phase(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Announce a phase and note its duration in `seconds`."""
    print(f"\n== {name} ==", flush=True)
    began = time.monotonic()
    yield
    seconds[name] = time.monotonic() - began


def print_summary(stack: str, outputs: dict[str, Any], seconds: dict[str, float], results: Path) -> None:
    """Print the summary and write it to `results`/summary.json.

    Args:
        outputs: Outputs of the stack, with masked secrets.
        seconds: Duration of each phase of `make up`.
    """
    benchmark = BenchResult.model_validate_json((results / "nccl" / "result.json").read_text())
    training = json.loads((results / "digits.json").read_text())
    accuracy, epochs, world = training["accuracy"], len(training["epochs"]), training["world"]
    nodes, ray = outputs["nodes"], outputs["ray"]
    console = Terminal(highlight=False)
    console.print()
    console.rule(Text.assemble("stack ", (stack, "bold"), " is up and works"))
    facts = Table.grid(padding=(0, 2))
    facts.add_row("nodes", f"1 head, {nodes['min']} workers of {nodes['cpusPerNode']} CPUs, Ray {ray['version']}")
    facts.add_row("benchmark", f"{benchmark.reason}; {benchmark.notice or 'over the fabric'}")
    facts.add_row("training", f"{accuracy:.2%} of the test digits right after {epochs} epochs on {world} workers")
    facts.add_row("times", ", ".join(f"{phase} {value:.0f} s" for phase, value in seconds.items()))
    facts.add_row("dashboard", f"{ray['dashboard']} (requires the token)")
    facts.add_row("token", f"bin/rdma-ray dashboard --show-token --stack {stack}")
    facts.add_row("results", f"{results.relative_to(Path.cwd()) if results.is_relative_to(Path.cwd()) else results}/")
    facts.add_row("take it down", f"make down STACK={stack}")
    console.print(facts)
    table = table_of(("operation", "size", "time", "algbw GB/s", "busbw GB/s", "#wrong"), text=("operation",))
    # The largest sizes show bandwidth instead of latency.
    for row in largest(benchmark.rows):
        wrong = "not checked" if row.wrong is None else str(row.wrong)
        milliseconds = f"{row.time_us.max / 1000:.2f} ms"
        table.add_row(row.title, format_size(row.size), milliseconds, f"{row.algbw:.3f}", f"{row.busbw:.3f}", wrong)
    console.print(table)
    rounded = {phase: round(value, 1) for phase, value in seconds.items()}
    summary = {"stack": stack, "nodes": nodes, "accuracy": accuracy, "seconds": rounded}
    write_file(results / "summary.json", json.dumps(summary, indent=2) + "\n")


def main() -> int:
    """Run the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/stack.py", description=__doc__)
    parser.add_argument("command", choices=["up", "preview", "down"])
    parser.add_argument("--stack", default=DEFAULT_STACK)
    parser.add_argument("--set", default="", metavar="KEY=VALUE …", help="settings to change first: nodes.count=3")
    parser.add_argument("--skip-preflight", action="store_true", help="do not ask the account before a first up")
    arguments = parser.parse_args()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Ignore a second Ctrl-C, which would interrupt the cleanup.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted

    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        stack = Stack(arguments.stack)
        ask = not arguments.skip_preflight
        commands = {
            "up": lambda: stack.up(arguments.set.split(), ask=ask),
            "preview": stack.preview,
            "down": stack.down,
        }
        commands[arguments.command]()
    except CommandFailedError as failure:
        print(f"\nmake {arguments.command}: {failure}", file=sys.stderr)
        return failure.status
    except Interrupted:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
