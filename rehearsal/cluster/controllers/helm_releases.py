"""Helm releases: the real controllers of KubeRay and Kueue, and the status of the other charts.

Replaces Helm. At depth `cluster` a controller runs as a local process, at depth `pods` in a pod. Other effects of a
chart: devices on nodes (`devices`), growing pools on EKS (`autoscaler`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from infra.catalog.pins import DEVICE_API
from rehearsal.cluster import release_status
from rehearsal.cluster.controllers.devices import device_class
from rehearsal.cluster.controllers.snapshot import Context, Release, Snapshot
from rehearsal.engine.kind import Json
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.controller_pods import PodOperators

Start = Callable[[Json], object]
Commands = tuple[Start, Callable[[], object]]
_NOTHING: Commands = (lambda _values: None, lambda: None)
_PATIENCE_S = 5.0
EFA_DEVICE_CLASS = "efa.networking.k8s.aws"
"""Installed by the chart aws-dranet 1.0.0 (EKS docs node-efa, read 2026-11)."""


class HelmReleases:
    """Serves each release in its own thread, because a controller takes seconds to start."""

    def __init__(self, context: Context, operators: ControlPlane | PodOperators, dashboard: str) -> None:
        """Run controllers by `operators`. A local operator reaches Ray's dashboards by the proxy `dashboard`."""
        self._context = context
        self._served: dict[str, Release] = {}
        self._threads: dict[str, threading.Thread] = {}
        kuberay: Start = operators.start_kuberay
        if isinstance(operators, ControlPlane):
            kuberay = partial(operators.start_kuberay, dashboard_proxy=dashboard)
        self._controllers: dict[str, Commands] = {
            "kuberay-operator": (kuberay, operators.stop_kuberay),
            "kueue": (operators.start_kueue, operators.stop_kueue),
        }
        self._others: dict[str, Commands] = {
            "aws-dranet": (
                lambda _values: context.api.apply(device_class(EFA_DEVICE_CLASS), manager="helm"),
                lambda: context.api.delete(DEVICE_API, "DeviceClass", EFA_DEVICE_CLASS),
            )
        }

    def reconcile(self, snapshot: Snapshot) -> None:
        """Serve new and changed releases, stop deleted ones."""
        there = {release.id: release for release in snapshot.releases}
        for id_, served in list(self._served.items()):
            if there.get(id_) != served and self._idle(id_):
                del self._served[id_]
                self._work(id_, lambda served=served, gone=id_ not in there: self._end(served, gone))  # type: ignore[misc]
        for id_, release in there.items():
            if id_ not in self._served and self._idle(id_):
                self._served[id_] = release
                self._work(id_, lambda release=release: self._begin(release))  # type: ignore[misc]

    def close(self) -> None:
        """Wait briefly for the threads. The control plane stops the controllers, which ends the waits."""
        for thread in self._threads.values():
            thread.join(_PATIENCE_S)

    def _idle(self, id_: str) -> bool:
        thread = self._threads.get(id_)
        return thread is None or not thread.is_alive()

    def _work(self, id_: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            # Report any error to the provider that waits for the release.
            except Exception as problem:
                self._context.report("ControllerFailed", release=id_, why=str(problem))
                self._say(id_, "failed", str(problem))

        self._threads[id_] = threading.Thread(target=run, name=f"release {id_}", daemon=True)
        self._threads[id_].start()

    def _begin(self, release: Release) -> None:
        began, chart = self._context.now(), release.chart
        self._say(release.id, "starting")
        start, _ = (self._controllers | self._others).get(chart, _NOTHING)
        start(dict(release.values))
        real, after_s = chart in self._controllers, self._context.now() - began
        how = f"the real controller runs after {after_s:.1f} s" if real else "simulated"
        self._context.report("ControllerReady", release=release.id, real=real, how=how)
        self._say(release.id, "ready" if real else "simulated", chart)

    def _end(self, release: Release, gone: bool) -> None:
        _, stop = (self._controllers | self._others).get(release.chart, _NOTHING)
        stop()
        if gone:
            self._context.report("ControllerStopped", release=release.id)
            self._say(release.id, "stopped")

    def _say(self, id_: str, status: str, words: str = "") -> None:
        with self._context.state.transaction() as view:
            release_status.set_status(view, id_, status, words)
