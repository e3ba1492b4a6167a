"""Backends of the cloud controllers: simulated or real nodes, and the controllers of Helm releases."""

from __future__ import annotations

from typing import Protocol

from rehearsal.clouds.kind import Json
from rehearsal.cluster.controllers.pools import Pool
from tools.kubernetes.api import Api
from tools.kubernetes.control_plane import ControlPlane


class Machines(Protocol):
    """Provides the nodes of pools."""

    real: bool
    """Whether nodes take time to become ready, and pods run on them."""

    def room(self) -> int | None:
        """Return how many more nodes fit; None for no limit."""

    def start(self, pool: Pool, body: Json) -> Json:
        """Start a node from this Node object; return the object, ready or not."""

    def stop(self, name: str) -> None:
        """Stop a node whose Node object was deleted."""

    def check(self) -> None:
        """Raise the error of a node."""


class Operators(Protocol):
    """Runs the controllers of Helm releases with the values of their charts."""

    def start_kuberay(self, values: Json | None = None) -> None:
        """Start KubeRay's operator with its CRDs; return when it is ready."""

    def stop_kuberay(self) -> None:
        """Stop it."""

    def start_kueue(self, values: Json | None = None) -> None:
        """Start Kueue with its CRDs; return when its webhooks answer."""

    def stop_kueue(self) -> None:
        """Stop it, and delete what it installed."""


class KwokNodes:
    """Nodes that exist only in the API server; kwok simulates their kubelets."""

    real = False

    def __init__(self, api: Api) -> None:
        self._api = api

    def room(self) -> int | None:
        """Return no limit."""
        return None

    def start(self, _pool: Pool, body: Json) -> Json:
        """Create the object."""
        return self._api.create(body)

    def stop(self, name: str) -> None:
        """Do nothing: there is no machine."""

    def check(self) -> None:
        """Do nothing: there is no machine."""


class LocalOperators:
    """Controllers as local processes next to a control plane. The operator reaches Ray's dashboards at `dashboard`."""

    def __init__(self, plane: ControlPlane, dashboard: str) -> None:
        self._plane = plane
        self._dashboard = dashboard
        self.stop_kuberay = plane.stop_kuberay
        self.start_kueue = plane.start_kueue
        self.stop_kueue = plane.stop_kueue

    def start_kuberay(self, values: Json | None = None) -> None:
        """Start the operator with the proxy for all dashboards."""
        self._plane.start_kuberay(values, dashboard_proxy=self._dashboard)
