"""Timeline of the cluster: changes of pods and of Ray's and Kueue's objects, reported as they happen.

The cloud controllers report nodes and ProvisioningRequests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import requests

from infra.catalog.pins import KUEUE_API, RAY_API
from rehearsal.engine.kind import Json
from tools.kubernetes.api import Api, ApiError

ReportLine = Callable[[str], None]
"""Receives one line of text."""

Moment = tuple[float, str]
"""Seconds since the environment started, and the event."""

_LOOK_S = 0.4
_SERVED_S = 3.0
"""Seconds between discoveries: the kinds change when a controller installs its CRDs."""
_KINDS = (("v1", "Pod"), ("batch/v1", "Job"), (RAY_API, "RayCluster"), (RAY_API, "RayJob"), (KUEUE_API, "Workload"))
_SYSTEM = "kube-system"


class Timeline:
    """Events reported by `said` or observed in the API server; `report` receives every line at once."""

    def __init__(self, report: ReportLine) -> None:
        self._report = report
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._moments: list[Moment] = []
        self._seen: dict[str, str] = {}
        self._served: set[tuple[str, str]] = set()
        self._asked = 0.0

    @property
    def moments(self) -> tuple[Moment, ...]:
        """All events, in order."""
        with self._lock:
            return tuple(self._moments)

    def said(self, text: str) -> None:
        """Add an event."""
        with self._lock:
            seconds = time.monotonic() - self._began
            self._moments.append((seconds, text))
        self._report(f"{seconds:6.1f} s  {text}")

    @contextmanager
    def watching(self, api: Api) -> Iterator[None]:
        """Watch the API server until the end of the block."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(api, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def look(self, api: Api) -> None:
        """Report the changes since the last call."""
        if time.monotonic() - self._asked > _SERVED_S:
            self._asked = time.monotonic()
            self._served = {(kind.api_version, kind.kind) for kind in api.kinds()}
        now: dict[str, str] = {}
        for version, kind in _KINDS:
            for live in api.list(version, kind) if (version, kind) in self._served else ():
                metadata = live["metadata"]
                if metadata.get("namespace") != _SYSTEM:
                    now[f"{kind} {metadata['name']}"] = status_words(live)
        for text in changes(self._seen, now):
            self.said(text)
        self._seen = now

    def _watch(self, api: Api, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            try:
                self.look(api)
            except (ApiError, requests.RequestException):
                # Ignored: callers that need the API server report its failure.
                continue


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences of two maps of names ("Pod a") to statuses. Empty statuses are skipped."""
    for name in before.keys() - now.keys():
        yield f"{name} is gone"
    for name, state in now.items():
        if state and state != before.get(name):
            yield f"{name} {state}"


def status_words(live: Json) -> str:
    """Return a short status of an object; empty if it is not reported."""
    status, spec, kind = live.get("status") or {}, live.get("spec") or {}, live.get("kind")
    if kind == "Pod":
        if live["metadata"].get("deletionTimestamp"):
            return "is terminating"
        if spec.get("nodeName"):
            return f"is {status.get('phase', 'Pending')} on {spec['nodeName']}"
        return "waits for its gates" if spec.get("schedulingGates") else "waits for a node"
    if kind == "RayCluster":
        ready, wanted = status.get("readyWorkerReplicas", 0), status.get("desiredWorkerReplicas", 0)
        return f"is {status['state']}, {ready} of {wanted} workers" if status.get("state") else ""
    if kind == "RayJob":
        words = ", ".join(filter(None, (status.get("jobDeploymentStatus"), status.get("jobStatus"))))
        return f"is {words}" if words else ""
    true = {each["type"] for each in status.get("conditions") or () if each.get("status") == "True"}
    # The most significant condition.
    order = ("Finished", "Failed", "Complete", "Admitted", "QuotaReserved", "Suspended")
    return next((f"is {type_}" for type_ in order if type_ in true), "")
