"""What the landlord's nodes run on, and what its controllers run as: numbers in an API server, or real machines."""

from __future__ import annotations

from typing import Protocol

from rehearsal.clouds.kind import Json
from rehearsal.cluster.controllers.pools import Pool
from tools.kubernetes.api import Api
from tools.kubernetes.control_plane import ControlPlane


class Machines(Protocol):
    """Where a pool's nodes come from."""

    real: bool
    """Whether a node takes its time to be ready, and pods run on it."""

    def room(self) -> int | None:
        """How many more nodes there may be; None for any number."""

    def start(self, pool: Pool, body: Json) -> Json:
        """Make a node of this Node object; returns the object as it is now, ready or not."""

    def stop(self, name: str) -> None:
        """Take a node away, whose Node object is gone."""

    def check(self) -> None:
        """Raise what went wrong."""


class Operators(Protocol):
    """Who runs the controllers that Helm releases bring, each from the values of its chart."""

    def start_kuberay(self, values: Json | None = None) -> None:
        """Start KubeRay's operator, with its CRDs; returns when it is ready."""

    def stop_kuberay(self) -> None:
        """End it."""

    def start_kueue(self, values: Json | None = None) -> None:
        """Start Kueue, with its CRDs; returns when its webhooks answer."""

    def stop_kueue(self) -> None:
        """End it, and take away what it brought."""


class KwokNodes:
    """Nodes that are objects of the API server alone; kwok plays their kubelets."""

    real = False

    def __init__(self, api: Api) -> None:
        self._api = api

    def room(self) -> int | None:
        """As many as one likes."""
        return None

    def start(self, _pool: Pool, body: Json) -> Json:
        """Write the object."""
        return self._api.create(body)

    def stop(self, name: str) -> None:
        """There is nothing behind it."""

    def check(self) -> None:
        """Nothing can go wrong."""


class LocalOperators:
    """Controllers as programs beside a control plane; the operator asks for Ray's dashboards at `dashboard`."""

    def __init__(self, plane: ControlPlane, dashboard: str) -> None:
        self._plane = plane
        self._dashboard = dashboard
        self.stop_kuberay = plane.stop_kuberay
        self.start_kueue = plane.start_kueue
        self.stop_kueue = plane.stop_kueue

    def start_kuberay(self, values: Json | None = None) -> None:
        """Start the operator, which finds every dashboard behind one proxy."""
        self._plane.start_kuberay(values, dashboard_proxy=self._dashboard)
