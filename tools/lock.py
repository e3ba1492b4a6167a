"""Compile pyproject.toml into the hashed requirements files: one pin for each package in all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Every smaller lock is compiled under the largest one's pins, so that they can never disagree.
LOCKS = (
    ("requirements-dev.txt", ["--all-extras"]),
    ("requirements-workloads.txt", ["--extra", "workloads", "--constraint", "requirements-dev.txt"]),
    ("requirements.txt", ["--constraint", "requirements-dev.txt"]),
)


def main() -> None:
    """Write the three files. `--universal` makes them fit every platform and Python from 3.11."""
    for name, selection in LOCKS:
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "pyproject.toml", "--output-file", name),
            *("--universal", "--python-version", "3.11", "--generate-hashes"),
            # Annotations and addresses would tie the file to one machine's set-up.
            *("--no-emit-index-url", "--no-annotate", "--no-header", *selection),
        ]
        subprocess.run(command, cwd=ROOT, check=True)
        print(f"{name}: {sum('==' in line for line in (ROOT / name).read_text().splitlines())} packages")


if __name__ == "__main__":
    main()
