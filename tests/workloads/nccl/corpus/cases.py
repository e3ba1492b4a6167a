"""Cases of the corpus: files, options, and the expected verdict. The kinds that fail are exact.

The files have the formats of nccl-tests 2.0 to 2.19, of NCCL 2.26 and of this project's results, with hosts that do not
exist. Good runs have bandwidths near the published ones of their machines (infra/catalog/baselines.py); the others
differ from a good one in what their case is about. A new file is such a change to a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "files"

ULTRA, P5 = "a3-ultragpu-8g", "p5.48xlarge"


@dataclass(frozen=True)
class Case:
    """One case. `results` and `logs` are names of files; `code` is the exit code.

    `fails` are the kinds of all findings with a code, `remarks` some of those without.
    """

    results: str | None
    logs: tuple[str, ...] = ("gib.log",)
    machine: str = ULTRA
    nodes: int = 2
    ops: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    code: int = 0
    outcome: str = "fail"
    fails: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [self.results or "no-results", *self.logs, self.machine if self.machine != ULTRA else ""]
        words += [f"{self.nodes}-nodes" if self.nodes != 2 else "", *self.ops, *self.options]
        return " ".join(word for word in words if word)


def passes(results: str, *logs: str, outcome: str = "pass", **expected: object) -> Case:
    return Case(results, logs, outcome=outcome, **expected)  # type: ignore[arg-type]


def fails(code: int, kinds: str, results: str | None, *logs: str, **expected: object) -> Case:
    return Case(results, logs, code=code, fails=frozenset(kinds.split()), **expected)  # type: ignore[arg-type]


GIB, EFA = "gib.log", "efa.log"
NO_LOG, NO_FLOOR, NO_CHECK = ("no_log",), ("no_floor",), ("no_check",)

CASES = [
    # Correct fabric, in the output of different tools and terminals.
    passes("gib-good.txt", GIB),
    passes("gib-good.txt", GIB, ops=("all_gather",)),
    passes("gib-good-mpirun.txt"),
    passes("gib-good-ansi-crlf.txt", GIB),
    passes("gib-good-pdsh.txt", GIB),
    passes("gib-good-skypilot.txt", GIB),
    passes("gib-good-mpi-build.txt", GIB),
    passes("gib-good-per-iteration.txt", GIB),
    passes("gib-good-version.txt", GIB),
    passes("gib-good-version.txt", options=NO_LOG, remarks=("no-log",)),
    passes("gib-good-unnamed.txt", GIB, ops=("all_gather",)),
    passes("efa-good.txt", EFA, machine=P5),
    passes("efa-good.json", "efa-ring.log", machine=P5),
    passes("a4-all-reduce.txt", "a4.log", machine="a4-highgpu-8g"),
    passes("p4d-old.txt", "p4d.log", machine="p4d.24xlarge"),
    passes("two-operations.txt", EFA, machine=P5, ops=("all_reduce",)),
    passes("own-good.json"),
    # Slow, and nearly slow.
    fails(2, "below", "below.txt", GIB),
    fails(2, "below", "just-below.txt", GIB),
    passes("warn.txt", GIB, outcome="warn", remarks=("slow",)),
    passes("own-border.json", outcome="warn"),
    fails(2, "below", "own-under-the-border.json"),
    fails(2, "below", "in-place-better.txt", GIB),
    fails(2, "below", "largest-row-slow.txt", GIB),
    passes("largest-row-good.txt", GIB),
    fails(2, "below", "two-operations.txt", EFA, machine=P5),
    fails(2, "below", "p5en-4-nodes.txt", "p5en-ring.log", machine="p5en.48xlarge", nodes=4),
    passes("p5en-4-nodes.txt", "p5en-nvlstree.log", machine="p5en.48xlarge", nodes=4),
    fails(2, "below", "p5en-4-nodes.txt", machine="p5en.48xlarge", nodes=4, options=NO_LOG),
    # No published figure.
    fails(2, "no-baseline", "small.txt", GIB),
    passes("small.txt", GIB, options=NO_FLOOR, remarks=("small", "no-baseline")),
    fails(2, "no-baseline", "half-gib.txt", GIB, remarks=("small",)),
    fails(2, "no-baseline", "two-gib.txt", GIB),
    fails(2, "no-baseline", "a4-all-gather.txt", "a4.log", machine="a4-highgpu-8g", remarks=("unconfirmed",)),
    fails(2, "no-baseline", "gib-good.txt", machine="p5en.48xlarge", options=NO_LOG),
    fails(2, "no-baseline", "gib-good.txt", machine="p5e.48xlarge", options=NO_LOG),
    passes("gib-good.txt", machine="p5en.48xlarge", options=(*NO_LOG, *NO_FLOOR)),
    fails(2, "no-baseline", "hypercube.txt", GIB),
    passes("hypercube.txt", GIB, options=NO_FLOOR),
    fails(2, "not-measured", None, GIB),
    # Not what was requested.
    fails(5, "socket-transport below", "tcp-fallback.txt"),
    fails(5, "socket-transport", "gib-good.txt", "socket.log"),
    fails(5, "nic-missing", "gib-good.txt", "gib-nic-missing.log"),
    fails(5, "nic-missing", "efa-good.txt", "efa-nic-missing.log", machine=P5),
    fails(5, "no-gdrdma", "gib-good.txt", "gib-no-gdrdma.log"),
    fails(5, "other-plugin nic-missing another-run", "efa-good.json", "gib.log", machine=P5),
    fails(5, "truncated-log", "gib-good.txt", "gib-cut.log"),
    fails(5, "no-log", "gib-good.txt"),
    passes("gib-good.txt", options=NO_LOG, remarks=("no-log",)),
    fails(5, "socket-transport", "gib-good.txt", "socket.log", options=NO_LOG),
    fails(5, "socket-transport not-measured", None, "socket.log"),
    fails(5, "another-run", "other-run.txt", GIB),
    fails(5, "some-nodes", "gib-good.txt", "gib-one-node.log"),
    fails(5, "whose-time", "fastest-rank.txt", GIB),
    fails(5, "same-host too-few-ranks", "one-host.txt", options=(*NO_LOG, *NO_FLOOR)),
    fails(5, "same-host", "one-host-16-ranks.txt", options=NO_LOG),
    fails(5, "another-run", "three-hosts.txt", options=NO_LOG),
    fails(5, "uneven", "uneven.txt", options=NO_LOG),
    fails(5, "another-run no-baseline", "p5en-4-nodes.txt", machine="p5en.48xlarge", options=NO_LOG),
    fails(5, "over-limit too-few-ranks no-baseline", "nvlink-pair.txt", options=NO_LOG),
    fails(5, "over-limit", "too-fast.txt", GIB),
    fails(5, "over-limit", "too-fast-all-reduce.txt", GIB, options=NO_FLOOR),
    fails(5, "split below", "split.txt", GIB),
    fails(5, "too-few-ranks same-host below", "every-rank-alone.txt", GIB),
    fails(5, "other-gpu below", "other-gpu.txt", machine=P5, options=(*NO_LOG, *NO_FLOOR)),
    fails(1, "truncated damaged ranks-unknown hosts-unknown", "rows-only.txt", ops=("all_gather",), options=NO_LOG),
    fails(5, "unchecked", "unchecked.txt", GIB),
    passes("unchecked.txt", GIB, options=NO_CHECK, remarks=("unchecked",)),
    fails(5, "unchecked other-gpu", "unchecked.json", machine=P5, options=(*NO_LOG, *NO_FLOOR)),
    fails(5, "no-operation no-baseline", "gib-good.txt", GIB, ops=("reduce_scatter",)),
    fails(5, "no-log", "own-no-evidence.json"),
    fails(5, "same-host", "own-one-kernel.json"),
    fails(5, "gloo no-log too-few-ranks same-host no-baseline", "own-function.json"),
    # Wrong data, which precedes everything but unreadable files.
    fails(3, "wrong-data", "wrong.txt", GIB),
    fails(3, "wrong-data", "wrong-in-place.txt", GIB),
    fails(3, "wrong-data", "wrong-footer.txt", GIB),
    fails(3, "wrong-data socket-transport", "wrong-and-tcp.txt"),
    fails(3, "wrong-data", "wrong.json", GIB),
    fails(3, "wrong-data", "own-wrong.json"),
    # Hangs.
    fails(4, "hang", "hang.txt", GIB),
    fails(5, "hang socket-transport", "hang-over-tcp.txt"),
    fails(4, "hang no-baseline", "hang-half-way.txt", GIB),
    fails(4, "hang", "empty.txt", "watchdog.log"),
    fails(4, "hang", None, "watchdog.log"),
    passes("gib-good.txt", "watchdog.log", remarks=("hang",)),
    fails(4, "hang", "own-hang.json"),
    fails(4, "hang below", "own-hang-and-slow.json"),
    # Unreadable or inconsistent files.
    fails(1, "unreadable", "empty.txt", GIB),
    fails(1, "unreadable socket-transport", "empty.txt", "socket.log"),
    fails(1, "no-rows", "no-rows.txt", GIB),
    fails(1, "no-rows", "no-rows-footer.txt", GIB),
    fails(1, "truncated damaged", "cut-in-a-row.txt", GIB),
    fails(1, "truncated", "cut-between-rows.txt", GIB),
    fails(1, "truncated wrong-data", "wrong-and-cut.txt", GIB),
    fails(1, "unreadable", "cut.json", GIB),
    fails(1, "unreadable", "other.json", GIB),
    fails(1, "unreadable", "other-schema.json", GIB),
    fails(1, "unreadable", "mpirun-failed.txt", GIB),
    fails(1, "unreadable", "cpu-time.txt", GIB),
    fails(1, "damaged", "no-figures.txt", GIB),
    fails(1, "units", "gigabits.txt", GIB),
    fails(1, "units", "gibibytes.txt", GIB),
    fails(1, "units", "milliseconds.txt", GIB),
    fails(1, "units wrong-data", "gigabits-and-wrong.txt", GIB),
    fails(1, "no-operation", "gib-good-unnamed.txt", GIB),
    fails(1, "broken no-rows", "own-broken.json"),
]
