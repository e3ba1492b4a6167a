"""Tells what the provider changed of the manifests so that this machine can run them (depth `pods`)."""

from __future__ import annotations

from rehearsal.cluster.fitted import CHANGES
from rehearsal.cluster.landlord.events import Scaled
from rehearsal.cluster.landlord.scene import Desk, Scene


class Scaling:
    """Each change once, as soon as it was made."""

    name = "scaling"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._told: set[str] = set()

    def step(self, _scene: Scene) -> None:
        """Tell what is new."""
        with self._desk.world.transaction() as view:
            changes: list[str] = view.setting(CHANGES, [])
        for change in changes:
            if change not in self._told:
                self._told.add(change)
                self._desk.tell(Scaled(change=change))
