"""Every object of every stack against the schemas of the real API server, the real CRDs and Kueue's real webhooks.

Real: API server 1.36.1 with strict validation, the CRDs of KubeRay 1.6.2, of Kueue 0.19.2 and of ProvisioningRequest,
Kueue's webhooks. Stand-ins: the schemas of kinds whose CRDs are not public (GKE's networks and ComputeClass), written
from their references. All requests are dry runs. That an object is accepted says nothing about what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import pytest

from tests.kubernetes import plants, stack_objects
from tools.kubernetes.api import Api, ApiError, Json
from tools.kubernetes.control_plane import ControlPlane

STACKS = [name for name, _, _ in stack_objects.stacks()]
KINDS = (
    "apps/v1 DaemonSet",
    "batch/v1 Job",
    "networking.k8s.io/v1 NetworkPolicy",
    "policy/v1 PodDisruptionBudget",
    "ray.io/v1 RayCluster",
    "resource.k8s.io/v1 ResourceClaimTemplate",
    "v1 ConfigMap",
    "v1 Namespace",
    "v1 PersistentVolume",
    "v1 PersistentVolumeClaim",
    "v1 Secret",
    "v1 Service",
    "v1 ServiceAccount",
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.start_kuberay()
        plane.start_kueue()
        plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ray"}})
        yield plane.api


@pytest.fixture(scope="module")
def largest() -> dict[str, Json]:
    """Of each kind the object with the most to get wrong."""
    found: dict[str, Json] = {}
    for body in chain.from_iterable(map(stack_objects.of, STACKS)):
        kind = stack_objects.kind(body)
        found[kind] = max(found.get(kind, {}), body, key=lambda each: len(str(each)))
    return found


def test_every_kind_of_the_stacks_is_tried(largest: dict[str, Json]) -> None:
    assert sorted(largest) == sorted(KINDS)


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_is_accepted(api: Api, stack: str) -> None:
    refused = [f"{stack_objects.kind(body)}: {why}" for body in stack_objects.of(stack) if (why := refusal(api, body))]
    assert not refused


@pytest.mark.parametrize("plant", [plants.typos, plants.wrong_types])
@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_refused(
    api: Api, largest: dict[str, Json], kind: str, plant: Callable[[Json], Iterator[plants.Plant]]
) -> None:
    """One in each place of the largest object of the kind; the refusal names the field, or the type that it has."""
    assert refusal(api, largest[kind]) is None
    planted = list(plant(largest[kind]))
    assert planted
    for place, name, body in planted:
        why = refusal(api, body)
        assert why is not None, place
        assert name in why or "cannot unmarshal object into Go value of type int32" in why, (place, why)


def refusal(api: Api, body: Json) -> str | None:
    """What the API server has against an object, None where it would take it."""
    try:
        api.apply(body, dry_run=True)
    except ApiError as problem:
        if problem.status == 404:
            # The kind or its namespace is not there, so nothing was tried.
            raise
        return problem.message
    return None
