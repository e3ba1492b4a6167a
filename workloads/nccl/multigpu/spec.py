"""What is to be checked: written by the client, read by the driver. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

BACKENDS = ("auto", "nccl", "gloo")


@dataclass(frozen=True)
class Spec:
    """One check: `nodes` workers with `devices` tensors each.

    With `use_gpu` a worker has that many GPUs, and a tensor on each; else one CPU. `backend` is one of BACKENDS: `auto`
    takes NCCL where there are GPUs and CuPy, and gloo elsewhere. `timeout_s` bounds each step, `wait_s` the wait for
    nodes and for the workers' start. `inject_fault` is `corrupt:RANK`, a rehearsal.
    """

    nodes: int
    devices: int
    use_gpu: bool
    backend: str
    timeout_s: float
    wait_s: float
    elastic: bool
    inject_fault: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Spec:
        return Spec(**json.loads(text))


def parse_fault(text: str | None, nodes: int) -> int | None:
    """The worker whose result `corrupt:RANK` spoils; ValueError for anything else."""
    if text is None:
        return None
    kind, _, rank = text.partition(":")
    if kind != "corrupt" or not rank.isdecimal() or int(rank) >= nodes:
        raise ValueError(f"{text!r} is no fault: write corrupt:RANK with a rank below {nodes}")
    return int(rank)
