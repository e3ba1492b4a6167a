"""Admission of the stacks' pods by the real API server: what they need is admitted, more is refused.

The pods are those of the stacks' templates, in dry runs; the scenarios run them with KubeRay's additions under the same
rules.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rehearsal.clouds.kubernetes.pods import templates
from tests.kubernetes import stack_objects
from tests.kubernetes.queries import RAY, WITHIN_S, name
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
ETC = {"name": "more", "hostPath": {"path": "/etc"}}
MORE: Mapping[str, tuple[Json, Json]] = {
    "folder of the node": ({"volumes": [ETC]}, {}),
    "namespace of the node": ({"hostPID": True}, {}),
    "network of the node": ({"hostNetwork": True}, {}),
    "privileged": ({}, {"securityContext": {"privileged": True}}),
    "capability": ({}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
    "port of the node": ({}, {"ports": [{"containerPort": 9, "hostPort": 9}]}),
    "unconfined": ({}, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    "sysctl": ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, {}),
}
"""What a pod might ask for: fields of its spec, and of its last init container, which no rule may skip."""
STACKS = ("gke", "gke-ccc", "eks", "eks-capacity-block")
"""Each cloud without and with a shared folder."""


@pytest.fixture(scope="module", params=STACKS)
def stack(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stack whose namespace, policy and accounts exist."""
    stack: str = request.param
    objects = [body for body in stack_objects.of(stack) if body["kind"] in ("Namespace", "ServiceAccount", *ADMISSION)]
    for body in objects:
        plane.api.apply(body, force=True)
    plane.api.until("the rules of the namespace", lambda: in_force(plane.api), WITHIN_S)
    yield stack
    for body in objects:
        if body["kind"] in ADMISSION:
            plane.api.delete(body["apiVersion"], body["kind"], name(body))
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RAY}}, force=True)


def in_force(api: Api) -> bool:
    """Return whether a privileged pod is refused: a policy takes effect after a second."""
    if said := refusal(api, {"containers": [{"name": "a", "image": "a", "securityContext": {"privileged": True}}]}):
        return "privileged" in said
    raise NotYet("a privileged pod is admitted")


def refusal(api: Api, spec: Json) -> str | None:
    """Return why the policy or the level of the namespace refuses a pod, or None."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": RAY}, "spec": spec}
    try:
        api.request("POST", f"/api/v1/namespaces/{RAY}/pods", query={"dryRun": "All"}, body=pod)
    except ApiError as problem:
        if any(by in problem.message for by in (ADMISSION[0], "PodSecurity")):
            return problem.message
        raise
    return None


def pods(stack: str) -> Iterator[tuple[str, Json]]:
    """Yield the pods of a stack, of its other Ray modes and of its NCCL Job."""
    for each in (stack, f"{stack}, RayJob", f"{stack}, Indexed Job"):
        for body in stack_objects.of(each) if each in {known for known, _, _ in stack_objects.stacks()} else ():
            if body["metadata"].get("namespace") == RAY or body["kind"] == "Job":
                for template in templates(f"kubernetes:{body['apiVersion']}:{body['kind']}", body):
                    yield f"{each}: {body['kind']} {name(body)}", template["spec"]


def changed(spec: Json, of_pod: Json, of_container: Json) -> Json:
    """Return a pod with one more init container that has these fields."""
    made: dict[str, Any] = copy.deepcopy(spec) | of_pod
    made["volumes"] = [*spec["volumes"], *of_pod.get("volumes", ())]
    made["initContainers"] = [*spec.get("initContainers", ()), {"name": "more", "image": "a", **of_container}]
    return made


def test_pods_of_the_stack_are_admitted_and_no_more(stack: str, plane: ControlPlane) -> None:
    found = list(pods(stack))
    assert len(found) >= 3
    assert [(where, said) for where, spec in found if (said := refusal(plane.api, spec))] == []
    asked = [(where, what, changed(spec, *more)) for where, spec in found for what, more in MORE.items()]
    assert [(where, what) for where, what, spec in asked if not refusal(plane.api, spec)] == []


def test_folders_of_the_node_are_mounted_read_only(stack: str, plane: ControlPlane) -> None:
    """Also by a container that does not own the GPUs."""
    for where, spec in pods(stack):
        folders = [volume["name"] for volume in spec["volumes"] if "hostPath" in volume]
        assert bool(folders) is (stack.startswith("gke") and "nvidia" in str(spec["volumes"]))
        for folder in folders:
            mount = {"volumeMounts": [{"name": folder, "mountPath": "/mnt"}]}
            assert "may only read" in str(refusal(plane.api, changed(spec, {}, mount))), where
            mount["volumeMounts"][0]["readOnly"] = True
            assert refusal(plane.api, changed(spec, {}, mount)) is None, where


def test_policy_has_no_warning(stack: str, plane: ControlPlane) -> None:
    """The API server checks the types of the expressions, and notes what never matches."""
    policies = [body for body in stack_objects.of(stack) if body["kind"] == ADMISSION[0]]
    assert bool(policies) is stack.startswith("gke")
    for body in policies:

        def checked(body: Json = body) -> Json | None:
            found = plane.api.get(body["apiVersion"], body["kind"], name(body)) or {}
            return (found.get("status") or {}).get("typeChecking")

        assert plane.api.until("the types of the policy", checked, WITHIN_S) == {}
