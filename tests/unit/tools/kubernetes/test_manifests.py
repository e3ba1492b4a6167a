"""Chart values of the controllers, as far as they are applied here, and the end of a rollout."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.catalog.pins import KUBERAY
from tools.kubernetes import kubectl, kuberay
from tools.kubernetes.api import Api, Json
from tools.kubernetes.kubectl import merged, rollout_done


def test_values_are_merged_as_helm_does() -> None:
    """Objects key by key; lists and everything else as a whole; neither side is changed."""
    below = {"image": {"repository": "a", "tag": "1"}, "env": [{"name": "A"}], "replicas": 1}
    above = {"image": {"repository": "mirror/a"}, "env": []}
    kept = copy.deepcopy((below, above))
    assert merged(below, above) == {"image": {"repository": "mirror/a", "tag": "1"}, "env": [], "replicas": 1}
    assert (below, above) == kept


def test_operator_values_set_flags_and_image() -> None:
    """A stack's values are merged over the chart's."""
    ours = {"image": {"repository": "mirror/operator"}, "watchNamespace": ["ray", "other"], "kubeClient": {"qps": 5}}
    values = kuberay.complete(ours)
    assert kubectl.image(values["image"]) == f"mirror/operator:v{KUBERAY.version}"
    flags = list(kuberay.flags(values))
    assert "--watch-namespace=ray,other" in flags
    assert {"--qps=5", "--burst=200"} <= set(flags)
    with pytest.raises(ValueError, match="volcano"):
        kuberay.objects(kuberay.complete({"batchScheduler": {"name": "volcano"}}))


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


def test_rollout_is_done_when_only_new_pods_are_left() -> None:
    """Not before the controller has seen the change, the new pod is available and the old one is gone."""
    rollout_done(Cluster(deployment(**DONE), ["new"]), "n", "d", within_s=0)
    for status, pods in (
        (DONE | {"observedGeneration": 1}, ["old"]),
        (DONE | {"availableReplicas": 0}, ["new"]),
        (DONE | {"updatedReplicas": 0}, ["old"]),
        (DONE, ["old", "new"]),
    ):
        with pytest.raises(TimeoutError, match=r"rollout of n/d.*\n(old|new): last words"):
            rollout_done(Cluster(deployment(**status), pods), "n", "d", within_s=0)
    with pytest.raises(TimeoutError, match="no such Deployment"):
        rollout_done(Cluster(None, []), "n", "d", within_s=0)
