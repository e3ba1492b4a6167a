"""Fakes of the system's programs that create namespaces, mounts and links: they record how they are called.

With them the machine of namespaces (tools/kubernetes/node_guard.py, node_machine.py) runs with plain processes and
without root; tests/pods uses the real programs.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.clone import executable

# It forks like the real one, whose child is the machine's first process.
_UNSHARE = """#!/bin/sh
echo "unshare $*" >> NOTES
while [ "${1#-}" != "$1" ]; do shift; done
"$@"
exit $?
"""
_NOTES = """#!/bin/sh
echo "NAME $*" >> NOTES
"""


class StandIns:
    """A folder to put first on PATH; `asked` has a line for every call of its programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "programs"
        self.folder.mkdir()
        self._notes = folder / "notes"
        self._notes.touch()
        self.write("unshare", _UNSHARE)
        for name in ("mount", "hostname", "ip", "nft", "nsenter"):
            self.write(name, _NOTES.replace("NAME", name))

    @property
    def path(self) -> str:
        """PATH with this folder first."""
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    @property
    def asked(self) -> list[str]:
        """Calls so far, one line each."""
        return self._notes.read_text().splitlines()

    def write(self, name: str, text: str) -> None:
        """Put a program there; NOTES stands for the file of the notes."""
        executable(self.folder / name, text.replace("NOTES", str(self._notes)))
