"""The folder of the stack files, and the version of the project.

The code runs in a clone, or in an installed package (`rdma_ray`), which has no stack files: a command takes those of
the clone, or else of the folder, that it is run in.
"""

from __future__ import annotations

import os
import re
import tomllib
from importlib.metadata import version as installed
from pathlib import Path

CODE = Path(__file__).resolve().parents[1]
"""Folder of `infra` and `workloads`."""
_NAME = re.compile(rb"^name: rdma-ray$", re.MULTILINE)
_LARGEST = 2**20


def is_clone(folder: Path) -> bool:
    """Return whether a folder is a clone of this project that another user of the machine cannot have put there.

    A command may run the engine that is in it. The folder of the code itself always counts.
    """
    if folder == CODE:
        return True
    try:
        with (folder / "Pulumi.yaml").open("rb") as file:
            owners = {folder.stat().st_uid, os.fstat(file.fileno()).st_uid}
            return owners <= {os.getuid(), 0} and _NAME.search(file.read(_LARGEST)) is not None
    except OSError:
        return False


def _project() -> Path:
    if (CODE / "Pulumi.yaml").is_file():
        return CODE
    try:
        here = Path.cwd()
    except FileNotFoundError:  # somebody has removed it
        return CODE
    return next(filter(is_clone, (here, *here.parents)), here)


PROJECT = _project()
"""The clone; for an installed package, the clone that the current folder is in, or else the current folder."""


def version() -> str:
    """Return the version of the project."""
    file = CODE / "pyproject.toml"
    if not file.is_file():
        return installed("rdma-ray")
    found: str = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"]
    return found
