"""What happens in the cluster, told while it happens: pods, and how it stands with Ray's and Kueue's objects.

Nodes and ProvisioningRequests are the landlord's to tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import requests

from infra.catalog.pins import KUEUE_API, RAY_API
from rehearsal.clouds.kind import Json
from tools.kubernetes.api import Api, ApiError

Tell = Callable[[str], None]
"""Is given a line for a person."""

Moment = tuple[float, str]
"""Seconds since the stage was set up, and what happened."""

_LOOK_S = 0.4
_SERVED_S = 3.0
"""Which kinds there are changes when a controller brings its definitions, and asking costs more than a look."""
_KINDS = (
    ("v1", "Pod"),
    ("batch/v1", "Job"),
    (RAY_API, "RayCluster"),
    (RAY_API, "RayJob"),
    (KUEUE_API, "Workload"),
)
_SYSTEM = "kube-system"


class Timeline:
    """What was told since its making, by `said` or by what it saw itself; every line goes to `tell` at once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._moments: list[Moment] = []
        self._seen: dict[str, str] = {}
        self._served: set[tuple[str, str]] = set()
        self._asked = 0.0

    @property
    def moments(self) -> tuple[Moment, ...]:
        """All of it, in order."""
        with self._lock:
            return tuple(self._moments)

    def said(self, text: str) -> None:
        """Tell something that somebody knows."""
        with self._lock:
            seconds = time.monotonic() - self._began
            self._moments.append((seconds, text))
        self._tell(f"{seconds:6.1f} s  {text}")

    @contextmanager
    def watching(self, api: Api) -> Iterator[None]:
        """Look at the API server until the end of the block."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(api, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def look(self, api: Api) -> None:
        """See what has changed since the last look, and tell it."""
        if time.monotonic() - self._asked > _SERVED_S:
            self._asked = time.monotonic()
            self._served = {(kind.api_version, kind.kind) for kind in api.kinds()}
        now: dict[str, str] = {}
        for version, kind in _KINDS:
            for live in api.list(version, kind) if (version, kind) in self._served else ():
                metadata = live["metadata"]
                if metadata.get("namespace") != _SYSTEM:
                    now[f"{kind} {metadata['name']}"] = standing(live)
        for text in changes(self._seen, now):
            self.said(text)
        self._seen = now

    def _watch(self, api: Api, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            try:
                self.look(api)
            except (ApiError, requests.RequestException):
                # Nobody's proof: whoever needs the API server says that it is gone.
                continue


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """What to tell of two looks, each a name ("Pod a") with its standing; an empty standing is not worth a line."""
    for name in before.keys() - now.keys():
        yield f"{name} is gone"
    for name, state in now.items():
        if state and state != before.get(name):
            yield f"{name} {state}"


def standing(live: Json) -> str:
    """How it stands with an object, in a few words; nothing where that is not worth telling."""
    status = live.get("status") or {}
    true = {each["type"] for each in status.get("conditions") or () if each.get("status") == "True"}
    kind = live.get("kind")
    if kind == "Pod":
        return _pod(live, status)
    if kind == "RayCluster":
        return _counted(status) if status.get("state") else ""
    if kind == "RayJob":
        words = [status.get("jobDeploymentStatus"), status.get("jobStatus")]
        return ", ".join(f"is {word}" if not at else str(word) for at, word in enumerate(filter(None, words)))
    return f"is {_last(true)}" if _last(true) else ""


def _pod(live: Json, status: Json) -> str:
    node = (live.get("spec") or {}).get("nodeName")
    if live["metadata"].get("deletionTimestamp"):
        return "is being ended"
    if not node:
        gates = (live.get("spec") or {}).get("schedulingGates")
        return "waits for its gates" if gates else "waits for a node"
    return f"is {status.get('phase', 'Pending')} on {node}"


def _counted(status: Json) -> str:
    ready, wanted = status.get("readyWorkerReplicas", 0), status.get("desiredWorkerReplicas", 0)
    return f"is {status['state']}, {ready} of {wanted} workers"


def _last(true: set[str]) -> str:
    """The condition that says most, of those that are true."""
    order = ("Finished", "Failed", "Complete", "Admitted", "QuotaReserved", "Suspended")
    return next((type_ for type_ in order if type_ in true), "")
