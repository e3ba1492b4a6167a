"""Hand-written deployments in the format of `pulumi stack export`, for tests without an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:AAAA:hunter2"}
STACK = "urn:pulumi:gke::rdma-ray::pulumi:pulumi:Stack::rdma-ray-gke"


class Deployment:
    """Builder of a deployment; every method returns the URN of the added resource."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = [{"urn": STACK, "type": "pulumi:pulumi:Stack", "custom": False}]

    def component(self, type_: str, name: str, parent: str = STACK) -> str:
        """Add a component."""
        return self._add(type_, name, {"parent": parent})

    def provider(self, package: str, name: str, data: Iterable[str] = (), **inputs: Any) -> str:
        """Add a provider."""
        return self._add(
            f"pulumi:providers:{package}",
            name,
            {"id": f"id-of-{name}", "custom": True, "parent": STACK, "inputs": inputs} | _needs(data, ()),
        )

    def resource(
        self,
        type_: str,
        name: str,
        *,
        parent: str = STACK,
        provider: str | None = None,
        data: Iterable[str] = (),
        after: Iterable[str] = (),
        deleted_with: str | None = None,
        inputs: dict[str, Any] | None = None,
    ) -> str:
        """Add a resource that uses values of `data`, and depends on `after` explicitly."""
        state = {"id": f"id-of-{name}", "custom": True, "parent": parent, "inputs": inputs or {}, "outputs": {}}
        if provider:
            state["provider"] = f"{provider}::id-of-{provider.rpartition('::')[2]}"
        if deleted_with:
            state["deletedWith"] = deleted_with
        return self._add(type_, name, state | _needs(data, after))

    def exported(self) -> dict[str, Any]:
        """Return the output of `pulumi stack export`."""
        return {"version": 3, "deployment": {"manifest": {}, "resources": self.resources}}

    def _add(self, type_: str, name: str, state: dict[str, Any]) -> str:
        urn = f"urn:pulumi:gke::rdma-ray::{type_}::{name}"
        self.resources.append({"urn": urn, "type": type_, "custom": False} | state)
        return urn


def _needs(data: Iterable[str], after: Iterable[str]) -> dict[str, Any]:
    data = list(data)
    return {
        "dependencies": [*data, *after],
        "propertyDependencies": {f"property{number}": [urn] for number, urn in enumerate(data)},
    }


def gke() -> Deployment:
    """Return a small deployment with the edges of the GKE stack's: data, order, parents, providers, `deleted_with`."""
    made = Deployment()
    gcp = made.provider("gcp", "default_10_2_0", project="a-project")
    root = made.component("rdma-ray:gke:GkeStack", "gke")

    def cloud(type_: str, name: str, parent: str, *data: str, **more: Any) -> str:
        return made.resource(f"gcp:{type_}", name, parent=parent, provider=gcp, data=data, **more)

    part = made.component("rdma-ray:gke:ClusterNetwork", "cluster-network", root)
    network = cloud("compute/network:Network", "cluster", part, inputs={"name": "cluster", "__defaults": []})
    subnet = cloud("compute/subnetwork:Subnetwork", "cluster", part, network)
    rdma = cloud("compute/network:Network", "rdma", part)
    rails = [cloud("compute/subnetwork:Subnetwork", f"rdma-{rail}", part, rdma) for rail in range(8)]
    part = made.component("rdma-ray:gke:GkeCluster", "cluster", root)
    member = cloud("projects/iAMMember:IAMMember", "nodes-logs", part)
    cluster = cloud("container/cluster:Cluster", "cluster", part, network, subnet)
    node = {"nodeConfig": {"machineType": "e2-standard-8"}}
    system = cloud("container/nodePool:NodePool", "system", part, cluster, after=[member], inputs=node)
    accelerator = {"nodeConfig": {"guestAccelerators": [{"type": "nvidia-h200-141gb", "count": 8}]}}
    gpu = cloud("container/nodePool:NodePool", "gpu", part, cluster, *rails, after=[member], inputs=accelerator)
    kubernetes = made.provider("kubernetes", "cluster", [cluster], kubeconfig=SECRET)

    def thing(type_: str, name: str, *data: str, **more: Any) -> str:
        more = {"provider": kubernetes, "deleted_with": cluster, "parent": root} | more
        return made.resource(f"kubernetes:{type_}", name, data=data, **more)

    devices = [thing("networking.gke.io/v1:Network", f"rdma-{rail}", urn) for rail, urn in enumerate(rails)]
    operator = thing("helm.sh/v3:Release", "kuberay-operator", after=[system])
    secret = thing("core/v1:Secret", "token", inputs={"stringData": {"token": SECRET}})
    thing("ray.io/v1:RayCluster", "ray", secret, after=[operator, *devices, gpu])
    return made
