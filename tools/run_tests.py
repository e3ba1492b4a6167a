"""Run a tier of tests: `make test`, `make test-kubernetes`, `make test-pods` and `make test-slurm`.

    python -m tools.run_tests                        # make test: three pytest processes in parallel
    python -m tools.run_tests tests/unit -x          # pytest with these arguments
    python -m tools.run_tests kubernetes [-k word]   # build what the tier needs, then pytest tests/kubernetes
    python -m tools.run_tests pods [-k word]         # check that this machine can run pods, then pytest tests/pods
    python -m tools.run_tests slurm [-k word]        # check that this machine can run Slurm, then pytest tests/slurm

A tier that cannot run on this machine exits with `NOT_READY` and the reason. `make test` uses processes, not
pytest's workers, which have only seconds to stop: a Ray cluster takes longer.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence

from tools.kubernetes import builds
from tools.kubernetes.containers import Missing
from tools.kubernetes.node_probe import NOT_READY, ready_to_run
from tools.process import INTERRUPTED, Child, note_signals, wait_for
from tools.slurm import cluster as slurm

# Split so that no session fixture runs twice, and so that all parts take about as long.
# tests/workloads/conftest.py sets the mark `ray`.
_LOCAL = ("tests/rehearsal/test_interruptions.py", "tests/rehearsal/test_local_stack.py")
PARTS = {
    "ray": ("tests/workloads", "-m", "ray"),
    "rehearsal": ("tests/rehearsal", *(f"--ignore={file}" for file in _LOCAL)),
    "the rest": (*_LOCAL, "tests/unit", "tests/components", "tests/workloads", "-m", "not ray"),
}
KUBERNETES, PODS, SLURM = "tests/kubernetes", "tests/pods", "tests/slurm"
PROGRAMS = [name for name in builds.PROGRAMS if name not in ("kubelet", "kube-proxy", "coredns")]
"""Programs that tests/kubernetes needs: not those of real nodes."""

_GRACE_S = 120.0
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_SECTION = re.compile(r"={2,} (?P<title>.+?) =*$")
# Ray's nodes are many processes with deadlines; the other parts compute, and use what Ray leaves.
_LATER = ["nice", "-n", "5"]
_PYTEST = [sys.executable, "-u", "-m", "pytest"]


class TestPart(Child):
    """A pytest process. Its progress is printed line by line, its report as a whole at the end."""

    def __init__(self, name: str, command: Sequence[str], width: int) -> None:
        self.name = name
        self.result = "ended without a result"
        self._margin = f"{name:<{width}} │ "
        self._report: list[str] = []
        super().__init__(command, on_line=self._show)

    def runs(self, within_s: float = 0.0) -> bool:
        """See `Child.runs`; prints the report at the end."""
        if super().runs(within_s):
            return True
        if len(self._report) > 1:
            print(f"\n{self.name}:\n{''.join(self._report)}", end="", flush=True)
        self._report.clear()
        return False

    def _show(self, line: str) -> None:
        plain = _ESCAPES.sub("", line).rstrip()
        section = _SECTION.match(plain)
        if section and section["title"] == "test session starts":
            return
        if section:
            # The title of the last section has the counts.
            self.result = section["title"]
        if section or self._report:
            self._report.append(line)
        elif plain:
            print(self._margin + line, end="", flush=True)


def run(commands: Mapping[str, Sequence[str]]) -> int:
    """Run commands in parallel and print a result line for each. All of them receive every interruption.

    Returns 0 if all succeed, 130 after an interruption, otherwise the first other status.
    """
    signals = note_signals()
    began = time.monotonic()
    width = max(map(len, commands))
    parts = [TestPart(name, command, width) for name, command in commands.items()]
    # A second Ctrl-C is a new reason: pytest then ends without cleaning up.
    wait_for(parts, lambda: "interrupted" + " again" * (len(signals) - 1) if signals else "", _GRACE_S)
    print()
    for part in parts:
        print(f"{part.name:<{width}}  {part.result}{f' (exit status {part.status})' if part.status else ''}")
    print(f"{'all':<{width}}  {time.monotonic() - began:.0f} s")
    return INTERRUPTED if signals else next((part.status for part in parts if part.status), 0)


def require(tier: str) -> None:
    """Build the programs of a tier, or exit with NOT_READY and the reason."""
    try:
        if tier == KUBERNETES:
            builds.programs(*PROGRAMS, say=lambda text: print(f"  {text}", flush=True))
        elif tier == SLURM:
            slurm.ready_to_run()
        elif not os.environ.get("KUBECONFIG"):
            ready_to_run()
    except (builds.BuildError, Missing) as problem:
        print(f"\n{problem}\n\nNOT RUN: {tier}.", file=sys.stderr, flush=True)
        sys.exit(NOT_READY)


def main(arguments: list[str]) -> int:
    """Run the tier that the first argument names, or become pytest with the arguments."""
    # With this variable, which container images set, each of hundreds of processes would compile torch.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not arguments:
        # Parallel processes would overwrite each other's cache of failures.
        options = ["--no-header", "-p", "no:cacheprovider", f"--color={'yes' if sys.stdout.isatty() else 'no'}"]
        commands = {name: [*_PYTEST, *options, *chosen] for name, chosen in PARTS.items()}
        return run({name: command if name == "ray" else [*_LATER, *command] for name, command in commands.items()})
    if (tier := f"tests/{arguments[0]}") in (KUBERNETES, PODS, SLURM):
        require(tier)
        chosen = arguments[1:]
        named = any(argument.startswith("tests/") for argument in chosen)
        arguments = chosen if named else [tier, "--durations=10", *chosen]
    return os.execv(sys.executable, [*_PYTEST, *arguments])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; run it again to continue")
