"""What is to be measured: written by the client, read by the driver. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spec:
    """One benchmark run.

    `sizes` in bytes; `timeout_s` bounds the forming of the group and each row, `wait_s` the wait for nodes. `elastic`
    says that an autoscaler may add nodes, so that a request that does not fit yet is no error. `inject_fault` is
    `corrupt:RANK` or `hang:RANK`: a rehearsal of what a broken fabric looks like, recorded in the result.
    """

    ops: list[str]
    sizes: list[int]
    iterations: int
    warmup: int
    dtype: str
    nodes: int
    per_node: int
    use_gpu: bool
    timeout_s: float
    wait_s: float
    elastic: bool
    target: str
    inject_fault: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Spec:
        return Spec(**json.loads(text))


def parse_fault(text: str | None, ranks: int) -> tuple[str, int] | None:
    """(`corrupt` or `hang`, rank) of `--inject-fault`; ValueError where it is neither."""
    if text is None:
        return None
    kind, _, rank = text.partition(":")
    if kind not in ("corrupt", "hang") or not rank.isdigit() or int(rank) >= ranks:
        raise ValueError(f"{text!r} is no fault: write corrupt:RANK or hang:RANK with a rank below {ranks}")
    return kind, int(rank)
