"""The provider of a stack on a user's cluster, and the mark of its objects, as the program registers them."""

from __future__ import annotations

import pytest

from infra.catalog.names import STACK_LABEL
from infra.existing import stack
from infra.settings import parse
from infra.settings.kubernetes import KubernetesSettings
from tests.kubernetes.cloud_mocks import recorded

TEAM = {
    "target": "kubernetes",
    "context": "company",
    "namespace": "team-a",
    "nodes": {"gpus": 0, "cpus": 2, "memoryGib": 4},
    "fabric": "socket",
}


def test_provider_has_the_context_and_leaves_kubeconfig_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would write KUBECONFIG into the state: a list of files, which the provider takes for one."""
    monkeypatch.setenv("KUBECONFIG", "/home/one:/home/two")
    monkeypatch.setattr(stack, "problems", lambda *_: [])
    settings = parse(TEAM, stack="any")
    assert isinstance(settings, KubernetesSettings)

    def program() -> None:
        stack.deploy(settings)

    made = recorded(program)
    [provider] = [each.inputs for each in made if each.type == "pulumi:providers:kubernetes"]
    assert provider == {"context": "company", "clusterIdentifier": "company"}
    objects = [each.inputs["metadata"] for each in made if each.type.startswith("kubernetes:")]
    assert len(objects) == 6
    assert {(each["namespace"], each["labels"][STACK_LABEL]) for each in objects} == {("team-a", "any")}
