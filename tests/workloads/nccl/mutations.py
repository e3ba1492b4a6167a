"""Mutations of the judge's readers and checks, each of which drops or weakens one, and what catches them.

    python -m tests.workloads.nccl.mutations          # all; exit code 1 if one is not caught
    python -m tests.workloads.nccl.mutations NUMBER   # one: exit code 0 if it is caught

Each runs in a process of its own, in which the import of its module takes the changed text; it is caught by the first
case or variation (test_variations.py) that the judge then gets wrong.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT, LOG, TABLE = "evidence.log_text", "evidence.log_reader", "nccl.judge.nccl_tests"
PROBLEMS, CHECKS, VERDICT, READING, RULES = (
    "nccl.problems", "nccl.judge.checks", "nccl.judge.verdict", "nccl.judge.reading", "nccl.judge.expectation",
)  # fmt: skip
COUNT, SEEDS = 2_500, (101, 102, 103, 104)

MUTATIONS: Sequence[tuple[str, str, str]] = (
    # What carries the lines.
    (TEXT, 'if data.startswith((b"\\xff\\xfe\\x00\\x00"', 'if not data.startswith((b"\\xff\\xfe\\x00\\x00"'),
    (TEXT, 'elif data.startswith((b"\\xff\\xfe", b"\\xfe\\xff")):', "elif False:"),
    (TEXT, '"utf-8-sig", "replace"', '"utf-8", "replace"'),
    (TEXT, "if (texts := _json(line)) is None:", "if (texts := None) is None:"),
    (TEXT, '_json(line) if line.startswith("{") else None', "None"),
    (TEXT, 'if text.endswith("\\n"):\n            text, self._held', "if True:\n            text, self._held"),
    (
        TEXT,
        'if (" F" in line or " P" in line) and (cri := _CRI.match(line)):',
        "if False and (cri := _CRI.match(line)):",
    ),
    (TEXT, 'part = line.rstrip("\\n") if cri["tag"] == "P" else ""', 'part = ""'),
    (TEXT, 'if "\\x1b" in line:\n            line = ANSI', "if False:\n            line = ANSI"),
    (TEXT, "if member := _MEMBER.match(line):", "if member := None:"),
    (TEXT, "line, column = _csv(line, column)\n                texts", "texts"),
    (TEXT, '    r"|1\\d{9}(?:\\.\\d{1,9})?(?=[A-Za-z])"\n', ""),
    (TEXT, "(?:\\(\\w{1,120}\\) )?", ""),
    # NCCL's log.
    (LOG, "for number, message in enumerate(messages):", "for number, message in enumerate(messages[:1]):"),
    (LOG, "if self.whole:  # GDRDMA", "if True:  # GDRDMA"),
    (LOG, "elif len(text) < 24 and any(start.startswith(text) for start in STARTS):", "elif False:"),
    (LOG, "if not _RING.fullmatch(text) and not any(", "if False and not any("),
    (LOG, 'gdrdma=bool(match["gdrdma"])', "gdrdma=True"),
    (
        LOG,
        "min(self.nics_found.get(process, 2**31), int(found[3]))",
        "max(self.nics_found.get(process, 0), int(found[3]))",
    ),
    (LOG, "found[host] = min(count, found.get(host, count))", "found[host] = max(count, found.get(host, count))"),
    (LOG, "cut = any(comm.unfinished for comm in comms) or (self.began and not comms)", "cut = False"),
    (LOG, "truncated=self.lines > 0 and (cut or not self.whole)", "truncated=False"),
    (LOG, "damaged = self._really_damaged()", "damaged = list[str]()"),
    (LOG, "hidden=self.hidden", "hidden=0"),
    (LOG, "return (using | carried) or assigned", "return using or assigned"),
    (LOG, 'self.every["mixed"][text[:LONGEST_WARNING]] = None', "pass"),
    # nccl-tests' output.
    (TABLE, 'wrong = None if values[3] == "N/A" else values[3] if names[3] == "#wrong" else 0', "wrong = 0"),
    (TABLE, 'max(int(match[1]), int(match[2] == "FAILED"))', "int(match[1])"),
    (TABLE, "self.table(line[: match.start()], whole=False)  # a row whose line end was lost", "pass"),
    (TABLE, "if columns is None or not self.headed:", "if columns is None:"),
    (TABLE, "if columns is None or not self.headed:", "if False:"),
    (TABLE, 'not names.count("time") == names.count("algbw") == names.count("busbw")', "False"),
    (TABLE, "elif whole and _CUT_ROW.match(line)", "elif False"),
    (TABLE, "(?:.{0,200}(?:[\\])>:]|\\dZ) ?)?", ""),
    (TABLE, "if reader.announced:", "if False:"),
    (TABLE, "len(values) == width - block and _BLANK.search(rest)", "len(values) == width - block"),
    (TABLE, '    r"|watchdog got stuck|[Hh]eartbeat monitor timed out"\n', ""),
    (TABLE, "return name.lower() if name.isalpha() and name.isascii() else None", 'return name.strip("^").lower()'),
    (
        TABLE,
        'self.named, self.algorithm, self.average, self.announced = "", None, None, False',
        "self.announced = False",
    ),
    (
        TABLE,
        "self.op, self.columns, self.headed = self.named or self.default",
        "self.op, self.columns, self.headed = self.named or 'all_gather'",
    ),
    (TABLE, 'if "#" in line and foreign is None and REPEATED.search(line):', "if False:"),
    # The checks.
    (CHECKS, "if found.hang:", "if False:"),
    (CHECKS, 'elif found.form == "nccl-tests" and not is_whole(found):', "elif False:"),
    (CHECKS, "if run.damaged:", "if False:"),
    (CHECKS, "run.largest <= run.above", "False"),
    (CHECKS, "bad = [row for row in run.rows if any(figures.wrong for figures in row.columns)]", "bad = []"),
    (CHECKS, "if not _agree(figures.algbw, expected, coarse):", "if False:"),
    (CHECKS, "elif found < expected.ranks:", "elif False:"),
    (CHECKS, "elif count < nodes:", "elif False:"),
    (CHECKS, "if 0 < len(hosts) < min(expected.nodes, found.log.nnodes or expected.nodes):", "if False:"),
    (CHECKS, "if best > rules.TOLERANCE * limit:", "if False:"),
    (CHECKS, "elif share < rules.FAIL_BELOW:", "elif False:"),
    (CHECKS, '    if others:\n        text = f"{machine.name}', '    if False:\n        text = f"{machine.name}'),
    (PROBLEMS, "    if sockets:\n        yield failure(", "    if False:\n        yield failure("),
    (PROBLEMS, "    if plain:\n", "    if False:\n"),
    (PROBLEMS, "        if count < nics:\n", "        if False:\n"),
    (PROBLEMS, "    if facts is None:\n", "    if facts is None:\n        return\n    if False:\n"),
    (PROBLEMS, "    if facts.hidden:\n", "    if False:\n"),
    (PROBLEMS, "    if facts.damaged:\n", "    if False:\n"),
    (PROBLEMS, "    if not facts.carried and not facts.truncated:\n", "    if False:\n"),
    (PROBLEMS, "    if facts.mixed:\n", "    if False:\n"),
    (READING, "if merged is not None and len(found.runs) > 1:", "if False:"),
    (RULES, "FAIL_BELOW = MARGIN", "FAIL_BELOW = 0.50"),
    (RULES, "floor.algorithm is None or not algorithms or floor.algorithm in algorithms", "True"),
)


def changed(number: int) -> tuple[str, str]:
    """Return the module of a mutation and its changed text. ValueError if the text does not have the place once."""
    module, old, new = MUTATIONS[number]
    name = f"workloads.{module}"
    source = (ROOT / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise ValueError(f"mutation {number}: {name} has this text {source.count(old)} times: {old}")
    return name, source.replace(old, new)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._source, self._name, "exec"), module.__dict__)


def caught(number: int) -> str:
    """Return the first case or variation that the mutated judge gets wrong; empty if there is none."""
    sys.meta_path.insert(0, _Finder(*changed(number)))
    from tests.workloads.nccl.test_variations import expectations, wrong

    try:
        if found := expectations():
            return f"without variation: {found[0]}"
        return next((found for seed in SEEDS for found in wrong(COUNT, seed)), "")
    except Exception as error:
        return f"the judge fails: {type(error).__name__}: {error}"


def main(arguments: Sequence[str]) -> int:
    if arguments:
        found = caught(int(arguments[0]))
        print(found)
        return 0 if found else 1

    def run(number: int) -> tuple[int, str]:
        command = [sys.executable, "-m", "tests.workloads.nccl.mutations", str(number)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return done.returncode, (done.stdout or done.stderr).strip()[-300:]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(run, range(len(MUTATIONS))))
    for (module, old, new), (code, said) in zip(MUTATIONS, results, strict=True):
        print(f"{'NOT caught' if code else 'caught'}  {module}: {old.strip()!r} -> {new.strip()!r}\n    {said}")
    missed = sum(code != 0 for code, _ in results)
    print(f"{len(MUTATIONS) - missed} of {len(MUTATIONS)} mutations are caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
