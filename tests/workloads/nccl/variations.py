"""Ways in which logs reach the judge: what launchers and collectors add, and what gets lost. Deterministic by the seed.

A *wrapper* keeps all information, so the verdict stays. A *damage* may lose some, so a log that fails must not pass.

Forms: Ray's (ray: _private/ray_logging, 2.60) and torchrun's --tee (torch: distributed/elastic, 2.15) from their code,
read 2026-11-26; the others as logs in public issues have them (srun --label, Open MPI's tags, kubectl, SkyPilot,
SageMaker, docker's json-file, CRI, Container Insights, Cloud Logging, CSV of CloudWatch, NCCL_DEBUG_TIMESTAMP_FORMAT).
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from functools import partial

_MESSAGE = re.compile(r"[\w.-]+:\d+:\d+ \[\d+\] NCCL ")
Lines = list[str]
"""Lines without their ends. A wrapper may return one that contains line ends."""
Change = Callable[[Lines, random.Random], Lines]


def prefix(form: str, lines: Lines, chance: random.Random, nccl_only: bool = False) -> Lines:
    """Put a launcher's mark before each line, with another rank or second in each."""

    def mark(line: str) -> str:
        rank, second = chance.randrange(16), chance.randrange(60)
        # NCCL writes its stamp before its own message, which may follow a part of a row.
        return form.format(rank=rank, second=second, pod=rank // 8) if _MESSAGE.match(line) or not nccl_only else ""

    return [mark(line) + line for line in lines]


def docker(lines: Lines, chance: random.Random, part: int = 0) -> Lines:
    """Docker's json-file; with `part`, lines that are longer arrive in parts."""

    def parts(line: str) -> list[str]:
        text = f"{line}\n"
        return [text[at : at + part] for at in range(0, len(text), part)] if part else [text]

    entry = {"stream": "stdout", "time": f"2026-11-03T14:02:{chance.randrange(60):02d}.123456789Z"}
    return [json.dumps({"log": each, **entry}) for line in lines for each in parts(line)]


def cri(lines: Lines, chance: random.Random, part: int = 10**6) -> Lines:
    found = []
    for line in lines:
        pieces = [line[at : at + part] for at in range(0, len(line), part)] or [""]
        for number, piece in enumerate(pieces):
            flag = "F" if number + 1 == len(pieces) else "P"
            found.append(f"2026-11-03T14:02:{chance.randrange(60):02d}.123456789Z stdout {flag} {piece}")
    return found


def insights(lines: Lines, _: random.Random) -> Lines:
    pod = {"pod_name": "nccl-all-reduce-0", "namespace_name": "ray", "container_name": "nccl"}
    entry = {"time": "2026-11-03T14:02:07Z", "stream": "stdout", "kubernetes": pod}
    return [json.dumps({**entry, "log": line}) for line in lines]


def cloud_logging(lines: Lines, _: random.Random) -> Lines:
    entries = [
        {"insertId": f"{number:x}", "textPayload": line, "severity": "INFO"} for number, line in enumerate(lines)
    ]
    return json.dumps(entries, indent=2).split("\n")


def quoted(lines: Lines, _: random.Random) -> Lines:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([str(1762178527000 + at), line] for at, line in enumerate(lines))
    return file.getvalue().splitlines()


def colored(lines: Lines, _: random.Random) -> Lines:
    return [f"\x1b[36m(RayTrainWorker pid=22478, ip=10.0.41.17)\x1b[0m {line}\x1b[0m" for line in lines]


def with_others(lines: Lines, chance: random.Random) -> Lines:
    """Lines of other programs between those of the log."""
    others = ("W1103 14:02:07.1 ProcessGroup.cpp:1] barrier", "libfabric:31:1762::efa:core: info", "", "Knoten Köln")
    return [each for line in lines for each in ([chance.choice(others), line] if chance.random() < 0.1 else [line])]


def twice(lines: Lines, chance: random.Random) -> Lines:
    """Some of NCCL's lines twice, as two collectors write them."""
    return [each for line in lines for each in [line] * (2 if _MESSAGE.match(line) and chance.random() < 0.2 else 1)]


WRAPPERS: dict[str, Change] = {
    **{
        name: partial(prefix, form)
        for name, form in {
            "torchrun": "[default{rank}]:",
            "srun": "{rank:2d}: ",
            "mpirun": "[1,{rank}]<stdout>:",
            "mpirun 5": "[1,{rank}]<stdout>: ",
            "mpirun time": "Tue Nov  3 14:02:{second:02d} 2026<stdout>:",
            "kubectl": "[pod/nccl-all-reduce-{pod}/nccl] ",
            "kubectl time": "2026-11-03T14:02:{second:02d}.123456789Z ",
            "SkyPilot": "(worker{pod}, rank={pod}, pid=2117, ip=10.0.0.{pod}) ",
            "SageMaker": "[1,mpirank:{rank},algo-{pod}]<stdout>:",
            "pdsh": "node{pod}: ",
        }.items()
    },
    **{
        f"NCCL's stamp {form}": partial(prefix, form, nccl_only=True)
        for form in (
            "[2026-11-03 14:02:{second:02d}] ",
            "[14:02:{second:02d}]",
            "14:02:{second:02d}",
            "2026-11-03T14:02:{second:02d}.123",
            "17621785{second:02d}",
        )
    },
    "docker": docker,
    "docker in parts": partial(docker, part=60),
    "CRI": cri,
    "CRI in parts": partial(cri, part=60),
    "Container Insights": insights,
    "Cloud Logging": cloud_logging,
    "CSV": quoted,
    "docker in CSV": lambda lines, chance: quoted(docker(lines, chance), chance),
    "mpirun in docker": lambda lines, chance: docker(prefix("[1,{rank}]<stdout>:", lines, chance), chance),
    "CRI in Container Insights": lambda lines, chance: insights(cri(lines, chance), chance),
    "Ray": colored,
    "other lines": with_others,
    "duplicates": twice,
    "none": lambda lines, _: lines,
}


def torn(lines: Lines, chance: random.Random) -> Lines:
    """One line without its end."""
    at = chance.randrange(len(lines))
    return [*lines[:at], lines[at][: chance.randrange(len(lines[at]) + 1)], *lines[at + 1 :]]


def split(lines: Lines, chance: random.Random) -> Lines:
    at = chance.randrange(len(lines))
    cut = chance.randrange(len(lines[at]) + 1)
    return [*lines[:at], lines[at][:cut], lines[at][cut:], *lines[at + 1 :]]


def joined(lines: Lines, chance: random.Random) -> Lines:
    at = chance.randrange(max(1, len(lines) - 1))
    return [*lines[:at], "".join(lines[at : at + 2]), *lines[at + 2 :]]


def interleaved(lines: Lines, chance: random.Random) -> Lines:
    """One line in the middle of another one, as two processes write to one pipe."""
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    cut = chance.randrange(len(lines[at]) + 1)
    return [*lines[:at], lines[at][:cut] + lines[other], lines[at][cut:], *lines[at + 1 :]]


def truncated(lines: Lines, chance: random.Random) -> Lines:
    """The end is lost, within a line or between lines."""
    at = chance.randrange(len(lines))
    return [*lines[:at], lines[at][: chance.randrange(len(lines[at]) + 1)]]


def beheaded(lines: Lines, chance: random.Random) -> Lines:
    return lines[chance.randrange(len(lines)) :]


def repeated(lines: Lines, chance: random.Random) -> Lines:
    """Ray leaves similar lines out."""
    at = chance.randrange(len(lines))
    count = chance.randrange(2, 9)
    return [*lines[:at], f"{lines[at]} [repeated {count}x across cluster]", *lines[at + count :]]


def shuffled(lines: Lines, chance: random.Random) -> Lines:
    """Lines of several collectors, out of order within a short time."""
    return [line for _, line in sorted(enumerate(lines), key=lambda item: item[0] + chance.random() * 4)]


DAMAGES: dict[str, Change] = {
    function.__name__: function
    for function in (torn, split, joined, interleaved, truncated, beheaded, repeated, shuffled)
}

ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "UTF-8": str.encode,
    "UTF-8 with a mark": partial(str.encode, encoding="utf-8-sig"),
    "UTF-16 of PowerShell": partial(str.encode, encoding="utf-16"),
    "UTF-16, big": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": partial(str.encode, encoding="utf-16-le"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "Latin-1": partial(str.encode, encoding="latin-1", errors="replace"),
}
