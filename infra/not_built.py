"""What the settings may ask for that this version does not make: legal, and refused all the same.

Rules that will always hold are `infra.legality`; these go when the thing is built.
"""

from __future__ import annotations

from infra.problems import OUR_CONTRACT, Problem
from infra.settings import Settings


def not_built(settings: Settings) -> list[Problem]:
    """Why this version cannot make the stack; empty if it can."""
    if settings.queue != "kueue":
        return []
    queued = settings.nodes.capacity == "flex-start-queued"
    return [
        Problem(
            settings=("queue",),
            values=(settings.queue,),
            says="This version makes no Kueue objects: nothing would admit a job"
            + (", nor ask for queued flex-start nodes." if settings.target == "gke" else "."),
            fix="set queue to none" + (" and nodes.capacity to flex-start" if queued else ""),
            source=OUR_CONTRACT,
        )
    ]
