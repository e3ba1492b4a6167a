"""Cloud controllers: a thread that reconciles the simulated clouds with the API server, several times a second.

They replace the clouds' own controllers, so their decisions prove nothing about the clouds. No reconciler blocks its
round, except while a new cluster gets its initial objects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import requests

from infra.settings import Settings
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers.autoscaler import Autoscaler
from rehearsal.cluster.controllers.cleanup import Cleanup, leftovers
from rehearsal.cluster.controllers.compute_class import ComputeClasses
from rehearsal.cluster.controllers.dashboard import Dashboard
from rehearsal.cluster.controllers.device_networks import DeviceNetworks
from rehearsal.cluster.controllers.events import ControllerReady, Event, ReconcileFailed, Scaled
from rehearsal.cluster.controllers.fleet import Fleet
from rehearsal.cluster.controllers.helm_releases import HelmReleases
from rehearsal.cluster.controllers.initial_objects import InitialObjects
from rehearsal.cluster.controllers.machines import LocalOperators, Machines, Operators
from rehearsal.cluster.controllers.plugins import Plugins
from rehearsal.cluster.controllers.provisioning import Provisioning
from rehearsal.cluster.controllers.snapshot import Context, Delays, Reconciler, Snapshot, stamped
from rehearsal.cluster.scaled import CHANGES
from tools.kubernetes.api import ApiError
from tools.kubernetes.control_plane import ControlPlane

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
        settings: Settings,
        report: Callable[[str], None],
        delays: Delays | None = None,
        machines: Machines | None = None,
        operators: Operators | None = None,
    ) -> None:
        self._plane = plane
        self._machines = machines
        self._say = report
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._stop = threading.Event()
        self._failing: dict[str, float] = {}
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="cloud-controllers", daemon=True)
        self._context = Context(
            api=plane.api, state=state, delays=delays or Delays(), now=self._now, report=self._report
        )
        self.dashboard = Dashboard(plane.api, self._report, version=settings.ray.version)
        """Ray's job API, as the operator sees it."""
        self._fleet = Fleet(self._context, machines)
        self.autoscaler = Autoscaler(self._context, self._fleet)
        self._releases = HelmReleases(self._context, operators or LocalOperators(plane, self.dashboard.url))
        self._cleanup = Cleanup(self._context)
        self._reconcilers: list[Reconciler] = [
            InitialObjects(self._context),
            ScalingEvents(self._context),
            self._releases,
            DeviceNetworks(self._context),
            ComputeClasses(self._context),
            self._fleet,
            Plugins(self._context),
            Provisioning(self._context, self.autoscaler),
            self.autoscaler,
            self._cleanup,
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
            dict.fromkeys(event.release for event in self.events if isinstance(event, ControllerReady) and event.real)
        )

    def stock(self, pool: str, *, out: bool) -> None:
        """Set whether the cloud is out of machines for a pool."""
        (self.autoscaler.out_of_stock.add if out else self.autoscaler.out_of_stock.discard)(pool)

    def check(self) -> None:
        """Raise `ControllerError` if a reconciler is broken, or the control plane's error if a program has ended."""
        self._plane.check()
        if self._problem is not None:
            raise ControllerError(self._problem)
        if not self._thread.is_alive() and not self._stop.is_set():
            raise ControllerError("the thread of the cloud controllers has ended")

    def leftovers(self) -> list[str]:
        """Return the objects beyond those of an empty API server, as "Kind namespace/name"."""
        return leftovers(self._context.api, self._cleanup.before)

    def _run(self) -> None:
        while not self._stop.wait(ROUND_S):
            try:
                snapshot = self._context.look()
            except Exception as problem:  # Reported by `check`.
                self._broken("snapshot of the clouds", problem)
                return
            for part in self._reconcilers:
                if self._stop.is_set():
                    return
                self._round(part, snapshot)
            self._look_after_machines()
            self.dashboard.reconcile()

    def _look_after_machines(self) -> None:
        if self._machines is None or self._stop.is_set():
            return
        try:
            self._machines.check()
        except Exception as problem:  # Reported by `check` at once: a node that fails explains pending pods.
            self._broken("nodes", problem)

    def _round(self, part: Reconciler, snapshot: Snapshot) -> None:
        try:
            part.reconcile(snapshot)
            self._failing.pop(part.name, None)
        except (ApiError, requests.RequestException, TimeoutError) as problem:
            since = self._failing.setdefault(part.name, self._now())
            if self._now() - since > PATIENCE_S:
                self._broken(part.name, problem)
        except Exception as problem:  # Reported by `check`, which tests and rehearsals call.
            self._broken(part.name, problem)

    def _broken(self, part: str, problem: Exception) -> None:
        if self._problem is None and not self._stop.is_set():
            self._problem = f"{part}: {type(problem).__name__}: {problem}"
            self._report(ReconcileFailed(part=part, why=f"{type(problem).__name__}: {problem}"))

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _report(self, event: Event) -> None:
        event = stamped(event, self._now())
        with self._lock:
            self._events.append(event)
            self._say(str(event))


class ScalingEvents:
    """Reports each change that scaling made to a manifest, once."""

    name = "scaling"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reported: set[str] = set()

    def reconcile(self, _snapshot: Snapshot) -> None:
        """Report new changes."""
        with self._context.state.transaction() as view:
            changes: list[str] = view.setting(CHANGES, [])
        for change in changes:
            if change not in self._reported:
                self._reported.add(change)
                self._context.report(Scaled(change=change))
