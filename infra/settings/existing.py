"""Sections of the stack file of a cluster that the user has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from infra.catalog.fabrics import FABRICS
from infra.catalog.machines import CATALOG, supported
from infra.catalog.pins import AWS_RAY_TRAIN, RAY_IMAGE
from infra.settings.common import CloudRay
from infra.settings.fields import Derived, FromText, Number, OneOf, ReleaseInImage, Section, Text, Texts


def _labels(nodes: str, example: str) -> Any:
    return Field((), title="LABEL=VALUE", examples=[example], description=f"kubernetes: labels of {nodes}.")


def _taints(nodes: str) -> Any:
    return Field((), title="KEY or KEY=VALUE", examples=["team=ml"], description=f"kubernetes: taints of {nodes}.")


class KubernetesNodes(Section):
    """Nodes of the user's cluster that run Ray workers. A worker takes one whole."""

    machine: Annotated[str, OneOf(tuple(CATALOG))] | None = Field(
        None, title="machine type", examples=[*supported("gke"), *supported("eks")]
    )
    gpus: Number = Field(
        ge=0,
        le=16,
        title="GPUs",
        examples=[8],
        description="kubernetes: GPUs of a node (nvidia.com/gpu), which a worker takes all; 0 for nodes without GPUs.",
    )
    cpus: Number = Field(
        ge=1,
        le=1024,
        title="CPUs",
        examples=[180],
    )
    memory_gib: Number = Field(
        ge=1,
        le=16_384,
        title="GiB",
        examples=[1800],
        description="kubernetes: memory that a worker's pod requests, GiB.",
    )
    nics: Annotated[
        Annotated[int, Field(ge=1, le=64), FromText] | None,
        Derived(
            lambda v: CATALOG[v["nodes.machine"]].nics if v["nodes.machine"] else None, "those of nodes.machine, if set"
        ),
    ] = Field(
        title="RDMA NICs",
        examples=[8],
        description="kubernetes: RDMA NICs of a node, all of which a worker takes where the fabric counts them.",
    )
    min: Number = Field(0, ge=0, le=1000, title="nodes")
    max: Number = Field(2, ge=1, le=1000, title="nodes")
    max_hours: Annotated[int, Field(ge=1, le=8760), FromText] | None = Field(None, title="hours")
    wait_minutes: Number = Field(
        60,
        ge=1,
        le=20_160,
        title="minutes",
        description="kubernetes: minutes for which a worker may wait for its node, before a job fails.",
    )
    selector: Texts = _labels("the workers' nodes", "node.kubernetes.io/instance-type=p5en.48xlarge")
    tolerations: Texts = _taints("the workers' nodes, besides nvidia.com/gpu")
    head_selector: Texts = _labels("the nodes for Ray's head", "pool=cpu")
    topology: Texts = Field(
        (),
        title="LABEL",
        examples=["topology.k8s.aws/network-node-layer-1"],
        description="kubernetes: labels that tell which nodes are close to each other, the widest part of the network "
        "first, which order ranks. The workers' account needs the right to get nodes.",
    )
    head_tolerations: Texts = _taints("the nodes for Ray's head")


class OtherNodes(Section):
    """More nodes, with other GPUs, that run Ray workers. A worker takes one whole, without RDMA NICs."""

    max: Number = Field(
        0,
        ge=0,
        le=1000,
        title="nodes",
        examples=[4],
        description="kubernetes: nodes with other GPUs for a group other-group of Ray workers, at most; all of them "
        "where ray.maxWorkers is fixed. Tasks reach them by the label ray.io/node-group=other-group; no run, benchmark "
        "or training of rdma-ray takes them.",
    )
    gpus: Number = Field(1, ge=1, le=16, title="GPUs", description="kubernetes: GPUs of one of otherNodes.")
    cpus: Number = Field(4, ge=1, le=1024, title="CPUs", description="kubernetes: CPUs that a worker on it requests.")
    memory_gib: Number = Field(
        16, ge=1, le=16_384, title="GiB", description="kubernetes: memory that a worker on it requests, GiB."
    )
    selector: Texts = _labels("otherNodes", "cloud.google.com/gke-accelerator=nvidia-l4")
    tolerations: Texts = _taints("otherNodes, besides nvidia.com/gpu")


class KubernetesRay(CloudRay):
    """The Ray cluster."""

    version: ReleaseInImage
    image: Annotated[
        Text,
        Derived(
            lambda v: AWS_RAY_TRAIN if FABRICS[v["fabric"]].transport.name == "efa" else RAY_IMAGE,
            f"{RAY_IMAGE}; with EFA {AWS_RAY_TRAIN}",
        ),
    ]

    service_account: Text | None = Field(
        None,
        title="a ServiceAccount",
        examples=["training"],
        description="kubernetes: existing ServiceAccount of head and workers. Without it, the stack makes two "
        "without rights.",
    )


class KubernetesStorage(Section):
    """Folder that every Ray node sees under the same path."""

    claim: Text | None = Field(
        None,
        title="a claim",
        examples=["shared"],
        description="kubernetes: existing PersistentVolumeClaim, which many nodes may mount (ReadWriteMany).",
    )
    mount_path: Text = Field("/shared", title="a path")

    @property
    def source(self) -> str | None:
        """What is mounted; None without a shared folder."""
        return self.claim
