"""What kustomize and Helm would do to a controller's objects, as far as it is done here, and a rollout's end."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tools.kubernetes import kuberay_manifests, rollout
from tools.kubernetes.api import Api, Json
from tools.kubernetes.manifests import merged, placed


def test_values_are_laid_over_values_as_helm_lays_them() -> None:
    """Objects key by key; lists and everything else as a whole; neither side is changed."""
    below = {"image": {"repository": "a", "tag": "1"}, "env": [{"name": "A"}], "replicas": 1}
    above = {"image": {"repository": "mirror/a"}, "env": []}
    kept = copy.deepcopy((below, above))
    assert merged(below, above) == {"image": {"repository": "mirror/a", "tag": "1"}, "env": [], "replicas": 1}
    assert (below, above) == kept


def test_objects_get_the_release_s_names_and_namespace() -> None:
    """Names, references to them and subjects; what has no namespace gets none, and one of its own is kept."""
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "leader", "namespace": "system"},
        "roleRef": {"kind": "Role", "name": "leader"},
        "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": "system"}],
    }
    made = placed(copy.deepcopy(binding), "kueue-system", "kueue-")
    assert made["metadata"] == {"name": "kueue-leader", "namespace": "kueue-system"}
    assert made["roleRef"]["name"] == "kueue-leader"
    assert made["subjects"] == [{"kind": "ServiceAccount", "name": "kueue-manager", "namespace": "kueue-system"}]
    elsewhere = binding | {
        "metadata": {"name": "reader", "namespace": "kube-system"},
        "roleRef": {"kind": "Role", "name": "extension-apiserver-authentication-reader"},
    }
    made = placed(copy.deepcopy(elsewhere), "kueue-system", "kueue-")
    assert made["metadata"] == {"name": "kueue-reader", "namespace": "kube-system"}
    # Kubernetes' own role.
    assert made["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    rule = {"apiGroups": ["admissionregistration.k8s.io"], "resourceNames": ["mutating-webhook-configuration"]}
    others = {"apiGroups": ["apiextensions.k8s.io"], "resourceNames": ["workloads.kueue.x-k8s.io"]}
    role = {"kind": "ClusterRole", "metadata": {"name": "manager-role"}, "rules": [rule, others]}
    made = placed(copy.deepcopy(role), "kueue-system", "kueue-")
    assert made["metadata"] == {"name": "kueue-manager-role"}
    assert [each["resourceNames"] for each in made["rules"]] == [
        ["kueue-mutating-webhook-configuration"],
        ["workloads.kueue.x-k8s.io"],
    ]


def test_the_operator_s_values_act() -> None:
    """Arguments and image follow from the chart's values, with those of a stack over them."""
    ours = {"image": {"repository": "mirror/operator"}, "watchNamespace": ["ray", "other"], "kubeClient": {"qps": 5}}
    values = kuberay_manifests.complete(ours)
    assert kuberay_manifests.image(values) == "mirror/operator:v1.6.2"
    flags = list(kuberay_manifests.flags(values))
    assert "--watch-namespace=ray,other" in flags
    assert {"--qps=5", "--burst=200"} <= set(flags)
    with pytest.raises(ValueError, match="volcano"):
        kuberay_manifests.objects(kuberay_manifests.complete({"batchScheduler": {"name": "volcano"}}))


class Cluster(Api):
    """Answers with one Deployment and its pods."""

    def __init__(self, deployment: Json | None, pods: list[str]) -> None:
        super().__init__("http://nowhere", "", None)
        self.deployment = deployment
        self.there = pods

    def get(self, *_names: Any) -> Json | None:
        """The Deployment."""
        return self.deployment

    def list(self, *_names: Any) -> list[Json]:
        """The pods."""
        return [{"metadata": {"name": name}, "status": {"phase": "Running"}} for name in self.there]

    def request(self, *_names: Any, **_more: Any) -> Json:
        """A pod's log."""
        return {"text": "last words"}


def deployment(**status: int) -> Json:
    """One that wants one pod."""
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}}
    return {"metadata": {"generation": 2}, "spec": spec, "status": status}


DONE = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}


def test_a_rollout_is_done_when_only_new_pods_are_left() -> None:
    """Not before the controller has seen the change, the new pod is available and the old one is gone."""
    rollout.until_done(Cluster(deployment(**DONE), ["new"]), "n", "d", within_s=0)
    for status, pods in (
        (DONE | {"observedGeneration": 1}, ["old"]),
        (DONE | {"availableReplicas": 0}, ["new"]),
        (DONE | {"updatedReplicas": 0}, ["old"]),
        (DONE, ["old", "new"]),
    ):
        with pytest.raises(TimeoutError, match=r"rollout of n/d.*\n(old|new): last words"):
            rollout.until_done(Cluster(deployment(**status), pods), "n", "d", within_s=0)
    with pytest.raises(TimeoutError, match="no such Deployment"):
        rollout.until_done(Cluster(None, []), "n", "d", within_s=0)
