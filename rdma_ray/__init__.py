"""The command line `rdma-ray` as an installed package: the wheel has the code of a clone in `tree`, below this file."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the command line, and return the exit code of the process."""
    # Of this process only. As packages of the environment, `infra` and `workloads` would collide with the user's.
    sys.path.insert(0, str(Path(__file__).with_name("tree")))
    from workloads.cli import main as run

    return run()
