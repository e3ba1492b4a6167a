"""What GKE's admission says to ProvisioningRequests, and does to the pods that use one.

Stands in for GKE Warden, as policies in CEL that the real API server carries out. The refusal of several PodSets is in
its words (ray-project/ray #57839, 2025-10-17); the limit is that of GKE docs provisioningrequest, 2026-04-08, in our
words. That pods get the toleration of queued nodes is inferred: a published run worked without one of its own
(saltysoup/nearmap-gcp-oasis, 086f5b6, 2025-07-10).
"""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.kind import Json
from rehearsal.cluster.landlord.admission import NEW_PODS, denying, patching
from rehearsal.cluster.landlord.autoscaler import CONSUMES

WARDEN = "warden-validating.common-webhooks.networking.gke.io"
ONE_POD_SET = "the queued provisioning feature currently supports only single PodSet per request"
LONGEST_S = 604800
_QUEUED = {"name": "queued", "expression": "object.spec.provisioningClassName == 'queued-provisioning.gke.io'"}
_TOLERATION = "cloud.google.com/gke-queued"


def policies() -> Iterator[Json]:
    """The policies and their bindings."""
    rule = {
        "apiGroups": ["autoscaling.x-k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["provisioningrequests"],
    }
    duration = "object.spec.parameters['maxRunDurationSeconds']"
    unset = "!has(object.spec.parameters) || !('maxRunDurationSeconds' in object.spec.parameters)"
    spec = {
        "matchConditions": [_QUEUED],
        "validations": [
            {"expression": "object.spec.podSets.size() == 1", "message": _words(ONE_POD_SET)},
            {
                "expression": f"{unset} || ({duration}.matches('^[0-9]+$') && int({duration}) <= {LONGEST_S})",
                "message": _words(f"maxRunDurationSeconds must be a number of seconds up to {LONGEST_S}"),
            },
        ],
    }
    yield from denying(WARDEN, rule, spec)
    yield from _toleration()


def _toleration() -> Iterator[Json]:
    name = "queued-pods.networking.gke.io"
    consumes = " || ".join(f"'{each}' in object.metadata.annotations" for each in CONSUMES)
    own = f"has(object.spec.tolerations) && object.spec.tolerations.exists(t, has(t.key) && t.key == '{_TOLERATION}')"
    value = f'Object.spec.tolerations{{key: "{_TOLERATION}", operator: "Exists", effect: "NoSchedule"}}'
    one = f'JSONPatch{{op: "add", path: "/spec/tolerations/-", value: {value}}}'
    first = f'JSONPatch{{op: "add", path: "/spec/tolerations", value: [{value}]}}'
    spec = {
        "matchConditions": [
            {"name": "uses-a-request", "expression": f"has(object.metadata.annotations) && ({consumes})"},
            {"name": "does-not-tolerate", "expression": f"!({own})"},
        ],
    }
    yield from patching(name, NEW_PODS, spec, f"[has(object.spec.tolerations) ? {one} : {first}]")


def _words(violation: str) -> str:
    return (
        "GKE Warden rejected the request because it violates one or more constraints. Violations details: "
        f'{{"[denied by provisioning-request-cr-validation]":["{violation}"]}}'
    )
