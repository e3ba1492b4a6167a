"""What is to be measured: written by the client, read by the driver. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.nccl.result import Mode


@dataclass(frozen=True)
class Spec:
    """One benchmark run: every size of every operation, in each data type and mode.

    `sizes` in bytes; `check` is how many verified runs come before and after the timed ones (0: none). `patterns` are
    those of p2p, `limits` what the machine's links carry at most (None where that is not known). `timeout_s` bounds the
    forming of the group and each row, `wait_s` the wait for nodes. `elastic` says that an autoscaler may add nodes, so
    that a request that does not fit yet is no error. `environment` is set in the ranks' processes from their start.
    `left_out` names what `--op all` could not take in, `logs` brings NCCL's own logs home. `no_floor` is for the judge,
    and written down here so that whoever follows the job later judges alike. `inject_fault` is a rehearsal of what a
    broken fabric looks like, recorded in the result; see `Fault`.
    """

    ops: list[str]
    sizes: list[int]
    iterations: int
    warmup: int
    check: int
    dtypes: list[str]
    modes: list[Mode]
    nodes: int
    per_node: int
    use_gpu: bool
    timeout_s: float
    wait_s: float
    elastic: bool
    target: str
    machine: str | None = None
    preset: str | None = None
    algo: str | None = None
    patterns: list[str] = field(default_factory=list)
    limits: dict[str, Any] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    logs: bool = False
    no_floor: bool = False
    inject_fault: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Spec:
        return Spec(**json.loads(text))


@dataclass(frozen=True)
class Fault:
    """A planted fault on one rank: `KIND:RANK[:WHEN]`.

    `corrupt` flips one bit of one received element, `stale` keeps the receive buffer as it was, `hang` never starts.
    `when` is `before` (the first verification), `timed` (the last timed run; a stale one: all of them), `after` (the
    last verification), or None for all of these.
    """

    kind: str
    rank: int
    when: str | None = None

    KINDS = ("corrupt", "stale", "hang")
    TIMES = ("before", "timed", "after")


def parse_fault(text: str | None, ranks: int) -> Fault | None:
    """The fault that `--inject-fault` asks for; ValueError where there is no such fault."""
    if text is None:
        return None
    kind, _, rest = text.partition(":")
    rank, _, when = rest.partition(":")
    known = kind in Fault.KINDS and rank.isdigit() and int(rank) < ranks and when in ("", *Fault.TIMES)
    if not known or (kind == "hang" and when):
        raise ValueError(
            f"{text!r} is no fault: write corrupt:RANK, stale:RANK or hang:RANK with a rank below {ranks};"
            " the first two take :before, :timed or :after as well"
        )
    return Fault(kind, int(rank), when or None)
