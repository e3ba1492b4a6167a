"""What a clean checkout has to pass, as `.ci/run` starts it: the README's commands, to the end, and a table of them.

    python3 -m tools.ci

Every part runs, so that one run tells all that is wrong. What other parts need is built meanwhile, at low priority.
Real pods are left out, and that is said, where this machine cannot run them or too little time is left. Uses only the
standard library, since it begins before there is an environment.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tools.kubernetes import builds
from tools.kubernetes.containers import PACKAGES, Missing, found

ROOT = Path(__file__).resolve().parents[1]
PYTHON = str(ROOT / ".venv" / "bin" / "python")
# CI ends whatever runs after 90 minutes, and shows nothing of it then: this ends 5 minutes earlier by itself.
BUDGET_S = 85 * 60.0
PODS_S = 20 * 60.0
INTERRUPTED = 130
_GRACE_S = 60.0
_LAST_LINES_S = 5.0
_SHOWN_AGAIN = 40

PODS = "make test-pods"

# For the parts that need them; what nobody made before, they make by themselves.
_PROGRAMS = ["python3", "-m", "tools.kubernetes.builds", *(name for each in builds.SOURCES for name in each.packages)]
_IMAGE = [PYTHON, "-c", "from tools.kubernetes import images; images.store()"]
_READY = [PYTHON, "-m", "tools.kubernetes.node_probe"]
# Not where it would take another package away, such as another maker's containerd.
_INSTALL = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && "
    f"apt-get install -y -qq --no-install-recommends --no-remove -o DPkg::Lock::Timeout=60 {PACKAGES}"
)


class Part:
    """One command. Its output is shown as it comes, or `silent`, only where it fails, at the end."""

    def __init__(self, name: str, command: Sequence[str], *, silent: bool = False) -> None:
        self.name = name
        self.lines: list[str] = []
        self.seconds = 0.0
        self.note = ""
        self.silent = silent
        self._began = time.monotonic()
        self._said_all = 0.0
        self._asked: float | None = None
        print(f"\n──── {name}{' (meanwhile)' if silent else ''}", flush=True)
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            # Real pods are to run on this machine, and not on a cluster that somebody's settings name.
            env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # So that all of it can be ended, and nothing else.
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def status(self) -> int:
        """Its exit status; waits for it."""
        return self._process.wait()

    @property
    def result(self) -> str:
        """How it ended, in words."""
        return "passed" if self.status == 0 else f"FAILED{self.note}, exit status {self.status}"

    def runs(self) -> bool:
        """Whether it still runs."""
        if self._process.poll() is None:
            return True
        if not self.seconds:
            # A process that it left behind may hold the pipe open for ever.
            self._reader.join(_LAST_LINES_S)
            # Nobody may have looked for long after it ended.
            self.seconds = (self._said_all or time.monotonic()) - self._began
        return False

    def end(self, why: str) -> None:
        """What Ctrl-C would do to it; after a minute, the end. To be called until it does not run."""
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            self.note = f" ({why})"
            os.killpg(self._process.pid, signal.SIGINT)
        elif now - self._asked > _GRACE_S:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if not self.silent:
                sys.stdout.write(line)
                sys.stdout.flush()
        self._said_all = time.monotonic()


class Run:
    """The parts of one run of CI, with the time that they have together."""

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self.parts: list[Part] = []
        self.left_out: list[tuple[str, str]] = []
        self.cut_off = False
        self.interrupted = False
        self._began = time.monotonic()
        self._budget_s = budget_s
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupt)

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        return self._began + self._budget_s - time.monotonic()

    def begin(self, name: str, command: Sequence[str]) -> Part:
        """Start what others will need, at low priority; of its output only a failure's is shown."""
        part = Part(name, ["nice", "-n", "19", *command], silent=True)
        self.parts.append(part)
        return part

    def do(self, name: str) -> None:
        """Run a command and wait for it, as long as there is time."""
        if self.interrupted or self.left_s <= 0:
            self.cut_off = True
            self.leave_out(name, "interrupted" if self.interrupted else "the time is over")
            return
        part = Part(name, name.split())
        self.parts.append(part)
        self.wait(part)

    def wait(self, *parts: Part) -> None:
        """Wait for parts that run; past the budget, or after an interruption, they are ended."""
        while running := [part for part in parts if part.runs()]:
            for part in running:
                if self.interrupted:
                    part.end("interrupted")
                elif self.left_s <= 0:
                    part.end("the time is over")
            time.sleep(0.2)

    def leave_out(self, name: str, why: str) -> None:
        """Say that a part is not run."""
        self.left_out.append((name, why))
        print(f"\n──── {name}\nnot run: {why}", flush=True)

    def conclude(self) -> int:
        """End what still runs, tell what failed once more, print the table; returns the exit status."""
        for part in self.parts:
            while part.runs():
                part.end("not needed any more")
                time.sleep(0.2)
        broken = [part for part in self.parts if part.status]
        for part in broken:
            print(f"\n──── {part.name}: {part.result}; what it said:")
            told = [line for line in part.lines if re.match(r"(FAILED|ERROR) ", line)]
            print(*map(str.rstrip, [*told, *part.lines[-_SHOWN_AGAIN:]]), sep="\n")
        # What was begun for others is their matter: they make it by themselves, or fail.
        failed = self.cut_off or self.interrupted or any(not part.silent for part in broken)
        width = max(len(name) for name in ("part", *(part.name for part in self.parts), *dict(self.left_out)))
        print(f"\n{'part':<{width}}  minutes  result")
        for part in self.parts:
            print(f"{part.name:<{width}}  {part.seconds / 60:7.1f}  {part.result}")
        for name, why in self.left_out:
            print(f"{name:<{width}}        –  not run: {why}")
        whole = (self._budget_s - self.left_s) / 60
        print(f"{'all':<{width}}  {whole:7.1f}  {'FAILED' if failed else 'passed'}", flush=True)
        return INTERRUPTED if self.interrupted else int(failed)

    def _interrupt(self, *_: object) -> None:
        self.interrupted = True


def install_packages(run: Run) -> None:
    """On a Debian or Ubuntu whose root this is: the packages that real pods need, as far as they can be had."""
    try:
        found()
    except Missing:
        if os.geteuid() == 0 and shutil.which("apt-get"):
            run.wait(run.begin("packages for pods", ["timeout", "300", "sh", "-c", _INSTALL]))


def not_ready() -> str | None:
    """Why this machine cannot run real pods, or None."""
    if not Path(PYTHON).exists():
        return "there is no Python environment"
    asked = subprocess.run(_READY, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if asked.returncode == 0:
        return None
    # The last one: a traceback ends with what is wrong.
    return asked.stdout.strip().rpartition("\n")[2] or f"exit status {asked.returncode}"


def too_late(left_s: float) -> str | None:
    """Why too little time is left for real pods, or None."""
    if left_s >= PODS_S:
        return None
    left, whole, takes = (round(seconds / 60) for seconds in (max(0.0, left_s), BUDGET_S, PODS_S))
    return f"{left} minutes are left of {whole}, and it may take {takes}"


def main() -> int:
    """All of it; returns the exit status."""
    run = Run()
    builds_go_on = [run.begin("Kubernetes programs", _PROGRAMS)] if shutil.which("go") else []
    run.do("make up")
    run.do("make down")
    run.do("make check")
    install_packages(run)
    why = not_ready()
    if why is None:
        builds_go_on.append(run.begin("image for pods", _IMAGE))
    run.do("make test")
    run.do("make test-kubernetes")
    if why is None:
        run.wait(*builds_go_on)
    if why := why or too_late(run.left_s):
        run.leave_out(PODS, why)
    else:
        run.do(PODS)
    return run.conclude()


if __name__ == "__main__":
    sys.exit(main())
