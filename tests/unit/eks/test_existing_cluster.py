"""The user's EKS cluster: each thing for which a stack cannot be in it is one problem, with its fix, all at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pulumi_aws as aws
import pytest

from infra.catalog.names import KUBERAY_LABELS, OWNER_LABEL, STACK_LABEL
from infra.catalog.pins import (
    CLUSTER_AUTOSCALER,
    DCGM_EXPORTER,
    EFA_PLUGIN,
    EKS,
    EKS_NEXT,
    KUBERAY,
    NVIDIA_PLUGIN,
    Chart,
)
from infra.eks.addons import their_release
from infra.eks.existing_cluster import existing_cluster
from infra.eks.names import EksNames
from infra.existing.kubectl import Json, Kubectl, KubectlError
from infra.naming import OWNER, STACK
from infra.settings import SettingsError
from tests.unit.stacks import eks

SUBNET = "subnet-0123456789abcdef0"
MINE: dict[str, Any] = {"cluster.existing": "training", "network.subnets": [SUBNET], "nodes.max": 4}
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists"}


def workload(image: str, name: str = "theirs", release: str = "", **spec: Any) -> Json:
    """Return a DaemonSet or Deployment in kube-system, of a Helm release if one is given."""
    helm = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "kube-system"}
    return {
        "metadata": {"name": name, "namespace": "kube-system", "annotations": helm if release else {}},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}], **spec}}},
    }


def plugin(chart: Chart, **more: Any) -> Json:
    """Return the DaemonSet of a device plugin that tolerates the taint of GPU nodes."""
    return workload(f"{chart.image}:v1", **{"tolerations": [TAINT], **more})


def affinity(key: str, operator: str, *values: str) -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


IMAGES = EFA_PLUGIN.image.partition("/")[0]
CNI = workload(f"{IMAGES}/amazon-k8s-cni:v1.18.5-eksbuild.1", "aws-node")
AGENT = workload(f"{IMAGES}/eks/eks-pod-identity-agent:v0.1.36@sha256:00", "eks-pod-identity-agent")
DNS = workload(f"{IMAGES}/eks/coredns:v1.12.4-eksbuild.1", "coredns")
OTHER_GROUP = {"nodeSelector": {"eks.amazonaws.com/nodegroup": "inference"}}
NOT_OURS = affinity("eks.amazonaws.com/nodegroup", "NotIn", "gpu")
FEATURES = workload(f"{NVIDIA_PLUGIN.image}:v1", tolerations=[TAINT])
FEATURES["spec"]["template"]["spec"]["containers"][0]["name"] = "gpu-feature-discovery"


@dataclass
class Account:
    """What AWS and the cluster's API server answer."""

    cluster: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, str]] = field(default_factory=lambda: {"inference": {}})
    running: int = 0
    subnet: dict[str, Any] = field(default_factory=dict)
    way_out: dict[str, str] = field(default_factory=lambda: {"nat_gateway_id": "nat-1"})
    daemons: list[Json] = field(default_factory=lambda: [CNI, AGENT])
    deployments: list[Json] = field(default_factory=lambda: [DNS])
    objects: dict[str, Json] = field(default_factory=dict)

    def get_cluster(self, **_: Any) -> Any:
        if self.cluster.get("status") == "missing":
            raise RuntimeError("ResourceNotFoundException: No cluster found for name: training.")
        known = {
            "status": "ACTIVE",
            "version": EKS,
            "access_configs": [SimpleNamespace(authentication_mode="API")],
            "kubernetes_network_configs": [SimpleNamespace(ip_family="ipv4")],
            "endpoint": "https://0123.gr7.us-east-1.eks.amazonaws.com",
            "certificate_authorities": [SimpleNamespace(data="Q0E=")],
            "vpc_config": SimpleNamespace(cluster_security_group_id="sg-1", vpc_id="vpc-1"),
        }
        return SimpleNamespace(**{**known, **self.cluster})

    def get_node_groups(self, **_: Any) -> Any:
        return SimpleNamespace(names=[*self.groups])

    def get_node_group(self, node_group_name: str, **_: Any) -> Any:
        sizes = [SimpleNamespace(desired_size=self.running)]
        return SimpleNamespace(tags=self.groups[node_group_name], scaling_configs=sizes)

    def get_subnet(self, **named: str) -> Any:
        if self.subnet.get("id") == "missing":
            raise RuntimeError(f"InvalidSubnetID.NotFound: The subnet ID '{named['id']}' does not exist")
        known: Json = {"vpc_id": "vpc-1", "availability_zone": "us-east-1a", "availability_zone_id": "use1-az1"}
        known |= {"available_ip_address_count": 500, "map_public_ip_on_launch": False}
        return SimpleNamespace(**{**known, **self.subnet})

    def get_route_table(self, **_: Any) -> Any:
        route = {"cidr_block": "0.0.0.0/0", "gateway_id": "", **self.way_out}
        return SimpleNamespace(routes=[SimpleNamespace(**route)])

    def get_vpc(self, **_: Any) -> Any:
        return SimpleNamespace(enable_dns_hostnames=True, enable_dns_support=True, main_route_table_id="rtb-1")

    def read(self, _kubectl: Kubectl, path: str) -> Json:
        if path == "/version":
            return {"gitVersion": "v1.35.3-eks-1"}
        if path.startswith("/apis/apps/v1/"):
            if "labelSelector" in path:
                return {"items": [each for each in self.deployments if each["metadata"].get("labels")]}
            return {"items": self.daemons if path.endswith("daemonsets") else self.deployments}
        if path in self.objects:
            return self.objects[path]
        raise KubectlError("NotFound", "not found")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that checks an account for a stack file `mine` with changes."""

    def run(account: Account, changes: Mapping[str, Any] | None = None) -> Any:
        for name in ("get_cluster", "get_node_groups", "get_node_group"):
            monkeypatch.setattr(aws.eks, name, getattr(account, name))
        for name in ("get_subnet", "get_route_table", "get_vpc"):
            monkeypatch.setattr(aws.ec2, name, getattr(account, name))
        monkeypatch.setattr(Kubectl, "read", lambda *arguments: account.read(*arguments))
        monkeypatch.setattr(Kubectl, "allowed", lambda *_: True)
        settings = eks({**MINE, **(changes or {})})
        return existing_cluster(settings, EksNames("mine", "us-east-1", existing="training"))

    return run


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "missing": ({"cluster": {"status": "missing"}}, {}, "No cluster found", "aws eks list-clusters"),
    "being made": ({"cluster": {"status": "CREATING"}}, {}, "CREATING", "aws eks wait cluster-active --name training"),
    "ConfigMap": (
        {"cluster": {"access_configs": [SimpleNamespace(authentication_mode="CONFIG_MAP")]}},
        {},
        "aws-auth",
        "aws eks update-cluster-config --name training --access-config authenticationMode=API_AND_CONFIG_MAP",
    ),
    "other version": ({"cluster": {"version": EKS_NEXT}}, {}, EKS_NEXT, f'set cluster.version to "{EKS_NEXT}"'),
    "old": ({"cluster": {"version": "1.33"}}, {}, "1.33", f"--name training --kubernetes-version {EKS}"),
    "new": ({"cluster": {"version": "1.40"}}, {}, "no node image", f"a cluster of version {EKS}"),
    "IPv6": (
        {"cluster": {"kubernetes_network_configs": [SimpleNamespace(ip_family="ipv6")]}},
        {},
        "IPv6",
        "name a cluster with IPv4",
    ),
    "group of nobody": ({"groups": {"gpu": {}}}, {}, "node group gpu, which no stack made", "use another cluster"),
    "group of another": ({"groups": {"system": {STACK: "b"}}}, {}, "node group system, of the stack b", "another"),
    "no subnet": ({"subnet": {"id": "missing"}}, {}, "does not exist", "check the id"),
    "other VPC": ({"subnet": {"vpc_id": "vpc-2"}}, {}, "is in vpc-2, and the cluster in vpc-1", "of that VPC"),
    "other zone": (
        {"subnet": {"availability_zone": "us-east-1b", "availability_zone_id": "use1-az2"}},
        {},
        "us-east-1b",
        "in us-east-1a for the nodes",
    ),
    "public": ({"way_out": {"gateway_id": "igw-1"}}, {}, "Internet gateway", "a private subnet"),
    "full": ({"subnet": {"available_ip_address_count": 351}}, {}, "up to 352 there", "lower nodes.max"),
    "no CNI": ({"daemons": [AGENT]}, {}, "no vpc-cni", "create-addon --cluster-name training --addon-name vpc-cni"),
    "old CNI": (
        {"daemons": [workload("amazon-k8s-cni:v1.18.3-eksbuild.1"), AGENT]},
        {},
        "vpc-cni is 1.18.3",
        "aws eks update-addon --cluster-name training --addon-name vpc-cni --addon-version v1.22",
    ),
    "no agent": ({"daemons": [CNI]}, {}, "the autoscaler gets no rights", "--addon-name eks-pod-identity-agent"),
    "no driver": ({}, {"storage.bucket": "data"}, "no pod mounts", "--addon-name aws-fsx-csi-driver"),
    "no DNS": ({"deployments": []}, {}, "do not find Ray's head", "--addon-name coredns"),
    "namespace": (
        {"objects": {"/api/v1/namespaces/ray": {"kind": "Namespace", "metadata": {"name": "ray"}}}},
        {},
        "a Namespace ray, which no stack made",
        "use another cluster",
    ),
    "volume of another": (
        {
            "objects": {
                "/api/v1/persistentvolumes/mine-shared": {
                    "kind": "PersistentVolume",
                    "metadata": {"labels": {STACK_LABEL: "b"}},
                }
            },
            "daemons": [CNI, AGENT, workload("public.ecr.aws/fsx-csi-driver/aws-fsx-csi-driver:v1.9.0")],
        },
        {"storage.bucket": "data"},
        "a PersistentVolume mine-shared, of the stack b",
        "use another cluster",
    ),
    "KubeRay": (
        {
            "deployments": [
                DNS,
                {
                    "metadata": {"name": "op", "namespace": "kr", "labels": dict(KUBERAY_LABELS)},
                    "spec": {"template": {"spec": {"containers": [{"image": f"{KUBERAY.image}:v1.7.0"}]}}},
                },
            ]
        },
        {},
        "KubeRay is there, in the Deployment kr/op",
        "add kuberay to cluster.provides",
    ),
    "NVIDIA's plugin": (
        {"daemons": [CNI, AGENT, plugin(NVIDIA_PLUGIN)]},
        {},
        "kube-system/theirs would run on the stack's GPU nodes",
        "add nvidia-device-plugin to cluster.provides, or let it leave out nodes with eks.amazonaws.com/nodegroup=gpu",
    ),
    "EFA's plugin": (
        {
            "daemons": [
                CNI,
                AGENT,
                plugin(
                    EFA_PLUGIN,
                    affinity=affinity("node.kubernetes.io/instance-type", "In", "p4d.24xlarge", "p5en.48xlarge"),
                ),
            ]
        },
        {},
        "would each allocate the EFA devices",
        "add efa-device-plugin to cluster.provides",
    ),
    "a plugin of another stack": (
        {"daemons": [CNI, AGENT, plugin(NVIDIA_PLUGIN, release=their_release("b", NVIDIA_PLUGIN))]},
        {},
        "on the stack's GPU nodes",
        "add nvidia-device-plugin",
    ),
    "an exporter of GPUs": (
        {"daemons": [CNI, AGENT, plugin(DCGM_EXPORTER)]},
        {"monitoring": "annotations"},
        "would each report the GPUs",
        "add dcgm-exporter to cluster.provides",
    ),
    "no exporter of GPUs": (
        {},
        {"monitoring": "operator", "cluster.provides": ["dcgm-exporter"]},
        "No DaemonSet of the cluster has the dcgm-exporter.",
        "remove dcgm-exporter from cluster.provides",
    ),
    "both ways of EFA": (
        {"daemons": [CNI, AGENT, plugin(EFA_PLUGIN)]},
        {"fabric": "efa-dranet", "nodes.min": 1},
        "also offers EFA",
        "set fabric to the one",
    ),
    "an autoscaler": (
        {"deployments": [DNS, workload(f"{CLUSTER_AUTOSCALER.image}:v1.35.0")]},
        {},
        "two would size the same groups",
        "add cluster-autoscaler to cluster.provides",
    ),
    "no plugin": (
        {},
        {"cluster.provides": ["nvidia-device-plugin"]},
        "No DaemonSet of the cluster has the nvidia-device-plugin.",
        "remove nvidia-device-plugin from cluster.provides",
    ),
    "a plugin that does not tolerate the taint": (
        {"daemons": [CNI, AGENT, plugin(EFA_PLUGIN, tolerations=[])]},
        {"cluster.provides": ["efa-device-plugin"]},
        "on nodes with eks.amazonaws.com/nodegroup=gpu and the taint nvidia.com/gpu",
        "to run it on such nodes",
    ),
    "no autoscaler": (
        {},
        {"cluster.provides": ["cluster-autoscaler"]},
        "no GPU node would start",
        "remove cluster-autoscaler from cluster.provides",
    ),
}
"""What is wrong, settings of the stack, and words of the one problem and of its fix."""


@pytest.mark.parametrize("what", WRONG)
def test_each_thing_is_a_problem_with_its_fix(what: str, check: Callable[..., Any]) -> None:
    wrong, changes, words, fix = WRONG[what]
    with pytest.raises(SettingsError) as raised:
        check(Account(**wrong), changes)
    [one] = raised.value.problems
    assert words in one.message
    assert fix in one.fix


def test_all_problems_are_reported_at_once(check: Callable[..., Any]) -> None:
    wrong = Account(
        cluster={"version": "1.33", "access_configs": []},
        groups={"gpu": {}, "system": {STACK: "b"}},
        subnet={"id": "missing"},
        daemons=[plugin(NVIDIA_PLUGIN)],
        deployments=[workload(f"{CLUSTER_AUTOSCALER.image}:v1.35.0")],
    )
    with pytest.raises(SettingsError) as raised:
        check(wrong)
    assert len(raised.value.problems) == 10


def test_cluster_with_other_nodes_and_their_plugins_has_none(check: Callable[..., Any]) -> None:
    """Theirs are for other nodes; a cluster of EKS Auto Mode may be used, too."""
    theirs = [
        plugin(NVIDIA_PLUGIN, **OTHER_GROUP),
        plugin(EFA_PLUGIN, affinity=NOT_OURS),
        plugin(EFA_PLUGIN, affinity=affinity("node.kubernetes.io/instance-type", "In", "p4d.24xlarge")),
        workload(f"{EFA_PLUGIN.image}:v1"),
        FEATURES,
    ]
    auto = {"compute_configs": [SimpleNamespace(enabled=True)]}
    found = check(Account(cluster=auto, daemons=[CNI, AGENT, *theirs]))
    assert (found.name, found.security_group, found.owners) == ("training", "sg-1", {})
    assert (found.place.gpu, [*found.place.private]) == (SUBNET, [SUBNET])
    [user] = json.loads(found.kubeconfig)["users"]
    assert "training" in user["user"]["exec"]["args"]


def test_components_of_the_cluster_are_used(check: Callable[..., Any]) -> None:
    provides = ["cluster-autoscaler", "nvidia-device-plugin", "efa-device-plugin"]
    scaler = workload(f"{CLUSTER_AUTOSCALER.image}:v1.35.0")
    # Without pods of the stack that call AWS, the agent is not needed.
    theirs = Account(daemons=[CNI, plugin(NVIDIA_PLUGIN), plugin(EFA_PLUGIN)], deployments=[DNS, scaler])
    check(theirs, {"cluster.provides": provides})
    policies = {"cluster.provides": provides, "ray.policies": ["arn:aws:iam::111122223333:policy/data"]}
    with pytest.raises(SettingsError, match="Ray's pods get no rights"):
        check(theirs, policies)


def test_own_things_are_no_problem_and_have_their_owner(check: Callable[..., Any]) -> None:
    """In a later preview: nodes have their addresses, and the stack's releases are told by their names."""
    releases = {each: their_release("mine", each) for each in (NVIDIA_PLUGIN, EFA_PLUGIN, CLUSTER_AUTOSCALER)}
    mine = {STACK_LABEL: "mine", OWNER_LABEL: "0a1b2c3d"}
    ours = Account(
        groups={each: {STACK: "mine", OWNER: "0a1b2c3d"} for each in ("gpu", "system")},
        running=3,
        subnet={"available_ip_address_count": 64},
        daemons=[CNI, AGENT, *(plugin(each, release=releases[each]) for each in (NVIDIA_PLUGIN, EFA_PLUGIN))],
        deployments=[DNS, workload(f"{CLUSTER_AUTOSCALER.image}:v1", release=releases[CLUSTER_AUTOSCALER])],
        objects={"/api/v1/namespaces/ray": {"kind": "Namespace", "metadata": {"labels": mine}}},
    )
    assert check(ours).owners == dict.fromkeys(("a Namespace ray", "node group gpu", "node group system"), "0a1b2c3d")


@pytest.mark.parametrize("items", [None, 7, [None], [{"spec": []}], [{"spec": {"template": {"spec": 7}}}]])
def test_answers_of_any_form_are_read(items: Any, check: Callable[..., Any]) -> None:
    with pytest.raises(SettingsError, match="no vpc-cni"):
        check(Account(daemons=items))
    odd: Json = {"tolerations": [TAINT, 7], "nodeSelector": [], "affinity": affinity("a", "In")}
    odd["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] += [7, {}]
    with pytest.raises(SettingsError, match="would run on the stack's GPU nodes"):
        check(Account(daemons=[CNI, AGENT, plugin(NVIDIA_PLUGIN, **odd)]))
