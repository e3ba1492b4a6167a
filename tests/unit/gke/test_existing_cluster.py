"""The user's GKE cluster: everything for which a stack cannot be in it is one problem, with its fix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pulumi_gcp.container import GetClusterResult

from infra.existing.cloud import Inside
from infra.existing.kubectl import Kubectl, KubectlError
from infra.gke.existing_cluster import problems
from infra.naming import STACK
from tests.unit.stacks import gke

STACK_FILE: dict[str, Any] = {"cluster.existing": "us-central1/theirs", "fabric": "managed-dranet"}
POOL = {"name": "default-pool", "node_count": 3, "node_locations": ["us-central1-a", "us-central1-b"]}
GOOD: dict[str, Any] = {
    "enable_autopilot": False,
    "master_version": "1.36.5-gke.1032000",
    "ip_allocation_policies": [SimpleNamespace()],
    "datapath_provider": "ADVANCED_DATAPATH",
    "enable_multi_networking": False,
    "cluster_ipv4_cidr": "10.128.0.0/16",
    "node_locations": ["us-central1-b"],
    "node_pools": [SimpleNamespace(**POOL, node_configs=[SimpleNamespace(resource_labels={"team": "web"})])],
    "workload_identity_configs": [SimpleNamespace(workload_pool="p.svc.id.goog")],
    "monitoring_configs": [SimpleNamespace(managed_prometheuses=[SimpleNamespace(enabled=True)])],
    "addons_configs": [
        SimpleNamespace(
            gcs_fuse_csi_driver_configs=[SimpleNamespace(enabled=True)],
            ray_operator_configs=[SimpleNamespace(enabled=False)],
        )
    ],
}


def cluster(**wrong: Any) -> GetClusterResult:
    """Return what Google Cloud states of a cluster, of which something is wrong."""
    return cast(GetClusterResult, SimpleNamespace(**GOOD | wrong))


def pool(name: str, labels: dict[str, str] | None) -> SimpleNamespace:
    """Return a node pool of the cluster."""
    configs = [] if labels is None else [SimpleNamespace(resource_labels=labels)]
    return SimpleNamespace(**POOL | {"name": name}, node_configs=configs)


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        ({}, {}),
        ({"enable_multi_networking": True}, {"fabric": "multi-network"}),
        (
            {"datapath_provider": "LEGACY_DATAPATH"},
            {"nodes.machine": "g2-standard-8", "nodes.capacity": "spot", "fabric": "socket"},
        ),
        ({"node_pools": [pool("gpu", {STACK: "ours"}), pool("default-pool", None)]}, {}),
        ({"addons_configs": [], "workload_identity_configs": None}, {}),
        (
            {"addons_configs": [SimpleNamespace(ray_operator_configs=[SimpleNamespace(enabled=True)])]},
            {"cluster.provides": ["kuberay"]},
        ),
    ],
)
def test_cluster_that_has_what_the_stack_needs(found: dict[str, Any], changes: dict[str, Any]) -> None:
    assert list(problems(cluster(**found), gke(STACK_FILE | changes), "ours")) == []


@pytest.mark.parametrize(
    ("wrong", "changes", "words", "fix"),
    [
        ({"enable_autopilot": True}, {}, "Autopilot", "name a Standard cluster"),
        (
            {"master_version": "1.33.4-gke.1000"},
            {},
            "1.33.4-gke.1000",
            "clusters upgrade theirs --location us-central1",
        ),
        ({"ip_allocation_policies": []}, {}, "not VPC-native", "VPC-native"),
        ({"datapath_provider": "LEGACY_DATAPATH"}, {}, "no Dataplane V2", "cannot be turned on later"),
        ({}, {"fabric": "multi-network"}, "Multi-networking is off", "managed-dranet"),
        ({"node_pools": [pool("gpu", {})]}, {}, "node pool gpu, which no stack made", "another cluster"),
        ({"node_pools": [pool("system", {STACK: "b"})]}, {}, "node pool system, of the stack b", "another cluster"),
        ({"monitoring_configs": None}, {}, "Managed Prometheus is off", "--enable-managed-prometheus"),
        ({"cluster_ipv4_cidr": "10.128.0.0/21"}, {}, "of 8 nodes, a /24 each; 6 are there", "lower nodes.max"),
        ({"workload_identity_configs": []}, {"storage.bucket": "b-1"}, "no Workload Identity", "--workload-pool"),
        ({"addons_configs": []}, {"storage.bucket": "b-1"}, "no GCS FUSE driver", "GcsFuseCsiDriver=ENABLED"),
        (
            {"addons_configs": [SimpleNamespace(ray_operator_configs=[SimpleNamespace(enabled=True)])]},
            {},
            "Ray add-on is on",
            "add kuberay to cluster.provides",
        ),
    ],
)
def test_each_lack_is_a_problem(wrong: dict[str, Any], changes: dict[str, Any], words: str, fix: str) -> None:
    [one] = problems(cluster(**wrong), gke(STACK_FILE | changes), "ours")
    assert words in one.message
    assert fix in one.fix


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        ({"namespaces", "daemonsets"}, "may not create customresourcedefinitions, clusterroles, validatingadmission"),
        (None, "The cluster does not answer: no route to host"),
    ],
)
def test_cluster_that_the_user_cannot_use(rights: set[str] | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: Kubectl, path: str) -> dict[str, Any]:
        if rights is None:
            raise KubectlError("", "no route to host")
        assert path == "/version"
        return {}

    monkeypatch.setattr(Kubectl, "read", read)
    monkeypatch.setattr(Kubectl, "allowed", lambda _self, _verb, _group, resource, _where: resource in (rights or ()))
    [one] = Inside("{}", gke(STACK_FILE), "ours", []).problems
    assert words in one.message
    assert one.settings == ("cluster.existing",)


def test_everything_is_reported_at_once() -> None:
    lacks = {"master_version": "1.30.1-gke.1", "ip_allocation_policies": [], "cluster_ipv4_cidr": "10.0.0.0/24"}
    assert len(list(problems(cluster(**lacks), gke(STACK_FILE), "ours"))) == 3
