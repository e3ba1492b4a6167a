"""Command lines of clouds that answer from recordings, and fail on a request that no recording has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.clone import executable

SCRIPT = """#!{python} -IS
import json, os, re, sys, time
argv = " ".join([os.path.basename(sys.argv[0]), *(each for each in sys.argv[1:] if not each.startswith({ignored}))])
found = [each for each in json.load(open({answers!r})) if re.fullmatch(each["argv"], argv)]
if not found or {unique} and len(found) > 1:
    with open({unknown!r}, "a") as file:
        file.write(argv + "\\n")
    sys.exit(f"{{len(found)}} recordings of {{argv}}")
time.sleep(found[0].get("delay", 0))
sys.stdout.buffer.write(found[0].get("stdout", "").encode("utf-8", "surrogatepass"))
sys.stderr.buffer.write(found[0].get("stderr", "").encode("utf-8", "surrogatepass"))
sys.exit(found[0].get("code", 0))
"""
UNKNOWN = "unknown.txt"
"""File in the folder with the requests that no recording has."""


def install(
    folder: Path,
    recordings: Iterable[Mapping[str, Any]],
    programs: Iterable[str],
    *,
    ignored: tuple[str, ...] = (),
    unique: bool = False,
) -> None:
    """Write programs into a folder that answer with these recordings.

    Args:
        recordings: Each is {argv, stdout, stderr, code, delay}: a regular expression of the whole command line; texts
            to print; the exit status; seconds before the answer. The first one that matches counts.
        ignored: Beginnings of arguments that no recording has.
        unique: Whether a request that several recordings have is unknown.
    """
    file = folder / "answers.json"
    file.write_text(json.dumps([*recordings]))
    unknown = str(folder / UNKNOWN)
    script = SCRIPT.format(python=sys.executable, answers=str(file), unknown=unknown, ignored=ignored, unique=unique)
    for name in programs:
        executable(folder / name, script)
