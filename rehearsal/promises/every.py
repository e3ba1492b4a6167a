"""The promises of each target."""

from __future__ import annotations

from rehearsal.promises import gke, kubernetes
from rehearsal.promises.promise import Promise

PROMISES: dict[str, tuple[Promise, ...]] = {"gke": (*gke.PROMISES, *kubernetes.PROMISES)}
"""A target that is not here makes nothing that a simulated cloud knows."""
