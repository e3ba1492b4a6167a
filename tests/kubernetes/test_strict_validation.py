"""Every object of every stack with the schemas of the real API server, the real CRDs and Kueue's real webhooks.

Real: API server 1.36.1 with strict validation, the CRDs of KubeRay 1.6.2, of Kueue 0.19.2 and of GKE's networks (from
their modules), Kueue's webhooks, KubeRay's operator. Hand-written: the schemas of ComputeClass and PodMonitoring,
from their references. Almost all requests are dry runs; they show that an object is accepted, not its
effect.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from infra.catalog.pins import RAY_API
from rehearsal.clouds.kubernetes.schemas import WRITTEN
from rehearsal.cluster.controllers.initial_objects import GKE_NETWORKING
from tests.kubernetes import stack_objects
from tests.kubernetes.mistakes import Mistakes, changed, places, typos
from tests.kubernetes.queries import RAY, WITHIN_S
from tools.kubernetes import kubectl
from tools.kubernetes.api import Api, ApiError, Json
from tools.kubernetes.builds import module_folder
from tools.kubernetes.control_plane import ControlPlane

STACKS = [name for name, _, _ in stack_objects.stacks()]
UNNAMED = ("cannot unmarshal object into Go value of type int32", "quantities must match the regular expression")
"""Messages about a port and a quantity without the name of the field."""
DWS = "gke-dws"
REFUSED: tuple[tuple[str, str, str, Any, str], ...] = (
    ("gke", "ServiceAccount", "metadata.name", "Ray_Head", "a lowercase RFC 1123 subdomain"),
    ("gke", "PodDisruptionBudget", "spec.minAvailable", -1, "must be greater than or equal to 0"),
    ("gke-ccc", "ComputeClass", "spec.priorities.0.spot", True, "Nodepool field cannot be set along with other fields"),
    (DWS, "ClusterQueue", "spec.resourceGroups.0.flavors.1.resources.2.borrowingLimit", "8", "cohort is empty"),
    (DWS, "ClusterQueue", "spec.namespaceSelector", {"matchExpressions": [{"key": "a", "operator": "In"}]}, "denied"),
    (DWS, "RayJob", "spec.shutdownAfterJobFinishes", False, "should delete the cluster after finishing"),
    (DWS, "RayJob", "spec.rayClusterSpec.workerGroupSpecs.0.groupName", "head", "reserved for the head group"),
)
"""Values that the schemas admit, refused by the API server, by rules of CRDs and by webhooks: the stack, the kind, the
path, the value, words of the refusal."""


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    folder = module_folder(GKE_NETWORKING) / "config" / "crds"
    definitions = kubectl.read(
        *WRITTEN.values(), *(folder / f"networking.gke.io_{name}.yaml" for name in ("networks", "gkenetworkparamsets"))
    )
    kubectl.install(plane.api, definitions)
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RAY}})
    return plane.api


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_is_accepted(api: Api, stack: str) -> None:
    refused = [f"{stack_objects.kind(body)}: {why}" for body in stack_objects.of(stack) if (why := refusal(api, body))]
    assert not refused


def wrong_types(body: Json) -> Mistakes:
    """Yield, for every field, text instead of a map or a list, and a map instead of text, number or boolean.

    Fields that identify the object are skipped: without them there is no request.
    """
    identity = (("metadata",), ("metadata", "name"), ("metadata", "namespace"))
    for path, value in places(body):
        if path and path[0] not in ("apiVersion", "kind") and path not in identity:
            wrong = "planted" if isinstance(value, dict | list) else {"planted": "planted"}
            yield path, changed(body, path, wrong)


@pytest.mark.parametrize("mistakes", [typos, wrong_types])
def test_mistake_at_any_path_is_refused(api: Api, mistakes: Callable[[Json], Mistakes]) -> None:
    """In the object with the most fields of each kind; the refusal names the field or its type."""
    largest: dict[str, Json] = {}
    for body in chain.from_iterable(map(stack_objects.of, STACKS)):
        kind = stack_objects.kind(body)
        largest[kind] = max(largest.get(kind, {}), body, key=lambda each: len(str(each)))
    missed = []
    for kind, body in largest.items():
        for path, wrong in mistakes(body):
            why, name = refusal(api, wrong), next(part for part in reversed(path) if isinstance(part, str))
            if why is None or not any(text in why for text in (name, *UNNAMED)):
                missed.append((kind, path, why))
    assert missed == []


@pytest.mark.parametrize(("stack", "kind", "path", "value", "words"), REFUSED)
def test_value_is_refused(api: Api, stack: str, kind: str, path: str, value: Any, words: str) -> None:
    place = tuple(int(part) if part.isdigit() else part for part in path.split("."))
    assert words in str(refusal(api, changed(only(stack, kind), place, value)))


def test_immutable_field_is_kept(api: Api) -> None:
    body = only(DWS, "AdmissionCheck")
    api.apply(body)
    try:
        assert "immutable" in str(refusal(api, changed(body, ("spec", "controllerName"), "other")))
    finally:
        api.delete(body["apiVersion"], body["kind"], body["metadata"]["name"])


def test_operator_refuses_job_that_the_server_stores(api: Api) -> None:
    body = changed(only("gke, RayJob", "RayJob"), ("spec", "backoffLimit"), -1)
    body["metadata"]["name"] = name = "refused"
    api.apply(body)

    def said() -> bool:
        found = [event for event in api.list("v1", "Event", RAY) if event["involvedObject"]["name"] == name]
        return any("backoffLimit must be a positive integer" in event["message"] for event in found)

    try:
        api.until("the operator's event", said, WITHIN_S)
    finally:
        api.delete(RAY_API, "RayJob", name, RAY)


def refusal(api: Api, body: Json) -> str | None:
    """Return the API server's refusal of an object, or None."""
    try:
        api.apply(body, dry_run=True)
    except ApiError as problem:
        if problem.status == 404:
            # The kind or its namespace does not exist, so nothing was checked.
            raise
        return problem.message
    return None


def only(stack: str, kind: str) -> Json:
    """Return the first object of a kind in a stack."""
    return next(body for body in stack_objects.of(stack) if body["kind"] == kind)
