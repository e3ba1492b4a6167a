"""Stack file of a Kubernetes cluster that the user has, in which the stack makes Ray and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from infra.catalog.fabrics import FABRICS, GIB_SCRIPT, Fabric, Resource, fabrics_of, gib_setup
from infra.catalog.machines import CATALOG, Machine
from infra.settings.cloud import KUBERNETES_LIMITS
from infra.settings.cluster import ClusterSettings
from infra.settings.common import CloudService, ClusterAccess, pairs
from infra.settings.existing import KubernetesNodes, KubernetesRay, KubernetesStorage, OtherNodes
from infra.settings.fields import Flag, OneOf, Section, Text
from infra.settings.pods import NAMES, not_a_name
from infra.settings.problems import CONTRACT, Finding, Findings, rule

LABELS = "Kubernetes docs, concepts/overview/working-with-objects/labels, read 2026-11-27"
RESOURCES = "Kubernetes docs, tasks/configure-pod-container/extended-resource, read 2026-11-27"
LOCAL_QUEUES = "Kueue docs, concepts/local_queue, read 2026-11-27"

NAME_LIMITS = KUBERNETES_LIMITS
LEVELS = 9
"""Most labels of nodes.topology, which workloads/gang/placement.py reads."""
_LABEL = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?"


class KubernetesSettings(ClusterSettings, Section):
    """Stack file of a cluster that the user has."""

    target: Literal["kubernetes"]
    context: Text = Field(
        title="a context",
        examples=["my-cluster"],
        description="kubernetes: context of your kubeconfig (KUBECONFIG, or ~/.kube/config). The current one is not "
        "used, since another program may change it.",
    )
    namespace: Text = Field(
        title="a namespace", examples=["ray"], description="kubernetes: existing namespace. All objects are made in it."
    )
    nodes: KubernetesNodes
    other_nodes: OtherNodes = Field(description="More nodes, with other GPUs, for tasks that name them.")
    fabric: Annotated[str, OneOf(fabrics_of("kubernetes"))] = Field(title="fabric")
    fabric_resource: Text | None = Field(
        None,
        title="RESOURCE or RESOURCE=COUNT",
        examples=["rdma/ib", "nvidia.com/hostdev=8"],
        description="kubernetes, fabric rdma: resource that the device plugin offers, and how many a worker takes; "
        "without it 1 of rdma/ib.",
    )
    queue: Literal["none", "kueue"] = Field("none", title="queue")
    local_queue: Text | None = Field(
        None,
        title="a LocalQueue",
        examples=["team-queue"],
        description="kubernetes: existing LocalQueue of the namespace, with queue kueue.",
    )
    ray: KubernetesRay
    service: CloudService
    storage: KubernetesStorage
    install_kuberay: Flag = Field(
        False,
        description="kubernetes: whether the stack installs KubeRay, which needs an administrator's rights. Without "
        "it, the cluster must have KubeRay; the stack never replaces one.",
    )
    monitoring: Literal["none", "operator", "annotations"] = "none"
    access: ClusterAccess
    protect: Flag = True

    @property
    def cost(self) -> None:
        """Cost per hour: not known, since the machines are the user's."""

    @property
    def own_cluster(self) -> bool:
        """Whether the stack makes the cluster."""
        return False

    @property
    def location(self) -> None:
        """A cluster of the user's has no zone."""

    @property
    def machine(self) -> Machine | None:
        """Catalog row of the nodes' machine type, if the stack file names it."""
        return None if self.nodes.machine is None else CATALOG[self.nodes.machine]

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a worker."""
        return self.nodes.gpus

    @property
    def cpus_per_node(self) -> int:
        """CPUs that a worker requests."""
        return self.nodes.cpus

    @property
    def nics_per_node(self) -> int | None:
        """RDMA NICs of a node; None if not known."""
        return self.nodes.nics

    @property
    def node_wait_s(self) -> int:
        """Seconds that a pod may wait for its node."""
        return 60 * self.nodes.wait_minutes

    @property
    def fabric_row(self) -> Fabric:
        """Catalog row of the fabric, with the resource of the cluster's device plugin."""
        row = FABRICS[self.fabric]
        if row.transport.installer is not None:
            # Somebody else's installer, such as Google's DaemonSet, leaves no mark.
            row = replace(row, setup=gib_setup(GIB_SCRIPT))
        if self.fabric_resource is None or row.resource is None:
            return row
        [(name, count)] = pairs((self.fabric_resource,))
        return replace(row, resource=Resource(name, per="pod", count=int(count or 1)))

    @rule("fabricResource", "fabric", source=RESOURCES)
    def resource_malformed(self) -> Findings:
        if self.fabric_resource is None:
            return
        if self.fabric != "rdma":
            fix = "set fabric to rdma, or remove fabricResource"
            yield Finding(f"Fabric {self.fabric} has its own way to the NICs, so nothing would read this.", fix)
        elif not re.fullmatch(rf"{_LABEL}(=[1-9]\d?)?", self.fabric_resource) or "/" not in self.fabric_resource:
            fix = "write the name as `kubectl describe node` shows it, such as rdma/ib or nvidia.com/hostdev=8"
            yield Finding(f"{self.fabric_resource} is not an extended resource and a number.", fix)

    @rule("nodes.nics", "fabric", source=CONTRACT)
    def nics_unknown(self) -> Findings:
        row = self.fabric_row
        counted = row.claim is not None or (row.resource is not None and row.resource.per == "nic")
        if counted and self.nodes.nics is None:
            yield Finding(
                f"Fabric {self.fabric} gives a pod a number of NICs, but none is set.",
                "set nodes.nics, or nodes.machine",
            )

    @rule("nodes.gpus", "nodes.machine", source=CONTRACT)
    def gpus_of_another_machine(self) -> Findings:
        machine = self.machine
        if machine is not None and self.nodes.gpus != machine.gpus:
            fix = f"set nodes.gpus to {machine.gpus}, or remove nodes.machine"
            yield Finding(f"A {machine.name} has {machine.gpus} GPUs, and a worker takes all of them.", fix)

    @rule("localQueue", "queue", source=LOCAL_QUEUES)
    def queue_incomplete(self) -> Findings:
        if self.queue == "kueue" and self.local_queue is None:
            fix = "set localQueue to one that `kubectl get localqueues` shows, or queue to none"
            yield Finding("Kueue admits a workload by a LocalQueue of its namespace, but none is set.", fix)
        elif self.queue == "none" and self.local_queue is not None:
            yield Finding("Without queue kueue, nothing would read this.", "set queue to kueue, or remove localQueue")

    @rule("ray.cpuWorkers", "nodes.gpus", source=CONTRACT)
    def cpu_workers_twice(self) -> Findings:
        if self.ray.cpu_workers and not self.nodes.gpus:
            fix = "set ray.cpuWorkers to 0, and raise nodes.max"
            yield Finding("Without GPUs, all workers are CPU workers.", fix)

    @rule("otherNodes.max", "ray.mode", source=CONTRACT)
    def other_nodes_in_another_mode(self) -> Findings:
        if self.other_nodes.max and self.ray.mode not in ("cluster", "job"):
            why = {"indexed-job": "All pods of an Indexed Job are alike", "service": "Ray Serve uses GPUs of any node"}
            fix = "set otherNodes.max to 0, or ray.mode to cluster or job"
            yield Finding(f"{why[self.ray.mode]}, so it has no workers on other nodes.", fix)

    @rule("otherNodes.selector", "otherNodes.max", "nodes.selector", source=CONTRACT)
    def other_nodes_not_apart(self) -> Findings:
        if self.other_nodes.max and self.nodes.gpus and not (self.other_nodes.selector and self.nodes.selector):
            fix = "set nodes.selector and otherNodes.selector to labels of each kind of node"
            yield Finding("Without labels of both, a worker of one kind may take a node of the other.", fix)

    @rule("namespace", source=NAMES)
    def namespace_malformed(self) -> Findings:
        return not_a_name(self.namespace)

    @rule("localQueue", source=NAMES)
    def local_queue_malformed(self) -> Findings:
        return not_a_name(self.local_queue or "none")

    @rule("storage.claim", source=NAMES)
    def claim_malformed(self) -> Findings:
        return not_a_name(self.storage.claim or "none")

    @rule("ray.serviceAccount", source=NAMES)
    def service_account_malformed(self) -> Findings:
        return not_a_name(self.ray.service_account or "none")

    @rule("nodes.selector", source=LABELS)
    def selector_malformed(self) -> Findings:
        return _malformed(self.nodes.selector)

    @rule("nodes.tolerations", source=LABELS)
    def toleration_malformed(self) -> Findings:
        return _malformed(self.nodes.tolerations, optional=True)

    @rule("nodes.headSelector", source=LABELS)
    def head_selector_malformed(self) -> Findings:
        return _malformed(self.nodes.head_selector)

    @rule("otherNodes.selector", source=LABELS)
    def other_selector_malformed(self) -> Findings:
        return _malformed(self.other_nodes.selector)

    @rule("otherNodes.tolerations", source=LABELS)
    def other_toleration_malformed(self) -> Findings:
        return _malformed(self.other_nodes.tolerations, optional=True)

    @rule("nodes.topology", source=LABELS)
    def topology_malformed(self) -> Findings:
        for label in self.nodes.topology:
            if not re.fullmatch(_LABEL, label):
                yield Finding(f"No node has a label {label}.", "write its key as `kubectl describe node` shows it")
        if len(self.nodes.topology) > LEVELS:
            yield Finding(f"Ranks are ordered by at most {LEVELS} labels.", "keep the widest")

    @rule("nodes.headTolerations", source=LABELS)
    def head_toleration_malformed(self) -> Findings:
        return _malformed(self.nodes.head_tolerations, optional=True)


def _malformed(entries: tuple[str, ...], *, optional: bool = False) -> Findings:
    """Find an entry that is not KEY=VALUE of a label or a taint; the value may be `optional`."""
    value = f"(={_VALUE})?" if optional else f"={_VALUE}"
    for entry in entries:
        if not re.fullmatch(rf"{_LABEL}{value}", entry):
            yield Finding(f"No node has {entry}.", "write it as `kubectl describe node` shows it, such as pool=gpu")
