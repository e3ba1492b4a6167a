"""Admission of pods in the stacks' namespace by the real API server: what the stack's pods need, and else `baseline`.

The cases are those of Kubernetes' own tests of the level (k8s.io/pod-security-admission, test/testdata, of the version
that runs), alone and with their fields in each kind of container. A second namespace enforces the level by its label
and tells the right answer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any, Literal, NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.kubernetes.namespace import ENFORCE
from rehearsal.clouds.kubernetes.pods import templates
from tests.kubernetes import stack_objects
from tests.kubernetes.queries import RAY, WITHIN_S, name
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.builds import module_folder
from tools.kubernetes.control_plane import ControlPlane

ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
LEVEL = "level"
"""Namespace that enforces `baseline` by its label."""
STACKS = ("gke", "gke-ccc", "eks", "eks-capacity-block")
"""Each cloud without and with a shared folder."""
KINDS = ("containers", "initContainers", "ephemeralContainers")
NO_NODE = "none"
"""A scheduler that does not exist: pods that the tests create stay pending."""
IMAGE = "registry.k8s.io/pause"
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
Answer = Literal["admitted", "refused", "invalid"]


class Piece(NamedTuple):
    """Fields of an upstream case: of one of its containers, or (`of_pod`) of its spec and annotations."""

    case: str
    fields: Json
    of_pod: bool


@cache
def cases() -> dict[str, Json]:
    """Return the newest upstream cases of the level: "fail/hostports0" -> pod."""
    folders = (module_folder("k8s.io/pod-security-admission") / "test/testdata/baseline").iterdir()
    newest = max(folders, key=lambda folder: int(folder.name.removeprefix("v1.")))
    found = {f"{file.parent.name}/{file.stem}": yaml.safe_load(file.read_text()) for file in newest.glob("*/*.yaml")}
    # Some are not the name of a pod.
    return {case: pod | {"metadata": pod["metadata"] | {"name": "pod"}} for case, pod in found.items()}


@cache
def pieces() -> list[Piece]:
    """Return the fields by which the upstream cases differ from a pod that sets none."""
    found = []
    for case, pod in sorted(cases().items()):
        for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
            found.append(Piece(case, {key: container[key] for key in container if key not in ("name", "image")}, False))
        spec = {key: value for key, value in pod["spec"].items() if key not in KINDS}
        profiles = sorted(pod["metadata"].get("annotations", {}).values())
        found.append(Piece(case, {"spec": spec, "profiles": profiles}, True))
    context: Json = {"securityContext": {}}
    empty: tuple[Json, ...] = ({}, context, {"spec": {}, "profiles": []}, {"spec": context, "profiles": []})
    return [
        piece for index, piece in enumerate(found) if piece.fields not in (*empty, *(p.fields for p in found[:index]))
    ]


class Rules:
    """The namespaces, and a pod in each that is older than its rules (`older`) or fits them (`fitting`)."""

    def __init__(self, api: Api, stack: str) -> None:
        self.api, self.stack = api, stack
        self.objects = [
            body for body in stack_objects.of(stack) if body["kind"] in ("Namespace", "ServiceAccount", *ADMISSION)
        ]
        level = {"metadata": {"name": LEVEL, "labels": {ENFORCE: "baseline"}}}
        self._made: list[Json] = []
        for namespace in (RAY, LEVEL):
            self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, force=True)
            account = partial(self.api.get, "v1", "ServiceAccount", "default", namespace)
            self.api.until("the account of its pods", account, WITHIN_S)
            self._create(namespace, "older", {"securityContext": {"privileged": True}})
        for body in (*self.objects, {"apiVersion": "v1", "kind": "Namespace"} | level):
            self.api.apply(body, force=True)
        self.api.until("the rules of the namespace", partial(self._privileged_is, "refused"), WITHIN_S)
        for namespace in (RAY, LEVEL):
            self._create(namespace, "fitting", {})

    def _create(self, namespace: str, called: str, fields: Json) -> None:
        made = pod([{"name": "main", "image": IMAGE, **fields}], schedulerName=NO_NODE)
        made["metadata"] |= {"name": called, "namespace": namespace}
        self._made.append(self.api.create(made))

    def _privileged_is(self, expected: Answer) -> bool:
        """A policy takes effect, and ends, a second after the call."""
        privileged = pod([{"name": "main", "image": IMAGE, "securityContext": {"privileged": True}}])
        if (answer := self.answer(RAY, privileged)) == expected:
            return True
        raise NotYet(f"a privileged pod is {answer}")

    def close(self) -> None:
        """Delete the pods and the rules, and wait until no rule applies: the next stack's `older` is privileged."""
        for body in self._made:
            self.api.delete("v1", "Pod", name(body), body["metadata"]["namespace"])
        for body in self.objects:
            if body["kind"] in ADMISSION:
                self.api.delete(body["apiVersion"], body["kind"], name(body))
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RAY}}, force=True)
        self.api.until("the end of the rules", partial(self._privileged_is, "admitted"), WITHIN_S)

    def answer(self, namespace: str, asked: Json) -> Answer:
        """Return what the rules of a namespace say to a pod. Ephemeral containers join the pod `fitting`."""
        return self.reason(namespace, asked)[0]

    def reason(self, namespace: str, asked: Json) -> tuple[Answer, str]:
        """Return the answer and the message."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        if joining := asked["spec"].get("ephemeralContainers"):
            body = self.api.request("GET", f"{path}/fitting")
            body["spec"]["ephemeralContainers"] = joining
            return self._send("PUT", f"{path}/fitting/ephemeralcontainers", body)
        return self._send("POST", path, asked)

    def _send(self, method: str, path: str, body: Any, content_type: str = "application/json") -> tuple[Answer, str]:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            self.api.request(method, path, query=query, body=body, content_type=content_type)
        except ApiError as problem:
            if any(by in problem.message for by in (ADMISSION[0], "violates PodSecurity")):
                return "refused", problem.message
            if problem.reason in ("Invalid", "BadRequest"):
                return "invalid", problem.message
            raise
        return "admitted", ""

    def update(self, namespace: str, called: str, operation: Json) -> Answer:
        """Return what the rules say to an operation of a JSON patch of a pod."""
        path = f"/api/v1/namespaces/{namespace}/pods/{called}"
        return self._send("PATCH", path, [operation], "application/json-patch+json")[0]


@pytest.fixture(scope="module", params=STACKS)
def rules(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Rules]:
    """The namespace of a stack with its policy and accounts, and the one with the level."""
    found = Rules(plane.api, request.param)
    yield found
    found.close()


def pod(containers: list[Json], annotations: Json | None = None, **spec: Any) -> Json:
    """Return a pod."""
    metadata = {"name": "pod", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": containers}}


def merged(base: Any, more: Any) -> Any:
    """Return two objects as one; where both have a value that is not an object, the second one's."""
    if isinstance(base, dict) and isinstance(more, dict):
        return base | {key: merged(base.get(key), value) for key, value in more.items()}
    return copy.deepcopy(more)


def mutated(spec: Json, chosen: list[tuple[Piece, str]]) -> Json:
    """Return a pod with one more container for each kind that the pieces are for, and with the pieces of the pod."""
    spec = copy.deepcopy(spec)
    annotations: Json = {}
    more: dict[str, Json] = {}
    for piece, kind in chosen:
        container = more.setdefault(kind, {"name": f"more-{kind.lower()}", "image": IMAGE})
        if piece.of_pod:
            volumes = [*spec.get("volumes", []), *piece.fields["spec"].get("volumes", [])]
            spec = merged(spec, piece.fields["spec"]) | {"volumes": volumes}
            annotations |= {f"{ANNOTATION}{container['name']}": profile for profile in piece.fields["profiles"]}
        else:
            more[kind] = merged(container, piece.fields)
    for kind, container in more.items():
        spec[kind] = [*spec.get(kind, []), container]
    return pod(spec.pop("containers"), annotations, **spec)


PLAIN: Json = {"containers": [{"name": "main", "image": IMAGE}]}


def templates_of(stack: str) -> Iterator[tuple[str, Json]]:
    """Yield the pods of a stack, of its other Ray modes and of its NCCL Job."""
    for each in (stack, f"{stack}, RayJob", f"{stack}, Indexed Job"):
        for body in stack_objects.of(each) if each in {known for known, _, _ in stack_objects.stacks()} else ():
            if body["metadata"].get("namespace") == RAY or body["kind"] == "Job":
                for template in templates(f"kubernetes:{body['apiVersion']}:{body['kind']}", body):
                    yield f"{each}: {body['kind']} {name(body)}", template["spec"]


def gpu_pods(rules: Rules) -> list[tuple[str, Json]]:
    """Return the stack's pods that mount folders of their node."""
    found = [(where, spec) for where, spec in templates_of(rules.stack) if "hostPath" in str(spec["volumes"])]
    assert bool(found) is rules.stack.startswith("gke")
    return found


def test_pods_of_the_stack_are_admitted(rules: Rules) -> None:
    found = list(templates_of(rules.stack))
    assert len(found) >= 3
    answers = [(where, rules.reason(RAY, pod(**spec))) for where, spec in found]
    assert [(where, said) for where, said in answers if said[0] != "admitted"] == []


def test_upstream_cases_have_the_answer_of_the_level(rules: Rules) -> None:
    right = {case: rules.answer(LEVEL, body) for case, body in cases().items()}
    # The API itself refuses another procMount outside a user namespace (kubernetes: validation.go, v1.36.1).
    expected = {
        case: "admitted" if case.startswith("pass") else "invalid" if "procmount" in case else "refused"
        for case in cases()
    }
    assert right == expected
    assert {case: rules.answer(RAY, body) for case, body in cases().items()} == right


def test_fields_of_each_container_have_the_answer_of_the_level(rules: Rules) -> None:
    """Also in the stack's pods, which the level itself refuses."""
    needing = [spec for _, spec in gpu_pods(rules)][:1]
    wrong, seen = [], set()
    for piece, kind in product(pieces(), KINDS):
        mutation = [(piece, kind)]
        right = rules.answer(LEVEL, mutated(PLAIN, mutation))
        seen.add((kind, right))
        wrong += [
            (piece, kind, said)
            for spec in (PLAIN, *needing)
            if (said := rules.reason(RAY, mutated(spec, mutation)))[0] != right
        ]
    assert wrong == []
    assert {(kind, answer) for kind in KINDS for answer in ("admitted", "refused")} <= seen


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_combined_fields_have_the_answer_of_the_level(rules: Rules, data: st.DataObject) -> None:
    one = st.tuples(st.sampled_from(pieces()), st.sampled_from(KINDS))
    asked = mutated(PLAIN, data.draw(st.lists(one, min_size=2, max_size=5)))
    assert rules.answer(RAY, asked) == rules.answer(LEVEL, asked)


def test_updates_of_an_older_pod_have_the_answer_of_the_level(rules: Rules) -> None:
    """Code that is new is refused, whatever ends the pod is not."""
    new = {"op": "replace", "path": "/spec/containers/0/image", "value": "other"}
    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    ending = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/none"]}
    answers = {each: [rules.update(each, "older", change) for change in (new, label, ending)] for each in (RAY, LEVEL)}
    assert answers[RAY] == answers[LEVEL] == ["refused", "admitted", "admitted"]


def test_only_the_needs_of_the_stack_are_admitted_beyond_the_level(rules: Rules) -> None:
    """They are: its folders of the node, to read as a whole, and the capability to lock memory."""
    for where, spec in gpu_pods(rules):
        folders = [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume]
        for folder, kind in product(folders, ("containers", "initContainers")):
            only_read = {"readOnly": True}
            assert needs(rules, kind, {"path": folder}, only_read)[0] == "admitted", (where, folder)
            for told, host, mount in (
                ("may mount only", {"path": f"{folder}/"}, only_read),
                ("may mount only", {"path": f"{folder}/bin"}, only_read),
                ("may mount only", {"path": folder.rpartition("/")[0]}, only_read),
                ("may mount only", {"path": folder, "type": "DirectoryOrCreate"}, only_read),
                ("may mount only", {"path": folder, "type": "FileOrCreate"}, only_read),
                ("may only read", {"path": folder}, {}),
                ("may only read", {"path": folder}, {"readOnly": False}),
                ("may only read", {"path": folder}, only_read | {"mountPropagation": "HostToContainer"}),
                ("may only read", {"path": folder}, only_read | {"subPath": "bin"}),
                ("may only read", {"path": folder}, only_read | {"subPathExpr": "bin"}),
            ):
                answer, said = needs(rules, kind, host, mount)
                assert (answer, told in said) == ("refused", True), (where, kind, host, mount, said)
            assert needs(rules, kind, {"path": folder}, only_read, ["IPC_LOCK", "CHOWN"])[0] == "admitted"
            assert needs(rules, kind, {"path": folder}, only_read, ["SYS_ADMIN"])[0] == "refused"


def needs(
    rules: Rules, kind: str, host: Json, mount: Json, capabilities: list[str] | None = None
) -> tuple[Answer, str]:
    """Return the answer to a pod that asks for what the stack's pods need."""
    context = {"securityContext": {"capabilities": {"add": capabilities}}} if capabilities else {}
    container = {"name": "more", "image": IMAGE, "volumeMounts": [{"name": "node", "mountPath": "/mnt"} | mount]}
    spec = copy.deepcopy(PLAIN) | {"volumes": [{"name": "node", "hostPath": host}]}
    spec[kind] = [*spec.get(kind, []), container | context]
    return rules.reason(RAY, pod(**spec))


def test_policy_has_no_warning(rules: Rules) -> None:
    """The API server checks the types of the expressions, and notes what never matches."""
    policies = [body for body in rules.objects if body["kind"] == ADMISSION[0]]
    assert bool(policies) is rules.stack.startswith("gke")
    for body in policies:

        def checked(body: Json = body) -> Json | None:
            found = rules.api.get(body["apiVersion"], body["kind"], name(body)) or {}
            return (found.get("status") or {}).get("typeChecking")

        assert rules.api.until("the types of the policy", checked, WITHIN_S) == {}
