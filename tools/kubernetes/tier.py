"""`make test-kubernetes`: builds what the tier needs, with progress, and runs its tests.

    python -m tools.kubernetes.tier               # all of tests/kubernetes
    python -m tools.kubernetes.tier tests/… -x    # anything that pytest takes

Where a program is missing and cannot be built, nothing is run and nothing has passed: that is said, and is a failure.
"""

from __future__ import annotations

import os
import sys

from tools.kubernetes.builds import BuildError, programs

FOLDER = "tests/kubernetes"
NEEDS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "ray-operator", "kueue")
NOT_RUN = 70
"""The exit status of a tier that was not run; pytest has 0 to 5 for itself."""


def main(arguments: list[str]) -> None:
    """Build, and become pytest; exits with `NOT_RUN` where there is nothing to run the tests with."""
    try:
        programs(*NEEDS, say=lambda text: print(f"  {text}", flush=True))
    except BuildError as problem:
        print(f"\n{problem}\n\nNOT RUN: the tests of the tier kubernetes ({FOLDER}).", file=sys.stderr, flush=True)
        sys.exit(NOT_RUN)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *(arguments or [FOLDER, "--durations=10"])])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; run it again to go on")
