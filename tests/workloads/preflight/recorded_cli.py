"""Command lines of clouds that answer from recordings, and fail on a request that no recording has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SCRIPT = """#!{python} -IS
import fnmatch, json, os, sys, time
argv = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
for answer in json.load(open({answers!r})):
    if fnmatch.fnmatchcase(argv, answer["argv"]):
        time.sleep(answer["delay"])
        sys.stdout.buffer.write(answer["stdout"].encode("utf-8", "surrogatepass"))
        sys.stderr.buffer.write(answer["stderr"].encode("utf-8", "surrogatepass"))
        sys.exit(answer["code"])
with open({unknown!r}, "a") as file:
    file.write(argv + "\\n")
sys.exit("no recording of " + argv)
"""
UNKNOWN = "unknown.txt"
"""File in the folder with the requests that no recording has."""


def install(folder: Path, recordings: Iterable[Mapping[str, Any]], programs: Iterable[str]) -> None:
    """Write programs into a folder that answer with these recordings.

    Each is {argv, document or stdout, stderr, code, delay}: a pattern of the whole command line; JSON or text to print;
    the exit status; seconds before the answer. A program without recordings is not written.
    """
    answers = [
        {
            "argv": str(each["argv"]).replace("[", "[[]"),
            "stdout": each["stdout"]
            if "stdout" in each
            else json.dumps(each["document"])
            if "document" in each
            else "",
            "stderr": each.get("stderr", ""),
            "code": each.get("code", 0),
            "delay": each.get("delay", 0),
        }
        for each in recordings
    ]
    file = folder / "answers.json"
    file.write_text(json.dumps(answers))
    script = SCRIPT.format(python=sys.executable, answers=str(file), unknown=str(folder / UNKNOWN))
    for name in programs:
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
