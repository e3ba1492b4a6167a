"""Cloud controllers: a thread that reconciles the simulated clouds with the API server, several times a second.

They replace the clouds' controllers, so their decisions prove nothing about the clouds. No reconciler blocks its
round, except while a new cluster gets its initial objects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import requests

from rehearsal.cluster.controllers.autoscaler import Autoscaler
from rehearsal.cluster.controllers.cleanup import Cleanup
from rehearsal.cluster.controllers.dashboard import Dashboard
from rehearsal.cluster.controllers.device_networks import DeviceNetworks
from rehearsal.cluster.controllers.devices import update_devices
from rehearsal.cluster.controllers.events import Event
from rehearsal.cluster.controllers.fleet import Fleet
from rehearsal.cluster.controllers.helm_releases import HelmReleases
from rehearsal.cluster.controllers.initial_objects import InitialObjects
from rehearsal.cluster.controllers.provisioning import Provisioning
from rehearsal.cluster.controllers.snapshot import Context, Delays, Snapshot
from rehearsal.cluster.real_nodes import RealNodes
from rehearsal.cluster.scaling import CHANGES
from rehearsal.engine.state import State
from tools.kubernetes.api import ApiError
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.controller_pods import PodOperators

ROUND_S = 0.3
PATIENCE_S = 60.0
"""Seconds for which a reconciler may fail before it counts as broken: conflicts and vanishing kinds are transient."""


class ControllerError(RuntimeError):
    """A reconciler is broken, or the thread has ended."""


class CloudControllers:
    """Serves one control plane and one cloud state, for the duration of a `with` block.

    Args:
        report: receives a line for each event, in the controllers' thread; `events` has the typed events.
        delays: delays of the simulated clouds.
        machines: real nodes. Without them, kwok simulates kubelets, and a stub answers for Ray's dashboards.
        operators: runs the controllers of Helm releases, with `machines`.
    """

    def __init__(
        self,
        plane: ControlPlane,
        state: State,
        report: Callable[[str], None],
        delays: Delays | None = None,
        machines: RealNodes | None = None,
        operators: PodOperators | None = None,
    ) -> None:
        self._plane = plane
        self._machines = machines
        self._say = report
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._stop = threading.Event()
        self._failing: dict[str, float] = {}
        self._scaled: set[str] = set()
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="cloud-controllers", daemon=True)
        self._context = Context(
            api=plane.api, state=state, delays=delays or Delays(), now=self._now, report=self._report
        )
        self.dashboard = Dashboard(plane.api, self._report)
        """Ray's job API, as the operator sees it."""
        self._fleet = Fleet(self._context, machines)
        self.autoscaler = Autoscaler(self._context, self._fleet)
        self._releases = HelmReleases(self._context, operators or plane, self.dashboard.url)
        self.cleanup = Cleanup(self._context)
        self._reconcilers: list[Callable[[Snapshot], None]] = [
            InitialObjects(self._context).reconcile,
            self._releases.reconcile,
            DeviceNetworks(self._context).reconcile,
            self._fleet.reconcile,
            update_devices,
            Provisioning(self._context, self.autoscaler).reconcile,
            self.autoscaler.reconcile,
            self.cleanup.reconcile,
            self.dashboard.reconcile,
        ]

    def __enter__(self) -> CloudControllers:
        if self._machines is None:
            self.dashboard.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._releases.close()
        self.dashboard.close()

    @property
    def events(self) -> list[Event]:
        """The events so far."""
        with self._lock:
            return list(self._events)

    @property
    def real(self) -> tuple[str, ...]:
        """The releases whose real controller has run."""
        return tuple(
            dict.fromkeys(event.release for event in self.events if event.kind == "ControllerReady" and event.real)
        )

    def check(self) -> None:
        """Raise `ControllerError` if a reconciler is broken, or the control plane's error if a program has ended."""
        self._plane.check()
        if self._problem is not None:
            raise ControllerError(self._problem)
        if not self._thread.is_alive() and not self._stop.is_set():
            raise ControllerError("the thread of the cloud controllers has ended")

    def _run(self) -> None:
        while not self._stop.wait(ROUND_S):
            try:
                snapshot = self._context.look()
            except Exception as problem:  # Reported by `check`.
                self._broken("snapshot of the clouds", problem)
                return
            for reconcile in self._reconcilers:
                if self._stop.is_set():
                    return
                self._round(reconcile, snapshot)
            self._report_scaling()
            if self._machines is not None and not self._stop.is_set():
                try:
                    self._machines.check()
                except Exception as problem:  # Reported by `check` at once: a node that fails explains pending pods.
                    self._broken("nodes", problem)

    def _round(self, reconcile: Callable[[Snapshot], None], snapshot: Snapshot) -> None:
        name = reconcile.__qualname__
        try:
            reconcile(snapshot)
            self._failing.pop(name, None)
        except (ApiError, requests.RequestException, TimeoutError) as problem:
            since = self._failing.setdefault(name, self._now())
            if self._now() - since > PATIENCE_S:
                self._broken(name, problem)
        except Exception as problem:  # Reported by `check`, which tests and rehearsals call.
            self._broken(name, problem)

    def _broken(self, part: str, problem: Exception) -> None:
        if self._problem is None and not self._stop.is_set():
            self._problem = f"{part}: {type(problem).__name__}: {problem}"
            self._report("ReconcileFailed", part=part, why=f"{type(problem).__name__}: {problem}")

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _report(self, kind: str, **fields: Any) -> None:
        event = Event(kind, fields, self._now())
        with self._lock:
            self._events.append(event)
            self._say(str(event))

    def _report_scaling(self) -> None:
        """Report each change that scaling made to a manifest, once."""
        with self._context.state.transaction() as view:
            changes: list[str] = view.setting(CHANGES, [])
        for change in changes:
            if change not in self._scaled:
                self._scaled.add(change)
                self._context.report("Scaled", change=change)
