"""What decides how soon a job begins."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("driver", ["train.driver", "nccl.driver", "nccl.hunt.driver", "nccl.multigpu"])
def test_a_driver_starts_the_workers_without_importing_torch(driver: str) -> None:
    """Importing torch takes seconds, in which no worker starts."""
    program = f"import sys, workloads.{driver}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
