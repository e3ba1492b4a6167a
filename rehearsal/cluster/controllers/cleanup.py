"""Deletion of all objects in the API server when the simulated cluster is deleted.

Replaces the deletion of the cluster's own etcd (GKE docs and EKS docs, deleting a cluster). No controller processes
finalizers anymore, so they are removed and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rehearsal.cluster.controllers.snapshot import Context, Snapshot
from rehearsal.engine.kind import Json
from tools.kubernetes.api import Api, ApiError, ObjectKind

Name = tuple[str, str, str]
"""Kind, namespace ("" if cluster-scoped) and name of an object."""

_OF_THE_SERVER = frozenset(
    {"APIService", "ComponentStatus", "Endpoints", "EndpointSlice", "Event", "IPAddress", "Lease", "PodMetrics"}
)
"""Kinds that the API server and its controllers maintain and that follow the others."""
_DEFINITION = "CustomResourceDefinition"
_GIVEN = (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))


def present(api: Api, kinds: Iterable[ObjectKind] | None = None) -> dict[Name, tuple[ObjectKind, Json]]:
    """Return every object of an API server, or those of some kinds."""
    objects: dict[Name, tuple[ObjectKind, Json]] = {}
    for kind in _preferred(api.kinds()) if kinds is None else kinds:
        for body in _listed(api, kind):
            metadata = body["metadata"]
            # The server removes a CRD without objects only after a while; no object can be created in the meantime.
            ending = kind.kind == _DEFINITION and metadata.get("deletionTimestamp")
            if (kind.kind, metadata["name"]) not in _GIVEN and not ending:
                objects[kind.kind, metadata.get("namespace") or "", metadata["name"]] = kind, body
    return objects


class Cleanup:
    """Waits for the deletion of the cluster, then deletes, round by round, objects that did not exist at the start."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before = frozenset(present(context.api))
        self._cluster: str | None = None
        self._kinds: set[ObjectKind] | None = None
        self._gone: set[Name] = set()
        self._forced: set[str] = set()

    def leftovers(self) -> list[str]:
        """Return the objects beyond those of an empty API server, as "Kind namespace/name"."""
        return [written(name) for name in sorted(present(self._context.api).keys() - self._before)]

    def reconcile(self, snapshot: Snapshot) -> None:
        """Remember the cluster while it exists; empty its API server afterwards."""
        if snapshot.cluster is not None:
            self._cluster = snapshot.cluster.name
            return
        if self._cluster is None:
            return
        api = self._context.api
        left = {name: its for name, its in present(api, self._kinds).items() if name not in self._before}
        if not left and self._kinds is not None:
            # All objects of those kinds are deleted. Check for new ones.
            self._kinds = None
            return
        self._kinds = {kind for kind, _ in left.values()}
        # CRDs last: a namespace cannot be emptied of kinds that are being removed.
        first = {name: its for name, its in left.items() if name[0] != _DEFINITION}
        for name, (kind, body) in (first or left).items():
            self._gone.add(name)
            self._remove(api, kind, body, name)
        if not left:
            objects, forced = len(self._gone), len(self._forced)
            self._context.report("ClusterEmptied", cluster=self._cluster, objects=objects, forced=forced)
            self._cluster, self._kinds, self._gone, self._forced = None, None, set(), set()

    def _remove(self, api: Api, kind: ObjectKind, body: Json, name: Name) -> None:
        metadata = body["metadata"]
        try:
            path = api.path(kind.api_version, kind.kind, metadata.get("namespace"), metadata["name"])
            # The server handles its own finalizer of a CRD, which deletes the objects of the kind.
            if metadata.get("finalizers") and kind.kind != _DEFINITION:
                self._forced.add(written(name))
                api.request(
                    "PATCH", path, body={"metadata": {"finalizers": []}}, content_type="application/merge-patch+json"
                )
            if not metadata.get("deletionTimestamp"):
                api.request("DELETE", path, body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        except ApiError as problem:
            # Deleted or changed in the meantime: the next round handles it.
            if problem.status not in (404, 409, 422):
                raise


def _preferred(kinds: Iterable[ObjectKind]) -> Iterator[ObjectKind]:
    """Yield each kind once, in one of its served versions."""
    seen = set()
    for kind in kinds:
        group = kind.api_version.rpartition("/")[0]
        if {"list", "delete"} <= set(kind.verbs) and (group, kind.kind) not in seen and kind.kind not in _OF_THE_SERVER:
            seen.add((group, kind.kind))
            yield kind


def _listed(api: Api, kind: ObjectKind) -> list[Json]:
    try:
        return api.list(kind.api_version, kind.kind)
    except ApiError as problem:
        # The CRD is being removed.
        if problem.status in (404, 405, 503):
            return []
        raise


def written(name: Name) -> str:
    """Return "Kind namespace/name"."""
    kind, namespace, its = name
    return f"{kind} {namespace}/{its}" if namespace else f"{kind} {its}"
