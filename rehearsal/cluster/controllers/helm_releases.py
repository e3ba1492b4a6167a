"""Helm releases: the real controllers of KubeRay and Kueue, and the status of the other charts.

Replaces Helm. At depth `cluster` a controller runs as a local process, at depth `pods` in a pod. Other effects of a
chart: devices on nodes (`devices`), growing pools on EKS (`autoscaler`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from infra.catalog.pins import DEVICE_API
from rehearsal.cluster import release_status
from rehearsal.cluster.controllers.devices import device_class
from rehearsal.cluster.controllers.events import ControllerFailed, ControllerReady, ControllerStopped
from rehearsal.cluster.controllers.machines import Operators
from rehearsal.cluster.controllers.snapshot import Context, Release, Snapshot

Start = Callable[[Mapping[str, Any]], None]
_PATIENCE_S = 5.0
EFA_DEVICE_CLASS = "efa.networking.k8s.aws"
"""Installed by the chart aws-dranet 1.0.0 (EKS docs node-efa, read 2026-11)."""


class HelmReleases:
    """Serves each release in its own thread, because a controller takes seconds to start."""

    name = "releases"

    def __init__(self, context: Context, operators: Operators) -> None:
        self._context = context
        self._served: dict[str, Release] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._start: dict[str, Start] = {
            "kuberay-operator": lambda values: operators.start_kuberay(dict(values)),
            "kueue": lambda values: operators.start_kueue(dict(values)),
        }
        self._stop = {"kuberay-operator": operators.stop_kuberay, "kueue": operators.stop_kueue}

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

    def real(self, chart: str) -> bool:
        """Return whether the chart's own controller runs."""
        return chart in self._start

    def _idle(self, id_: str) -> bool:
        thread = self._threads.get(id_)
        return thread is None or not thread.is_alive()

    def _work(self, id_: str, work: Callable[[], None]) -> None:
        self._threads[id_] = threading.Thread(target=work, name=f"release {id_}", daemon=True)
        self._threads[id_].start()

    def _begin(self, release: Release) -> None:
        began = self._context.now()
        start = self._start.get(release.chart)
        self._say(release.id, "starting")
        try:
            if start is not None:
                start(release.values)
            elif release.chart == "aws-dranet":
                self._context.api.apply(device_class(EFA_DEVICE_CLASS), manager="helm")
        # Report any error to the provider that waits for the release.
        except Exception as problem:
            self._context.report(ControllerFailed(release=release.id, why=str(problem)))
            self._say(release.id, "failed", str(problem))
            return
        took = self._context.now() - began
        self._context.report(
            ControllerReady(release=release.id, chart=release.chart, real=start is not None, after_s=took)
        )
        self._say(release.id, "ready" if start is not None else "simulated", release.chart)

    def _end(self, release: Release, gone: bool) -> None:
        stop = self._stop.get(release.chart)
        try:
            if stop is not None:
                stop()
            elif release.chart == "aws-dranet":
                self._context.api.delete(DEVICE_API, "DeviceClass", EFA_DEVICE_CLASS)
        except Exception as problem:
            self._context.report(ControllerFailed(release=release.id, why=str(problem)))
            self._say(release.id, "failed", str(problem))
            return
        if gone:
            self._context.report(ControllerStopped(release=release.id))
            self._say(release.id, "stopped")

    def _say(self, id_: str, status: str, words: str = "") -> None:
        with self._context.state.transaction() as view:
            release_status.set_status(view, id_, status, words)
