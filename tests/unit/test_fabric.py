"""GPU pods and fabrics, for each machine and fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.catalog.machines import EKS_CATALOG, GKE_CATALOG
from infra.catalog.pins import DEVICE_API
from infra.eks.pod import gpu_pod as eks_pod
from infra.fabric import GpuPod
from infra.gke.pod import gpu_pod as gke_pod
from infra.outputs import fabric_outputs
from infra.plan import plan
from infra.settings import SettingsError
from tests.unit.stacks import eks, gke

GKE_MACHINES = ("a3-ultragpu-8g", "a4-highgpu-8g")
EKS_MACHINES = {
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p6-b200.48xlarge": 8,
    "p6-b300.48xlarge": 16,
}


def on_gke(changes: dict[str, Any] | None = None) -> GpuPod:
    settings = gke(changes)
    return gke_pod(settings, GKE_CATALOG[settings.nodes.machine])


def on_eks(changes: dict[str, Any] | None = None) -> GpuPod:
    settings = eks(changes)
    return eks_pod(settings, EKS_CATALOG[settings.nodes.machine])


def every_pod() -> list[tuple[str, GpuPod]]:
    pods = []
    for machine in GKE_MACHINES:
        for fabric in ("multi-network", "dranet", "managed-dranet"):
            changes = {"nodes.machine": machine, "nodes.capacity": "spot", "fabric": fabric, "nodes.min": 1}
            pods.append((f"{machine}-{fabric}", on_gke(changes)))
    for machine in EKS_MACHINES:
        for fabric in ("efa", "efa-dranet"):
            changes = {"nodes.machine": machine, "fabric": fabric, "nodes.min": 1}
            pods.append((f"{machine}-{fabric}", on_eks(changes)))
    return pods


PODS = every_pod()


def every_key(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in every_key(inner)}
    if isinstance(value, list):
        return {key for inner in value for key in every_key(inner)}
    return set()


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_pods_have_no_unneeded_privileges(name: str, pod: GpuPod) -> None:
    spec, container = pod.pod(), pod.container()
    assert not {"hostNetwork", "hostPID", "privileged", "allowPrivilegeEscalation"} & every_key([spec, container])
    # Locked memory: pods on GKE need the capability, nodes of EKS raise the limit.
    assert container["securityContext"].get("capabilities") == ({"add": ["IPC_LOCK"]} if name.startswith("a") else None)
    paths = [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume]
    assert not [path for path in paths if path.startswith(("/dev", "/sys", "/proc"))], name


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_every_pod_takes_a_whole_node(name: str, pod: GpuPod) -> None:
    resources = pod.container()["resources"]
    assert resources["requests"] == resources["limits"], name
    assert resources["limits"]["nvidia.com/gpu"] == "8"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod.pod()["tolerations"]


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_mounts_volumes_and_claims_match(name: str, pod: GpuPod) -> None:
    spec, container = pod.pod(), pod.container()
    json.dumps([spec, container, list(pod.objects), dict(pod.annotations)])
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert "/dev/shm" in {mount["mountPath"] for mount in container["volumeMounts"]}
    claims = {claim["name"] for claim in spec.get("resourceClaims", [])}
    assert {claim["name"] for claim in container["resources"].get("claims", [])} == claims
    templates = {item["metadata"]["name"] for item in pod.objects if item["kind"] == "ResourceClaimTemplate"}
    assert {claim["resourceClaimTemplateName"] for claim in spec.get("resourceClaims", [])} == templates
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert len(environment) == len(container["env"])
    assert environment["NCCL_SOCKET_IFNAME"] == environment["GLOO_SOCKET_IFNAME"] == "eth0"
    assert all(variable.why and variable.source for variable in pod.environment), name


@pytest.mark.parametrize("machine", GKE_MACHINES)
@pytest.mark.parametrize(
    ("fabric", "device_class", "kinds"),
    [
        ("dranet", "dranet", ["DeviceClass", "ResourceClaimTemplate"]),
        ("managed-dranet", "mrdma.google.com", ["ResourceClaimTemplate"]),
    ],
)
def test_dranet_claims_every_nic(machine: str, fabric: str, device_class: str, kinds: list[str]) -> None:
    pod = on_gke({"nodes.machine": machine, "nodes.capacity": "spot", "fabric": fabric, "nodes.min": 1})
    assert pod.annotations == {}
    assert [item["kind"] for item in pod.objects] == kinds
    assert {item["apiVersion"] for item in pod.objects} == {DEVICE_API}
    (request,) = pod.objects[-1]["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == device_class
    assert (request["exactly"]["allocationMode"], request["exactly"]["count"]) == ("ExactCount", 8)
    # With a selector here Kueue would not admit the first claim; the class selects the devices.
    assert "selectors" not in request["exactly"]
    for made in pod.objects[:-1]:
        selectors = [item["cel"]["expression"] for item in made["spec"]["selectors"]]
        assert selectors == ['device.driver == "dra.net"', 'device.attributes["dra.net"].rdma == true']


def test_gke_selectors() -> None:
    assert on_gke().node_selector == {"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"}
    classed = on_gke({"computeClass": True})
    assert classed.node_selector == {"cloud.google.com/compute-class": "rdma"}
    assert not classed.node_selector["cloud.google.com/compute-class"].startswith(("gke", "autopilot"))
    keys = {toleration["key"] for toleration in classed.tolerations}
    assert "cloud.google.com/compute-class" in keys
    queued = on_gke({"nodes.capacity": "flex-start-queued", "queue": "kueue"})
    assert "cloud.google.com/gke-queued" in {toleration["key"] for toleration in queued.tolerations}
    assert queued.node_selector["cloud.google.com/gke-nodepool"] == "gpu"
    reserved = {"nodes.capacity": "reservation", "nodes.reservation": "ours", "queue": "kueue"}
    either = on_gke({**reserved, "nodes.fallback": "flex-start-queued"})
    assert "cloud.google.com/gke-queued" in {toleration["key"] for toleration in either.tolerations}
    # Kueue chooses the pool, so the field that it writes must be empty.
    assert "nodeSelector" not in either.pod()
    assert "cloud.google.com/gke-queued" not in {toleration["key"] for toleration in on_gke(reserved).tolerations}


@pytest.mark.parametrize(("machine", "devices"), EKS_MACHINES.items())
def test_efa_devices_by_plugin_and_by_claim(machine: str, devices: int) -> None:
    plugin = on_eks({"nodes.machine": machine})
    assert plugin.container()["resources"]["limits"]["vpc.amazonaws.com/efa"] == str(devices)
    assert plugin.objects == ()
    claim = on_eks({"nodes.machine": machine, "fabric": "efa-dranet", "nodes.min": 1})
    assert "vpc.amazonaws.com/efa" not in claim.container()["resources"]["limits"]
    (request,) = claim.objects[0]["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "efa.networking.k8s.aws"
    assert request["exactly"]["count"] == devices
    for pod in (plugin, claim):
        assert pod.node_selector == {"node.kubernetes.io/instance-type": machine}
        # Ray's user: the nodes raise the limit of locked memory; the capability works for root only.
        assert pod.container()["securityContext"] == {}


def test_fabrics() -> None:
    for machine, file in (("a3-ultragpu-8g", "tuner_config_a3u.txtpb"), ("a4-highgpu-8g", "tuner_config_a4.txtpb")):
        found = plan(gke({"nodes.machine": machine, "nodes.capacity": "spot"}))
        assert (found.fabric.transport, found.fabric.gbps) == ("gib", 3200)
        scripted = {variable.name: variable.value for variable in found.scripted}
        assert scripted["NCCL_TUNER_CONFIG_PATH"] == f"/usr/local/gib/configs/{file}"
        assert scripted["NCCL_IB_TC"] == "52"
        assert found.pod
        assert {variable.name: variable.value for variable in found.pod.environment}["NCCL_NET"] == "gIB"
    efa = plan(eks({"nodes.machine": "p6-b300.48xlarge"})).fabric
    assert (efa.transport, efa.nics, efa.gbps) == ("efa", 16, 6400)
    local = fabric_outputs("socket")
    assert (local.transport, local.nics, local.gbps) == ("socket", None, None)


def test_fabric_of_another_cloud_and_unsupported_machine_are_rejected() -> None:
    with pytest.raises(SettingsError, match="multi-network"):
        gke({"fabric": "efa"})
    with pytest.raises(SettingsError, match="efa-dranet"):
        eks({"fabric": "multi-network"})
    with pytest.raises(ValueError, match="not supported"):
        gke_pod(gke(), GKE_CATALOG["a4x-highgpu-4g"])
