"""Console blocks of documentation pages: commands with the output that the page shows, compared by its shape."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

UPDATE = "UPDATE_GOLDENS"
# ```console: commands after "$ ", each with its output. ```python hello.py: a file of the folder.
BLOCK = re.compile(r"^```(console|\w+ \S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_LINES = "…"


@dataclass
class Command:
    """A command of the page, and the lines that the page shows after it."""

    text: str
    shown: list[str] = field(default_factory=list)


def commands(block: str) -> list[Command]:
    """Return the commands of a console block."""
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ ")))
        else:
            found[-1].shown.append(line)
    return found


def shape(line: str) -> str:
    """Return a line without what differs between runs: figures, IDs, addresses, units of time, widths of columns."""
    line = re.sub(r"\b([a-z]+)-\d{8}-\d{6}-[0-9a-f]{6}\b", r"\1-ID", line.rstrip())
    line = re.sub(r"[0-9a-f]{40,}", "ID", line)
    line = re.sub(r"-?\d+(?:[.:,T/-]\d+)*(?:Z|s)?", "0", line)
    line = re.sub(r"\b0 (?:µs|ms|min)\b", "0 s", line)
    return re.sub(r"\s+|[─━═]+", " ", line).strip()


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Return whether the printed lines have the shapes shown.

    `…` stands for any text, and alone in its line for any lines.
    """
    if not shown:
        return not printed
    if shown[0].strip() == ANY_LINES:
        return any(agrees(shown[1:], printed[count:]) for count in range(len(printed) + 1))
    pattern = re.escape(shape(shown[0])).replace(ANY_LINES, ".*")
    return bool(printed) and re.fullmatch(pattern, shape(printed[0])) is not None and agrees(shown[1:], printed[1:])


def bash(
    command: str, folder: Path, environment: Mapping[str, str], within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder; stdout and stderr are in the order that a terminal shows."""
    return subprocess.run(
        ["bash", "-c", command],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s,
    )


def played(text: str, folder: Path, run: Callable[[str], str | None]) -> str:
    """Write the files of a text's blocks into a folder, and run the commands of its console blocks, in their order.

    Each has to print the shape that the text shows; with UPDATE in the environment, the result is the text with what
    they print instead. `run` returns None for a command that it leaves out.
    """
    updated = text
    for kind, block in BLOCK.findall(text):
        if kind != "console":
            (folder / kind.split()[1]).write_text(block, encoding="utf-8")
            continue
        lines = []
        for command in commands(block):
            shown, said = command.shown, run(command.text)
            if said is not None and not agrees(shown, printed := [line.rstrip() for line in said.splitlines()]):
                assert UPDATE in os.environ, f"$ {command.text}\n{said}"
                shown = printed
            lines += [f"$ {command.text}", *shown]
        updated = updated.replace(block, "".join(f"{line}\n" for line in lines))
    return updated
