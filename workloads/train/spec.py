"""What is to be trained: written by the client, read by the driver. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spec:
    """One training run. `storage` is a path or URI that every node sees; `resume` says that `name` must exist there.

    `elastic` says that an autoscaler may add nodes, so that workers that do not fit yet are no error.
    """

    name: str
    storage: str
    resume: bool
    epochs: int
    workers: int
    use_gpu: bool
    min_accuracy: float
    wait_s: float
    elastic: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Spec:
        return Spec(**json.loads(text))
