"""Stand-ins for the system's programs that make namespaces, mounts and links: they note what they were asked for.

With them the machine of namespaces (tools/kubernetes/node_guard.py, node_machine.py) runs with plain processes and
without root; what the real ones do is shown in tests/pods.
"""

from __future__ import annotations

import os
from pathlib import Path

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
    """A folder to put first on PATH; `asked` is what the programs in it were asked for, one line each."""

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
        """PATH with them."""
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    @property
    def asked(self) -> list[str]:
        """What they were asked for so far."""
        return self._notes.read_text().splitlines()

    def write(self, name: str, text: str) -> None:
        """Put a program there; NOTES stands for the file of the notes."""
        program = self.folder / name
        program.write_text(text.replace("NOTES", str(self._notes)))
        program.chmod(0o755)
