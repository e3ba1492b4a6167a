"""The landlord itself: a thread that looks at the simulated clouds and at the API server; its parts do the work.

One round after the other, a few in a second. No part waits in its round, so none holds up another, but for the moment
in which a new cluster gets its contents: nothing else is to be done before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import requests

from infra.settings import Settings
from rehearsal.clouds.world import World
from rehearsal.cluster.landlord.autoscaler import Autoscaler
from rehearsal.cluster.landlord.compute_class import ComputeClasses
from rehearsal.cluster.landlord.contents import Contents
from rehearsal.cluster.landlord.dashboard import Dashboard
from rehearsal.cluster.landlord.device_networks import DeviceNetworks
from rehearsal.cluster.landlord.emptying import Emptying, leftovers
from rehearsal.cluster.landlord.events import ControllerReady, Event, PartFailed
from rehearsal.cluster.landlord.fleet import Fleet
from rehearsal.cluster.landlord.machines import BesideTheCluster, Machines, Operators
from rehearsal.cluster.landlord.plugins import Plugins
from rehearsal.cluster.landlord.provisioning import Provisioning
from rehearsal.cluster.landlord.releases import Releases
from rehearsal.cluster.landlord.scaling import Scaling
from rehearsal.cluster.landlord.scene import Delays, Desk, Part, Scene, stamped
from tools.kubernetes.api import ApiError
from tools.kubernetes.control_plane import ControlPlane

ROUND_S = 0.3
PATIENCE_S = 60.0
"""How long a part may fail, round after round, before it counts as broken: conflicts and kinds that are going pass."""


class LandlordError(RuntimeError):
    """A part of the landlord is broken, or its thread has ended."""


class Landlord:
    """Serves one control plane and one simulated world, from `__enter__` to `__exit__`.

    `tell` is given a line for each event, in the landlord's thread; `events` has them all, typed. Where `machines` are
    given, nodes are real, `operators` run the controllers, and Ray answers for itself; otherwise kwok has to run, which
    plays the kubelets, and a stand-in answers for Ray's dashboards.
    """

    def __init__(
        self,
        plane: ControlPlane,
        world: World,
        settings: Settings,
        tell: Callable[[str], None],
        delays: Delays | None = None,
        machines: Machines | None = None,
        operators: Operators | None = None,
    ) -> None:
        self._plane = plane
        self._machines = machines
        self._say = tell
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._stop = threading.Event()
        self._failing: dict[str, float] = {}
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="landlord", daemon=True)
        self._desk = Desk(api=plane.api, world=world, delays=delays or Delays(), now=self._now, tell=self._tell)
        self.dashboard = Dashboard(plane.api, self._tell, version=settings.ray.version)
        """Ray's job API, as the operator sees it."""
        self._fleet = Fleet(self._desk, machines)
        self.autoscaler = Autoscaler(self._desk, self._fleet)
        self._releases = Releases(self._desk, operators or BesideTheCluster(plane, self.dashboard.url))
        self._emptying = Emptying(self._desk)
        self._parts: list[Part] = [
            Contents(self._desk),
            Scaling(self._desk),
            self._releases,
            DeviceNetworks(self._desk),
            ComputeClasses(self._desk),
            self._fleet,
            Plugins(self._desk),
            Provisioning(self._desk, self.autoscaler),
            self.autoscaler,
            self._emptying,
        ]

    def __enter__(self) -> Landlord:
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
        """What has happened so far."""
        with self._lock:
            return list(self._events)

    @property
    def real(self) -> tuple[str, ...]:
        """The releases whose real controller has run."""
        return tuple(
            dict.fromkeys(event.release for event in self.events if isinstance(event, ControllerReady) and event.real)
        )

    def stock(self, pool: str, *, out: bool) -> None:
        """Order that the cloud has no machine for a pool from now on, or that it has some again."""
        (self.autoscaler.out_of_stock.add if out else self.autoscaler.out_of_stock.discard)(pool)

    def check(self) -> None:
        """Raise `LandlordError` if a part is broken, and what the control plane raises if a program has ended."""
        self._plane.check()
        if self._problem is not None:
            raise LandlordError(self._problem)
        if not self._thread.is_alive() and not self._stop.is_set():
            raise LandlordError("the landlord's thread has ended")

    def leftovers(self) -> list[str]:
        """What is in the API server beyond what an empty one has, as "Kind namespace/name"."""
        return leftovers(self._desk.api, self._emptying.before)

    def _run(self) -> None:
        while not self._stop.wait(ROUND_S):
            try:
                scene = self._desk.look()
            except Exception as problem:  # Told by `check`.
                self._broken("look at the clouds", problem)
                return
            for part in self._parts:
                if self._stop.is_set():
                    return
                self._round(part, scene)
            self._look_after_machines()
            self.dashboard.step()

    def _look_after_machines(self) -> None:
        if self._machines is None or self._stop.is_set():
            return
        try:
            self._machines.check()
        except Exception as problem:  # Told by `check`, and at once: a node that does not come explains what waits.
            self._broken("nodes", problem)

    def _round(self, part: Part, scene: Scene) -> None:
        try:
            part.step(scene)
            self._failing.pop(part.name, None)
        except (ApiError, requests.RequestException, TimeoutError) as problem:
            since = self._failing.setdefault(part.name, self._now())
            if self._now() - since > PATIENCE_S:
                self._broken(part.name, problem)
        except Exception as problem:  # Told by `check`, which a test and a rehearsal ask.
            self._broken(part.name, problem)

    def _broken(self, part: str, problem: Exception) -> None:
        if self._problem is None and not self._stop.is_set():
            self._problem = f"{part}: {type(problem).__name__}: {problem}"
            self._tell(PartFailed(part=part, why=f"{type(problem).__name__}: {problem}"))

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, event: Event) -> None:
        event = stamped(event, self._now())
        with self._lock:
            self._events.append(event)
            self._say(str(event))
