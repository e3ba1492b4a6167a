"""Every object of every stack with the schemas of the real API server, the real CRDs and Kueue's real webhooks.

Real: API server 1.36.1 with strict validation, the CRDs of KubeRay 1.6.2, of Kueue 0.19.2 and of GKE's networks (from
their modules), Kueue's webhooks. Hand-written: the schema of ComputeClass, from its reference, since its CRD is not
public. All requests are dry runs; they show that an object is accepted, not its effect.
"""

from __future__ import annotations

from itertools import chain

import pytest

from rehearsal.cluster.controllers import compute_class_schema as compute_class
from rehearsal.cluster.controllers.initial_objects import GKE_NETWORKING
from tests.kubernetes import invalid_objects, stack_objects
from tools.kubernetes import kubectl
from tools.kubernetes.api import Api, ApiError, Json
from tools.kubernetes.builds import module_folder
from tools.kubernetes.control_plane import ControlPlane

STACKS = [name for name, _, _ in stack_objects.stacks()]
KINDS = (
    "apps/v1 DaemonSet",
    "batch/v1 Job",
    "cloud.google.com/v1 ComputeClass",
    "kueue.x-k8s.io/v1beta2 AdmissionCheck",
    "kueue.x-k8s.io/v1beta2 ClusterQueue",
    "kueue.x-k8s.io/v1beta2 LocalQueue",
    "kueue.x-k8s.io/v1beta2 ProvisioningRequestConfig",
    "kueue.x-k8s.io/v1beta2 ResourceFlavor",
    "kueue.x-k8s.io/v1beta2 Topology",
    "networking.gke.io/v1 GKENetworkParamSet",
    "networking.gke.io/v1 Network",
    "networking.k8s.io/v1 NetworkPolicy",
    "policy/v1 PodDisruptionBudget",
    "ray.io/v1 RayCluster",
    "ray.io/v1 RayJob",
    "resource.k8s.io/v1 ResourceClaimTemplate",
    "v1 ConfigMap",
    "v1 Namespace",
    "v1 PersistentVolume",
    "v1 PersistentVolumeClaim",
    "v1 Secret",
    "v1 Service",
    "v1 ServiceAccount",
)
UNNAMED = ("cannot unmarshal object into Go value of type int32", "quantities must match the regular expression")
"""Messages about a port and a quantity without the name of the field."""


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    folder = module_folder(GKE_NETWORKING) / "config" / "crds"
    networks = kubectl.read(
        *(folder / f"networking.gke.io_{name}.yaml" for name in ("networks", "gkenetworkparamsets"))
    )
    kubectl.install(plane.api, [compute_class.DEFINITION, *networks])
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ray"}})
    return plane.api


@pytest.fixture(scope="module")
def largest() -> dict[str, Json]:
    """Return the object with the most fields of each kind."""
    found: dict[str, Json] = {}
    for body in chain.from_iterable(map(stack_objects.of, STACKS)):
        kind = stack_objects.kind(body)
        found[kind] = max(found.get(kind, {}), body, key=lambda each: len(str(each)))
    return found


def test_every_stack_kind_is_validated(largest: dict[str, Json]) -> None:
    assert sorted(largest) == sorted(KINDS)


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_is_accepted(api: Api, stack: str) -> None:
    refused = [f"{stack_objects.kind(body)}: {why}" for body in stack_objects.of(stack) if (why := refusal(api, body))]
    assert not refused


@pytest.mark.parametrize("kind", KINDS)
def test_typos_are_refused(api: Api, largest: dict[str, Json], kind: str) -> None:
    """One typo in each map of the largest object of the kind; the refusal names the field."""
    planted = list(invalid_objects.typos(largest[kind]))
    assert planted
    accepted = [place for place, name, body in planted if name not in (refusal(api, body) or "")]
    assert not accepted


# A Namespace has only its name, and without it there is no request.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "v1 Namespace"])
def test_wrong_types_are_refused(api: Api, largest: dict[str, Json], kind: str) -> None:
    """One wrong type at each path of the largest object of the kind; the refusal names the field or its type."""
    planted = list(invalid_objects.wrong_types(largest[kind]))
    assert planted
    for place, name, body in planted:
        why = refusal(api, body)
        assert why is not None, place
        assert name in why or any(text in why for text in UNNAMED), (place, why)


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
