"""The rehearsal's kubectl: what the check of a user's cluster asks, for processes of a rehearsal only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.existing.kubectl import Kubectl, KubectlError
from infra.existing.kuberay import OPERATORS
from infra.settings import from_stack_file
from rehearsal import users_kubectl
from rehearsal.clouds.kubernetes import identity
from rehearsal.engine.state import State
from rehearsal.engine.workspace import FOLDER, PROGRAMS, ROOT, Workspace
from rehearsal.users_cluster import prepare

FILE = ROOT / "Pulumi.kubernetes.yaml"
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []}
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/ray/roles"
PODS = "/api/v1/namespaces/ray/pods"


def pod(**spec: str) -> dict[str, object]:
    """A pod with one container."""
    containers = [{"name": "a", "image": "a"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """The cluster of the stack file, with two more objects, in the environment of a rehearsal."""
    made = Workspace(tmp_path / "rehearsal")
    made.begin("kubernetes", FILE)
    for key, value in made.environment().items():
        monkeypatch.setenv(key, value)
    state = State(made.cloud_state)
    with state.transaction() as view:
        prepare(view, from_stack_file(FILE))
        metadata = {"name": "key", "namespace": "ray", "labels": {"rdma-ray/stack": "kubernetes"}}
        view.put(identity.SECRET, "ray/key", {"kind": "Secret", "metadata": metadata, "__cluster": ""})
        view.put(identity.SECRET, "other/other", {"metadata": {"name": "other", "namespace": "other"}})
    return state


def test_questions_of_the_check_are_answered(state: State) -> None:
    del state
    kubectl = Kubectl("rdma-ray")
    assert kubectl.read("/version")["major"] == "1"
    assert kubectl.read("/api/v1/namespaces/ray")["metadata"]["name"] == "ray"
    assert kubectl.read("/api/v1/namespaces/ray/secrets/key")["metadata"]["labels"] == {"rdma-ray/stack": "kubernetes"}
    assert len(kubectl.read("/api/v1/nodes")["items"]) == 3
    for label in (OPERATORS, "labelSelector=app.kubernetes.io/name%3Dkuberay-operator"):
        (operator,) = kubectl.read(f"/apis/apps/v1/deployments?{label}")["items"]
        assert operator["metadata"]["namespace"] == "kuberay-system"
    assert kubectl.read("/apis/apps/v1/deployments?labelSelector=a%3Db")["items"] == []
    assert kubectl.read("/apis/ray.io/v1")["groupVersion"] == "ray.io/v1"
    assert kubectl.allowed("get", "", "pods/log", "ray")
    kubectl.try_create(ROLES, ROLE)
    kubectl.try_create(PODS, pod(serviceAccountName="default"))


@pytest.mark.parametrize(
    ("path", "body", "reason", "words"),
    [
        ("/apis/kueue.x-k8s.io/v1beta2", None, "NotFound", "could not find the requested resource"),
        ("/api/v1/namespaces/none", None, "NotFound", 'namespaces "none" not found'),
        ("/api/v1/namespaces/ray/secrets/other", None, "NotFound", 'secrets "other" not found'),
        ("/nonsense", None, "NotFound", "could not find"),
        (ROLES.replace("ray", "none"), ROLE, "NotFound", 'namespaces "none" not found'),
        (ROLES, {**ROLE, "rulez": []}, "BadRequest", 'strict decoding error: unknown field "rulez"'),
        (PODS, ROLE, "NotFound", "could not find the requested resource"),
        (PODS, pod(serviceAccountName="mine"), "Forbidden", 'serviceaccount "mine" not found'),
        (PODS, pod(priorityClassName="high"), "Forbidden", "no PriorityClass with name high was found"),
        (
            "/api/v1/namespaces/ray/secrets",
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}},
            "AlreadyExists",
            'secrets "key" already exists',
        ),
    ],
)
def test_refusals_are_those_of_an_api_server(
    path: str, body: dict[str, object] | None, reason: str, words: str, state: State
) -> None:
    del state
    kubectl = Kubectl("rdma-ray")
    with pytest.raises(KubectlError, match=words) as refused:
        kubectl.read(path) if body is None else kubectl.try_create(path, body)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "words",
    [
        ["--context=other", "get", "--raw=/version"],
        ["--context=rdma-ray", "delete", "namespace", "ray"],
        ["--context=rdma-ray", "get", "pods"],
        ["--context=rdma-ray", "get", "pod", "a", "--namespace=ray", "--output=name", "--ignore-not-found"],
        [],
    ],
)
def test_other_commands_are_refused(words: list[str], state: State, capsys: pytest.CaptureFixture[str]) -> None:
    del state
    assert users_kubectl.main(words) == users_kubectl.FAILED
    said = capsys.readouterr()
    assert "REHEARSAL" in said.err
    assert said.out == ""


def test_nothing_is_created(state: State) -> None:
    command = ["kubectl", "--context=rdma-ray", "create", f"--raw={ROLES}", "--filename=-"]
    done = subprocess.run(command, input="{}", capture_output=True, text=True)
    assert done.returncode == users_kubectl.FAILED
    assert "creates nothing" in done.stderr
    Kubectl("rdma-ray").try_create(ROLES, ROLE)
    with state.transaction() as view:
        assert view.get("kubernetes:rbac.authorization.k8s.io/v1:Role", "ray/r") is None


def test_kubectl_refuses_to_run_outside_rehearsal() -> None:
    plain = {key: value for key, value in os.environ.items() if key != FOLDER}
    assert str(PROGRAMS) not in plain.get("PATH", "")
    command = [str(PROGRAMS / "kubectl"), "--context=rdma-ray", "get", "--raw=/version"]
    done = subprocess.run(command, env=plain, capture_output=True, text=True)
    assert done.returncode == users_kubectl.FAILED
    assert "it serves `make rehearse` only" in done.stderr
    assert done.stdout == ""


def test_real_control_plane_has_its_own_kubectl(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert "KUBECONFIG" not in workspace.environment()
    workspace.control_plane = (tmp_path / "bin", tmp_path / "kubeconfig")
    environment = workspace.environment()
    assert environment["PATH"].split(os.pathsep)[:2] == [str(tmp_path / "bin"), str(PROGRAMS)]
    assert environment["KUBECONFIG"] == str(tmp_path / "kubeconfig")
