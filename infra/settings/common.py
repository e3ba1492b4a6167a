"""Sections that the stack files of both clouds share, with their defaults. `gke` and `eks` add their own fields."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.addresses import CPU_NODES
from infra.catalog.names import HISTORY_DAYS, LONGEST_HISTORY
from infra.catalog.pins import RAY, RAY_IMAGE
from infra.settings.fields import (
    Assignments,
    Cidr,
    Decimal,
    Derived,
    Flag,
    FromText,
    Number,
    RayRelease,
    Section,
    Text,
    Texts,
)

HEAD_CPUS, HEAD_MEMORY_GIB = 4, 16
"""Default requests of a head (our choice): room for its processes and some drivers."""

BUDGET_ALERTS = (50, 80, 100)
"""Percentages of a budget at which the cloud sends an email (our choice)."""


class CloudNodes(Section):
    """Node pool of GPU machines, which run Ray workers. The Ray head runs elsewhere and is not counted."""

    machine: str = Field(
        title="machine type",
        description="Machine type of every worker node, a row of the catalog (infra/catalog/machines.py).",
    )
    capacity: str = Field(
        title="capacity",
        description="How the machines are obtained. gke: flex-start, flex-start-queued, spot, reservation, on-demand; "
        "eks: on-demand, spot, reservation, capacity-block.",
    )
    reservation: Text | None = Field(
        None,
        title="a reservation's name",
        description="Reservation to use, with capacity reservation or capacity-block only. gke: its name or "
        "projects/P/reservations/R[/reservationBlocks/B]; eks: its id, cr-…, or for several reservations the ARN of "
        "their resource group (nodes that none of them holds are then on demand).",
    )
    min: Number = Field(
        0, ge=0, le=1000, title="nodes", description="Minimum number of nodes, which stay up even without work."
    )
    max: Number = Field(
        2, ge=1, le=1000, title="nodes", description="Maximum number of nodes, which limits the cost per hour."
    )
    max_hours: Annotated[int, Field(ge=1, le=8760), FromText] | None = Field(
        None,
        title="hours",
        description="Hours for which workers may hold nodes without a break, regardless of what runs on them. After "
        "that, the cluster is suspended, or the job ends. Without it, nothing ends a job that hangs. (maxRunHours is "
        "the lifetime of one flex-start node, and the next node follows.)",
    )
    boot_disk_gib: Number = Field(
        100,
        ge=50,
        le=16_384,
        title="GiB",
        description="Size of the boot disk. Images and the files of pods are on the machine's local disks instead.",
    )

    @property
    def capacities(self) -> tuple[str, ...]:
        """Kinds of capacity in the order in which they are tried."""
        return (self.capacity,)


class CloudService(Section):
    """The Ray Serve application of ray.mode service."""

    application: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = Field(
        None,
        title="module:function",
        examples=["workloads.serving.digits:app"],
        description="Function in the image that returns the application to serve. It gets a map with the arguments and "
        "with gpus_per_replica (docs/serving.md).",
    )
    deployment: Text | None = Field(
        None,
        title="a deployment's name",
        description="Deployment of the application that has the model, and whose replicas are counted here.",
    )
    arguments: Texts = Field(
        (),
        title="NAME=VALUE",
        examples=["checkpoint=/bucket/digits"],
        description='Arguments of the function, such as ["checkpoint=/bucket/digits"]. Do not put secrets in them.',
    )
    min_replicas: Number = Field(
        1,
        ge=0,
        le=1000,
        title="replicas",
        description="Minimum number of replicas. With 0, the nodes are removed after ray.idleMinutes without a "
        "request, and the next request waits for a node.",
    )
    max_replicas: Number = Field(1, ge=1, le=1000, title="replicas", description="Maximum number of replicas.")
    gpus_per_replica: Number = Field(
        1, ge=1, le=16, title="whole GPUs", description="GPUs of one replica, all of them on one node."
    )
    ongoing_requests: Number = Field(
        8,
        ge=1,
        le=10_000,
        title="requests",
        description="Requests that each replica works on at a time, on average, before another replica starts. A "
        "replica accepts at most twice as many; the proxy keeps the others.",
    )


def pairs(entries: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return name and value of entries NAME=VALUE; the value of NAME alone is empty."""
    return [(name, value) for name, _, value in (each.partition("=") for each in entries)]


class CloudRay(Section):
    """The Ray cluster."""

    mode: Literal["cluster", "job", "indexed-job", "service"] = Field(
        "cluster",
        title="Ray mode",
        description="How Ray runs: as a cluster that stays up and accepts jobs (cluster), as a RayJob, whose cluster "
        "of maxWorkers workers runs one entry point and ends with it (job), as one Kubernetes Job of maxWorkers pods "
        "that runs it without an operator (indexed-job), or as a RayService, which answers requests (service).",
    )
    entrypoint: Text | None = Field(
        None,
        title="a command",
        description="Shell command that a job or indexed-job runs: on the head or the first pod, with RAY_ADDRESS set; "
        "in an indexed-job, a command that begins with torchrun runs on every pod, with the rendezvous set. Its code "
        "is in the image or the shared folder.",
    )
    version: RayRelease = Field(
        RAY, title="a Ray release", description="Ray release of head, workers and autoscaler, in quotes."
    )
    image: Text = Field(
        RAY_IMAGE,
        title="an image",
        description="Container image of head and workers. Its tag names the Ray version, or a digest pins it. gke: "
        "torch built for the GPU, libnl-3-200 and libnl-route-3-200; eks: libfabric and aws-ofi-nccl.",
    )
    min_workers: Annotated[
        Number,
        Derived(
            lambda v: (
                v["ray.maxWorkers"]
                if v["queue"] == "kueue" or v["ray.mode"] in ("job", "indexed-job")
                else min(v["nodes.min"], v["ray.maxWorkers"])
            ),
            "as nodes.min, but at most ray.maxWorkers; with queue kueue or mode job or indexed-job as ray.maxWorkers",
        ),
    ] = Field(
        ge=0, le=1000, title="Ray workers", description="Minimum number of Ray workers. A worker takes a whole node."
    )
    max_workers: Annotated[
        Number,
        Derived(
            lambda v: max(1, v["nodes.max"] - sum(team.quota for team in v.get("teams", ()))),
            "as nodes.max, without the nodes of teams",
        ),
    ] = Field(ge=1, le=1000, title="Ray workers", description="Maximum number of Ray workers, at most nodes.max.")
    idle_minutes: Number = Field(
        15,
        ge=1,
        le=10_080,
        title="minutes",
        description="Minutes without work after which Ray releases a worker and its node. A new GPU node may take "
        "hours to arrive; an idle one costs by the minute.",
    )
    check: Literal["off", "quick", "full"] = Field(
        "off",
        title="check of nodes",
        description="What is checked on a GPU node before its worker joins, and keeps the worker off a bad one: GPUs, "
        "their memory's remapped rows and errors, RDMA NICs and their links, the driver's version (quick); also a "
        "reduction of its GPUs over its NICs for two seconds (full).",
    )
    head_cpus: Number = Field(
        HEAD_CPUS, ge=1, le=1024, title="CPUs", description="CPUs that the head's pod requests: drivers run there."
    )
    head_memory_gib: Number = Field(
        HEAD_MEMORY_GIB, ge=4, le=16_384, title="GiB", description="Memory of the head's pod, GiB."
    )
    cpu_workers: Number = Field(
        0,
        ge=0,
        le=1000,
        title="Ray workers",
        description="Ray workers without GPUs, such as for data or environments, on nodes like the head's; at most so "
        "many, or all of them where maxWorkers is fixed. Tasks reach them by the label ray.io/node-group=cpu-group.",
    )
    cpu_worker_cpus: Number = Field(
        4, ge=1, le=1024, title="CPUs", description="CPUs that the pod of one of cpuWorkers requests."
    )
    cpu_worker_memory_gib: Number = Field(
        16, ge=1, le=16_384, title="GiB", description="Memory of the pod of one of cpuWorkers, GiB."
    )
    env: Assignments = Field(
        (),
        title="NAME=VALUE",
        examples=["NCCL_DEBUG=WARN"],
        description='Environment variables of head and workers, such as ["NCCL_DEBUG=WARN"]. They are no place for '
        "secrets.",
    )
    secrets: Texts = Field(
        (),
        title="SECRET or SECRET=/FOLDER",
        examples=["huggingface", "registry=/secrets/registry"],
        description="Kubernetes Secrets of the namespace (ray on the clouds) for head and workers: SECRET sets a "
        "variable for each of its keys, SECRET=/FOLDER mounts them as files. You create them; until one exists, pods "
        "wait for it.",
    )
    volumes: Texts = Field(
        (),
        title="CLAIM=/FOLDER",
        examples=["datasets=/datasets"],
        description="PersistentVolumeClaims of the namespace to mount in head and workers, such as "
        '["datasets=/datasets"]. You create them.',
    )
    pull_secrets: Texts = Field(
        (),
        title="a Secret's name",
        examples=["registry"],
        description="Kubernetes Secrets of the namespace with which nodes pull ray.image from a private registry.",
    )
    pod_file: Text | None = Field(
        None,
        title="a file",
        examples=["pod.yaml"],
        description="YAML file of this project with initContainers (a sidecar has restartPolicy: Always), volumes, and "
        "volumeMounts of Ray's container, as in a pod's spec, for head and workers.",
    )
    priority_class: Text | None = Field(
        None,
        title="a PriorityClass",
        examples=["training"],
        description="Existing PriorityClass of head and workers. With a queue, Kueue orders and preempts by it.",
    )
    history_days: Number = Field(
        HISTORY_DAYS,
        ge=0,
        le=LONGEST_HISTORY,
        title="days",
        description="Days for which the shared folder keeps the log, exit code and result of each job that rdma-ray "
        "starts, for `rdma-ray list --ended` and `logs`. 0 keeps none. local: in the folder results of the project.",
    )


class CloudStorage(Section):
    """Folder that every Ray node sees under the same path."""

    bucket: Text | None = Field(
        None,
        title="a bucket's name",
        description="Existing bucket. gke: Cloud Storage, mounted by GCS FUSE; eks: S3, behind FSx for Lustre. Without "
        "it the cluster has no shared folder.",
    )
    mount_path: Text = Field(
        "/bucket", title="a path", description="Absolute path of the shared folder on head and workers."
    )

    @property
    def source(self) -> str | None:
        """What is mounted; None without a shared folder."""
        return self.bucket


class CloudKubernetes(Section):
    """Version of Kubernetes, and the CPU nodes."""

    system_machine: Text = Field(
        title="a machine type",
        description="Machine type of the CPU nodes, which carry Ray's head and the operators: x86, with 8 vCPUs or "
        "more. Each 8 vCPUs have room for one head.",
    )
    system_nodes: Number = Field(
        CPU_NODES, ge=1, le=100, title="nodes", description="Most CPU nodes. The first one always stays up."
    )
    existing: Text | None = Field(
        None,
        title="a cluster's name",
        examples=["us-central1/training", "training"],
        description="Your cluster, in which the stack makes its nodes, their fabric, KubeRay and Ray, and nothing "
        "else: on gke LOCATION/NAME, on eks its name. It is read and never changed.",
    )
    provides: Texts = Field(
        (),
        title="components",
        description="With existing: what your cluster has, so that the stack does not install it: kuberay; eks also "
        "cluster-autoscaler, nvidia-device-plugin, efa-device-plugin and dcgm-exporter, which must serve the stack's "
        "nodes.",
    )


class ClusterAccess(Section):
    """Access to the cluster."""

    outputs_secret: Flag = Field(
        False,
        description="Whether the stack writes its outputs, with Ray's token, into a Secret of Ray's namespace, and a "
        "Role with what `rdma-ray` needs (docs/install.md). Whoever you bind to the Role can run code on the cluster.",
    )


class CloudAccess(ClusterAccess):
    """Access to the cluster's control plane."""

    authorized_networks: tuple[Cidr, ...] = Field(
        (),
        title="IPv4 ranges",
        examples=["203.0.113.7/32"],
        description='IPv4 ranges that may reach the control plane\'s public endpoint, such as ["203.0.113.7/32"]. '
        "Without a public endpoint: private ranges that may reach the private one, over your own VPN.",
    )
    public_endpoint: Flag = Field(
        False,
        description="Whether the control plane has a public address, which answers authorizedNetworks only. gke: its "
        "DNS name is another way in (dnsEndpoint).",
    )
    egress: str = Field(
        title="egress",
        description="How nodes reach services outside their network: nat (a gateway to the Internet), or on eks "
        "endpoints (AWS services only, without a route to the Internet).",
    )


class CloudNetwork(Section):
    """Addresses of the stack's own networks."""

    base_range: Cidr = Field(
        description="Private IPv4 range from which every network of the stack is cut (infra/addresses.py). Choose one "
        "that your other networks do not use, if you may connect them later."
    )


class CloudBudget(Section):
    """Limits of the stack's list price per hour, and an email about its monthly cost."""

    hourly: Annotated[int, Field(ge=1, le=1_000_000), FromText] | None = Field(
        None,
        title="US dollars",
        description="Most that the stack may cost per hour by list prices (`rdma-ray plan`), in whole US dollars. A "
        "stack file with a higher maximum is refused.",
    )
    max_rise: Decimal = Field(
        2,
        ge=1,
        le=1000,
        title="times",
        description="A change that raises the hourly maximum of the worker nodes this many times or more is refused "
        "until budget.hourly names the new amount.",
    )

    monthly: Annotated[int, Field(ge=1, le=1_000_000_000), FromText] | None = Field(
        None,
        title="whole units of money",
        description="Monthly amount: US dollars on eks, the currency of the billing account on gke. It stops nothing; "
        "nodes.maxHours does.",
    )
    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = Field(
        None, title="an email address", examples=["ops@example.com"], description="Address that receives the emails."
    )
