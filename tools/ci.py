"""Run all checks of a clean checkout, as `.ci/run` does, and print a table of the results.

    python3 -m tools.ci

Programs for later parts are built in the background. Real pods, which mostly wait, share the machine with the tests on
API servers, which mostly compute. A tier after `make test` is skipped, with the reason, if this machine cannot run it
or too little time is left. Standard library only, until `make up` has created `.venv`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.go_build import cache
from tools.kubernetes import builds, containers
from tools.kubernetes.containers import Missing
from tools.process import INTERRUPTED, Child, note_signals, wait_for
from tools.slurm import programs

ROOT = Path(__file__).resolve().parents[1]
PYTHON = str(ROOT / ".venv" / "bin" / "python")
# CI kills a run after 90 minutes without showing its output; this run ends 5 minutes earlier.
BUDGET_S = 85 * 60.0
_GRACE_S = 60.0
_REPEATED_LINES, _LINES_PER_TEST = 40, 12
# Of commands that run at once, those after the first use what it leaves.
_LATER = ["nice", "-n", "5"]

PODS, KUBERNETES, SLURM = "make test-pods", "make test-kubernetes", "make test-slurm"
SHARES = {PODS: 1.2, KUBERNETES: 0.65, SLURM: 0.4}
"""The time that a tier may take, as a share of that of `make test` on the same machine: a slow one is slow in all. Pods
include `make test-kubernetes`, which runs at once. Measured 1.05, 0.48, and 0.21 to 0.26 of 31 to 65 minutes (two
cores, 2026-11-28 and 29)."""
# Without etcd, which is a Python package of `.venv`.
_PROGRAMS = ["python3", "-m", "tools.kubernetes.builds", *builds.PROGRAMS[1:]]
_IMAGE = [PYTHON, "-c", "from tools.kubernetes import images; images.store()"]
_PROBES = {PODS: [PYTHON, "-m", "tools.kubernetes.node_probe"], SLURM: [PYTHON, "-m", "tools.slurm.cluster"]}
# --no-remove keeps another vendor's containerd.
_INSTALL = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && "
    "apt-get install -y -qq --no-install-recommends --no-remove -o DPkg::Lock::Timeout=60 {packages}"
)


class CiPart(Child):
    """One command of the run. The output of a background part is printed at the end, if it fails.

    Args:
        margin: Text before each printed line, to tell the lines of parallel parts apart.
    """

    def __init__(self, name: str, command: Sequence[str], *, background: bool = False, margin: str = "") -> None:
        self.name = name
        self.background = background
        self._margin = margin
        self.lines: list[str] = []
        print(f"\n──── {name}{' (background)' if background else ''}", flush=True)
        # With KUBECONFIG, `make test-pods` would use that cluster instead of this machine.
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        # A clean checkout's own cache is empty: mypy would read torch and the SDKs for two minutes instead of seconds.
        environment["MYPY_CACHE_DIR"] = str(cache() / "mypy")
        super().__init__(command, on_line=self._show, cwd=ROOT, environment=environment)

    @property
    def result(self) -> str:
        """Return "passed", or how the part failed."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"FAILED{reason}, exit status {self.status}" if self.status else "passed"

    def _show(self, line: str) -> None:
        self.lines.append(line)
        if not self.background:
            print(self._margin + line, end="", flush=True)


class Run:
    """The parts of one run, within one time budget."""

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self.parts: list[CiPart] = []
        self.left_out: list[tuple[str, str]] = []
        self.cut_off = False
        self.signals = note_signals()
        self._began = time.monotonic()
        self._budget_s = budget_s

    @property
    def left_s(self) -> float:
        """Seconds left of the budget."""
        return self._began + self._budget_s - time.monotonic()

    def begin(self, name: str, command: Sequence[str]) -> CiPart:
        """Start a background part at low priority."""
        self.parts.append(CiPart(name, ["nice", "-n", "19", *command], background=True))
        return self.parts[-1]

    def do(self, *names: str) -> None:
        """Run commands at once to completion, unless the run was interrupted or out of time. The first has priority."""
        if reason := self._over():
            self.cut_off = True
            for name in names:
                self.leave_out(name, reason)
            return
        for number, name in enumerate(names):
            command = [*(_LATER if number else ()), *name.split()]
            self.parts.append(CiPart(name, command, margin=f"{name} │ " if len(names) > 1 else ""))
        self.wait(*self.parts[-len(names) :])

    def wait(self, *parts: CiPart) -> None:
        """Wait for parts; interrupt them when the run is interrupted or out of time."""
        wait_for(parts, self._over, _GRACE_S)

    def leave_out(self, name: str, reason: str) -> None:
        """Report that a part is skipped."""
        self.left_out.append((name, reason))
        print(f"\n──── {name}\nnot run: {reason}", flush=True)

    def conclude(self) -> int:
        """Stop running parts, print the output of failures and the table. Returns the exit status."""
        wait_for(self.parts, lambda: "no longer needed", _GRACE_S)
        failures = [part for part in self.parts if part.status]
        for part in failures:
            print(f"\n──── {part.name}: {part.result}; end of its output:")
            print(*map(str.rstrip, [*failed_tests(part.lines), *part.lines[-_REPEATED_LINES:]]), sep="\n")
        # Background parts do not count: the parts that need their results build them themselves, or fail.
        failed = self.cut_off or self.signals or any(not part.background for part in failures)
        minutes = (self._budget_s - self.left_s) / 60
        rows = [("part", "minutes", "result")]
        rows += [(part.name, f"{part.seconds / 60:.1f}", part.result) for part in self.parts]
        rows += [(name, "–", f"not run: {reason}") for name, reason in self.left_out]
        rows += [("all", f"{minutes:.1f}", "FAILED" if failed else "passed")]
        width = max(len(name) for name, _, _ in rows)
        print()
        for name, duration, result in rows:
            print(f"{name:<{width}}  {duration:>7}  {result}", flush=True)
        return INTERRUPTED if self.signals else int(bool(failed))

    def _over(self) -> str:
        return "interrupted" if self.signals else "the time is over" if self.left_s <= 0 else ""


def failed_tests(lines: Sequence[str]) -> list[str]:
    """Return the lines of pytest that name failed tests, then the first lines of each one's error."""
    names, errors, left = [], [], 0
    for line in lines:
        if re.match(r"(FAILED|ERROR) ", line):
            names.append(line)
        elif re.match(r"_{3,} .+ _{3,}$", line):
            errors.append(line)
            left = _LINES_PER_TEST
        elif line.startswith("E ") and left:
            errors.append(line)
            left -= 1
    return [*names, *errors]


def install_packages(run: Run) -> None:
    """Install the Debian packages that real pods and Slurm need, where this is root on Debian or Ubuntu."""
    for tier, needs in ((PODS, containers), (SLURM, programs)):
        try:
            needs.found()
        except Missing:
            if os.geteuid() == 0 and shutil.which("apt-get"):
                command = ["timeout", "300", "sh", "-c", _INSTALL.format(packages=needs.PACKAGES)]
                run.wait(run.begin(f"packages for {tier}", command))


def not_ready(tier: str) -> str:
    """Return why this machine cannot run a tier, or an empty string."""
    if not Path(PYTHON).exists():
        return "there is no Python environment"
    probe = subprocess.run(_PROBES[tier], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if probe.returncode == 0:
        return ""
    # The last line: a traceback ends with the reason.
    return probe.stdout.strip().rpartition("\n")[2] or f"exit status {probe.returncode}"


def too_late(tier: str, left_s: float, test_s: float) -> str:
    """Return why too little time is left for a tier where `make test` took `test_s`, or an empty string."""
    need_s = SHARES[tier] * test_s
    left, budget, needed = (round(seconds / 60) for seconds in (max(0.0, left_s), BUDGET_S, need_s))
    return "" if left_s >= need_s else f"{left} minutes are left of {budget}, and it may take {needed}"


def main() -> int:
    """Run all parts. Returns the exit status."""
    run = Run()
    background = [run.begin("Kubernetes programs", _PROGRAMS)] if shutil.which("go") else []
    for name in ("make up", "make down", "make check"):
        run.do(name)
    install_packages(run)
    reason = not_ready(PODS)
    if not reason:
        background.append(run.begin("image for pods", _IMAGE))
    run.do("make test")
    test_s = sum(part.seconds for part in run.parts if part.name == "make test")
    if not reason:
        run.wait(*background)
    reasons = {PODS: reason, SLURM: not_ready(SLURM)}
    for together in ((PODS, KUBERNETES), (SLURM,)):
        left_out = {tier: reasons.get(tier) or too_late(tier, run.left_s, test_s) for tier in together}
        for tier, why in left_out.items():
            if why:
                run.leave_out(tier, why)
        if tiers := [tier for tier, why in left_out.items() if not why]:
            run.do(*tiers)
    return run.conclude()


if __name__ == "__main__":
    sys.exit(main())
