"""`--outputs secret:…`: the user's kubeconfig leads to the Secret, whose content decides nothing about the way in."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.client.fake_kubectl import Fake
from tests.workloads.stack_outputs import GKE, TOKEN
from workloads.cli import main
from workloads.client.stack import read_outputs
from workloads.exits import Exit, WorkloadError
from workloads.options import StackOptions

HTTP = "http://127.0.0.1:8265"
ADDRESSES = {"dashboard": HTTP, "jobs": HTTP, "client": "ray://127.0.0.1:10001"}
SHARED = {key: value for key, value in GKE.items() if key != "kubeconfig"} | {
    "namespace": "team",
    "ray": GKE["ray"] | ADDRESSES,
}
NAME = "secret:a3u-outputs"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.delenv("RDMA_RAY_OUTPUTS", raising=False)
    return Fake(tmp_path, monkeypatch)


def secret(outputs: object, key: str = "outputs.json") -> dict[str, Any]:
    """Return a Secret as the API server has it."""
    text = outputs if isinstance(outputs, str) else json.dumps(outputs)
    return {"secret": {"kind": "Secret", "data": {key: base64.b64encode(text.encode()).decode()}}}


@pytest.mark.parametrize(
    ("place", "context", "namespace"),
    [
        (NAME, "mine", "team"),
        ("secret:other/a3u-outputs", "mine", "other"),
        (f"{NAME}@gke_p_us-central1_c", "gke_p_us-central1_c", "team"),
        ("secret:other/a3u-outputs@default/api:6443/admin@corp", "default/api:6443/admin@corp", "other"),
    ],
)
def test_outputs_have_the_context_with_which_they_were_read(
    kubectl: Fake, place: str, context: str, namespace: str
) -> None:
    kubectl.has(secret(SHARED | {"namespace": namespace}))
    found = read_outputs(StackOptions(outputs=place))
    assert (found.context, found.namespace, found.kubeconfig) == (context, namespace, None)
    assert (found.ray.cluster, found.ray.token.get_secret_value()) == ("a3u", TOKEN)
    (call,) = kubectl.calls("get")
    assert call[1] == f"--context={context} --namespace={namespace} get secret a3u-outputs --output=json"


def test_the_variable_names_a_secret_and_no_token_is_printed(
    kubectl: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.has(secret(SHARED))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", NAME)
    assert main(["outputs"]) == Exit.OK
    said = capsys.readouterr().out
    assert json.loads(said)["context"] == "mine"
    assert TOKEN not in said
    assert main(["status"]) == Exit.ERROR  # the fake forwards to no Ray
    assert "--context=mine --namespace=team port-forward" in (kubectl.folder / "calls").read_text()


@pytest.mark.parametrize(
    "place",
    [
        "secret:",
        "secret:/a",
        "secret:a/",
        "secret:--all",
        "secret:a/--kubeconfig=x",
        "secret:a@",
        "secret:A",
        "secret:a/b/c",
    ],
)
def test_a_malformed_place_reaches_no_kubectl(kubectl: Fake, place: str) -> None:
    with pytest.raises(WorkloadError, match="write secret:NAME or secret:NAMESPACE/NAME"):
        read_outputs(StackOptions(outputs=place))
    assert not (kubectl.folder / "calls").exists()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ('Error from server (NotFound): secrets "a3u-outputs" not found', "access.outputsSecret: true"),
        ('Error from server (Forbidden): secrets "a3u-outputs" is forbidden: User "u"', "kubectl create rolebinding"),
        ("Unable to connect to the server: i/o timeout", "the control plane does not answer"),
    ],
)
def test_a_secret_that_cannot_be_read_names_the_fix(kubectl: Fake, error: str, words: str) -> None:
    kubectl.refuses(error)
    with pytest.raises(WorkloadError, match=words) as caught:
        read_outputs(StackOptions(outputs=NAME))
    assert "Secret a3u-outputs in namespace team of context mine" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kubeconfig": "{}"}, "another way into the cluster"),
        ({"context": "admin"}, "another way into the cluster"),
        ({"namespace": "kube-system"}, "another namespace"),
        ({"namespace": None}, "another namespace"),
        ({"target": "local"}, "another namespace"),
        ({"ray": SHARED["ray"] | {"cluster": "--server=https://example.com"}}, "another Ray cluster"),
        ({"ray": SHARED["ray"] | {"jobs": "http://example.com"}}, "another address"),
        ({"ray": SHARED["ray"] | {"dashboard": "http://127.0.0.1:1"}}, "another address"),
        ({"ray": SHARED["ray"] | {"client": "ray://example.com:10001"}}, "another address"),
        ({"ray": SHARED["ray"] | {"serve": "http://example.com"}}, "another address"),
        ({"machine": "a3\x1b]0;x\x07"}, "control characters"),
        ({"location": "\u202egpj"}, "control characters"),
        ({"ray": SHARED["ray"] | {"token": f"{TOKEN}\r\nHost: example.com"}}, "control characters"),
    ],
)
def test_a_content_that_the_stack_does_not_write_is_refused(kubectl: Fake, changes: dict[str, Any], words: str) -> None:
    kubectl.has(secret(SHARED | changes))
    with pytest.raises(WorkloadError, match=words) as caught:
        read_outputs(StackOptions(outputs=NAME))
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (secret(SHARED, key="auth_token"), "no key outputs.json"),
        ({"secret": {"kind": "Secret"}}, "no key outputs.json"),
        ({"secret": {"kind": "Secret", "data": {"outputs.json": "*"}}}, "no key outputs.json"),
        ({"secret": {"kind": "Secret", "data": {"outputs.json": [1]}}}, "no key outputs.json"),
        (secret("{"), "do not match the contract"),
        (secret([TOKEN]), "do not match the contract"),
        (secret("[" * 100_000), "do not match the contract"),
        (secret(SHARED | {"new": TOKEN}), "new: Extra inputs"),
        (secret(json.dumps(SHARED) + " " * 2**20), "more than 1 MiB"),
    ],
)
def test_a_malformed_secret_is_one_sentence_without_its_values(kubectl: Fake, body: dict[str, Any], words: str) -> None:
    kubectl.has(body)
    with pytest.raises(WorkloadError, match=words) as caught:
        read_outputs(StackOptions(outputs=NAME))
    assert TOKEN not in str(caught.value)
    assert len(str(caught.value)) < 1500
