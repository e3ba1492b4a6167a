"""Names, ports, arguments and pod parts that Ray's resources and the two Jobs share. Imports no Pulumi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.catalog.names import JOB_LABEL, METRICS_PORT, RAY_CLUSTER
from infra.settings.common import pairs
from infra.settings.pod_file import PodFile

if TYPE_CHECKING:
    from infra.catalog.fabrics import Variable
    from infra.fabric import GpuPod
    from infra.kubernetes.queue_args import QueueArgs
    from infra.settings import ClusterSettings
    from infra.settings.common import CloudRay

HEAD_ACCOUNT = "ray-head"
WORKER_ACCOUNT = "ray-worker"
COMPONENTS = {"cluster": "RayCluster", "job": "RayJob", "indexed-job": "IndexedJob", "service": "RayService"}
"""Component of each `ray.mode`."""

TOKEN_KEY = "auth_token"
"""Key of the token in its Secret, which KubeRay reads (KubeRay 1.6 docs, token authentication; read 2026-08)."""

RECONNECT_S = 600
"""Seconds for which a worker looks for its head before it ends. Ray's default, 60 s, is shorter than a head's move."""

NOTICE_S = 120
"""Seconds from the SIGTERM of a worker to its SIGKILL: EC2's notice before it reclaims a spot instance (EC2 docs,
spot-instance-termination-notices, read 2026-11). It is not longer, because a busy worker waits for all of it when its
head is deleted, too."""

ABANDONED_S = 1800
"""Seconds before the pending node requests of an ended job expire. Ray keeps them by default (ray #45195; 2.60 has the
setting), and GPUs that arrive later would cost money without work."""

LOGS_VOLUME, LOGS_FOLDER = "ray-logs", "/tmp/ray"
"""Volume of a Ray pod that lasts as long as the pod, and its folder, which has Ray's logs."""

CLUSTER_SCOPED = ("DeviceClass", "ClusterRules")
"""Kinds among a workload's supporting objects that have no namespace."""

SCRAPED = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
"""Annotations by which a Prometheus finds a pod (chart prometheus, job kubernetes-pods; unverified, 2026-11)."""

NO_EVICTION = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotation that keeps a node autoscaler from evicting a pod: Ray decides when a worker ends."""

RBAC = "rbac.authorization.k8s.io"
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder of an account's `token` and `ca.crt` (Ray 2.60: autoscaler/_private/kuberay/node_provider.py)."""
UNPRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of a container that needs nothing from its node."""

SCRIPTS = "/etc/rdma-ray"
"""Folder of the scripts in the pods of an Indexed Job, an NCCL Job or a RayService."""
INDEXED_JOB_POD, NCCL_JOB_POD, SERVICE_POD = "indexed_job_pod", "nccl_job_pod", "service_pod"
"""Folders of these scripts in this package."""


@dataclass(frozen=True, kw_only=True)
class SharedFolder:
    """Folder that every Ray pod sees under the same path.

    Args:
        mount_path: Path in the pods.
        annotations: Annotations that the pods need.
        volume: The volume without its name.
        head_volume: The volume of the head's pod, if it differs.
        head_annotations: Annotations that only the head's pod needs, in place of those of the same name.
        objects: Manifests that the volume needs in the pods' namespace, such as a claim.
        prepare: Command that the head runs as root before it starts; None if the folder needs none.
    """

    mount_path: str
    annotations: Mapping[str, str]
    volume: Mapping[str, Any]
    head_volume: Mapping[str, Any] | None = None
    head_annotations: Mapping[str, str] = field(default_factory=dict)
    objects: Sequence[Mapping[str, Any]] = ()
    prepare: Sequence[str] | None = None

    @property
    def of_head(self) -> SharedFolder:
        """The folder in the head's pod."""
        volume = self.volume if self.head_volume is None else self.head_volume
        return replace(self, volume=volume, annotations={**self.annotations, **self.head_annotations})

    def preparation(self, image: str) -> dict[str, Any]:
        """Return the part of the pod spec that prepares the folder: an init container, or nothing."""
        if self.prepare is None:
            return {}
        container = {
            "name": "prepare-shared-folder",
            "image": image,
            "command": list(self.prepare),
            # The root of the file system belongs to root; the pod's other containers keep the image's user.
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "shared", "mountPath": self.mount_path}],
        }
        return {"initContainers": [container]}


@dataclass(frozen=True, kw_only=True)
class RayArgs:
    """Arguments of a RayCluster, RayJob, RayService or Indexed Job.

    Args:
        name: Name of the RayCluster, RayJob, RayService or Job, and prefix of the names of its supporting resources.
        pod: Requirements of a worker pod that owns the GPUs and NICs of its node.
        other_pod: Those of a worker on other nodes, of which there are at most `other_max`.
        head_selector: Labels of the nodes for the head, which have no GPUs.
        head_tolerations: Taints that the head tolerates, as in a pod.
        accounts: ServiceAccounts of the head's pod and of the workers'.
        existing_accounts: Whether they are the user's own, which the stack does not make.
        users_cluster: Whether no object of cluster scope is made, since all of the cluster is the user's.
        topology: Labels of the GPU nodes that tell which are close to each other, the widest part of the network first.
        head_environment: Variables that the head needs on this cloud.
        worker_environment: Variables that Ray on a GPU node needs on this cloud.
        notice_s: Seconds that a worker has after its SIGTERM, the fewest of the stack's kinds of capacity.
        metrics_namespace: Namespace whose pods may read metrics, by default the usual one of a Prometheus.
        pod_monitoring: Whether these pods are the collectors of GKE's managed Prometheus.
        node_hours: Lifetime of each worker's node in hours; None if it has none.
        folder: The shared folder; None without one.
        queue: The queue that admits the workload; None without one.
        shared_token: Secret with Ray's token that another workload has; None for its own Secret.
    """

    settings: ClusterSettings
    name: str
    pod: GpuPod
    other_pod: GpuPod | None = None
    other_max: int = 0
    head_selector: Mapping[str, str]
    head_tolerations: Sequence[Mapping[str, str]] = ()
    accounts: tuple[str, str] = (HEAD_ACCOUNT, WORKER_ACCOUNT)
    existing_accounts: bool = False
    users_cluster: bool = False
    topology: Sequence[str] = ()
    head_environment: Sequence[Variable] = ()
    worker_environment: Sequence[Variable] = ()
    notice_s: int = NOTICE_S
    metrics_namespace: str = "monitoring"
    pod_monitoring: bool = False
    node_hours: int | None = None
    folder: SharedFolder | None = None
    queue: QueueArgs | None = None
    shared_token: str | None = None

    @property
    def entrypoint(self) -> str:
        """Command line of a RayJob or an Indexed Job."""
        return str(self.settings.ray.entrypoint)

    @property
    def head_account(self) -> str:
        """ServiceAccount of the head's pod."""
        return self.accounts[0]

    @property
    def worker_account(self) -> str:
        """ServiceAccount of a worker's pod."""
        return self.accounts[1]

    @property
    def own_accounts(self) -> tuple[str, ...]:
        """ServiceAccounts that the stack makes."""
        return () if self.existing_accounts else ray_accounts(self.settings, self.accounts)

    @property
    def fewest(self) -> tuple[int, ...]:
        """Fewest workers of each group: those of the nodes, and those without GPUs and on other nodes, if any."""
        return (self.settings.ray.min_workers, *(0 for most in (self.settings.ray.cpu_workers, self.other_max) if most))

    @property
    def autoscaled(self) -> bool:
        """Whether Ray's autoscaler changes the number of workers. A job has a fixed size."""
        return self.elastic or (self.settings.ray.mode in ("cluster", "service") and self.settings.queue == "none")

    @property
    def elastic(self) -> bool:
        """Whether Kueue admits each change of the number of workers (`queue_objects.ELASTIC_ANNOTATION`)."""
        return elastic(self.settings)

    @property
    def labels(self) -> dict[str, str]:
        """Labels that identify the pods of this workload."""
        return {RAY_CLUSTER if self.settings.ray.mode == "cluster" else JOB_LABEL: self.name}

    @property
    def scripts(self) -> str:
        """Name of the ConfigMap with the pods' scripts, of an Indexed Job or a RayService."""
        return f"{self.name}-scripts"

    @property
    def token_secret(self) -> str:
        """Name of the Secret with Ray's token."""
        return self.shared_token or f"{self.name}-token"

    @property
    def serve_secret(self) -> str:
        """Name of the Secret with the token of a service's requests."""
        return f"{self.name}-serve-token"

    @property
    def queued(self) -> bool:
        """Whether Kueue admits the workload."""
        return self.settings.queue == "kueue"


def elastic(settings: ClusterSettings) -> bool:
    """Return whether the stack is a RayCluster in a queue whose size changes."""
    ray = settings.ray
    return settings.queue == "kueue" and ray.mode == "cluster" and ray.min_workers < ray.max_workers


def ray_accounts(
    settings: ClusterSettings, accounts: tuple[str, str] = (HEAD_ACCOUNT, WORKER_ACCOUNT)
) -> tuple[str, ...]:
    """Return those of the `accounts` of head and workers that pods have. An Indexed Job has no head."""
    return accounts[1:] if settings.ray.mode == "indexed-job" else accounts


def script_files(folder: str) -> dict[str, str]:
    """Return the text of each file in a folder of this package, by file name: the data of a ConfigMap."""
    files = sorted((Path(__file__).parent / folder).iterdir())
    return {path.name: path.read_text(encoding="utf-8") for path in files if path.is_file()}


def scripts_volume(config_map: str) -> dict[str, Any]:
    """Return the volume with the scripts of a ConfigMap, made of `script_files`."""
    return {"name": "scripts", "configMap": {"name": config_map}}


def scripts_mount(path: str) -> dict[str, Any]:
    """Return the mount of this volume."""
    return {"name": "scripts", "mountPath": path, "readOnly": True}


def variable(name: str, value: str) -> dict[str, Any]:
    """Return an entry of a container's `env`."""
    return {"name": name, "value": value}


EVERY_LINE = {"name": "RAY_DEDUP_LOGS", "value": "0"}
"""Variable of drivers. Ray drops similar lines of other ranks, and mistakes one about sockets for one about RDMA."""


def ray_authentication(token_secret: str) -> list[dict[str, Any]]:
    """Return the variables with which Ray requires a token and sends its own."""
    reference = {"secretKeyRef": {"name": token_secret, "key": TOKEN_KEY}}
    return [variable("RAY_AUTH_MODE", "token"), {"name": "RAY_AUTH_TOKEN", "valueFrom": reference}]


def head_resources(ray: CloudRay) -> dict[str, str]:
    """Return what the container of Ray's head requests."""
    return {"cpu": str(ray.head_cpus), "memory": f"{ray.head_memory_gib}Gi"}


def on_cpu_nodes(args: RayArgs) -> dict[str, Any]:
    """Return the part of a pod's spec that leads it to nodes for Ray's head."""
    tolerations = [dict(each) for each in args.head_tolerations]
    return {
        **({"nodeSelector": dict(args.head_selector)} if args.head_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
    }


def cpu_worker_resources(ray: CloudRay) -> dict[str, str]:
    """Return what the container of a Ray worker without GPUs requests."""
    return {"cpu": str(ray.cpu_worker_cpus), "memory": f"{ray.cpu_worker_memory_gib}Gi"}


def pull_secrets(names: Sequence[str]) -> dict[str, Any]:
    """Return the part of a pod's spec with the Secrets of private registries, if any."""
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def ray_template(
    container: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    ray: CloudRay,
    folder: SharedFolder | None,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Return the template of a Ray pod: `spec` with `container`, a volume for Ray's logs, the shared folder, and the
    variables, Secrets and volumes of the settings.
    """
    volumes = [*spec.get("volumes", ()), {"name": LOGS_VOLUME, "emptyDir": {}}]
    mounts = [*container.get("volumeMounts", ()), {"name": LOGS_VOLUME, "mountPath": LOGS_FOLDER}]
    secrets = pairs(ray.secrets)
    mounted = [({"secret": {"secretName": name}}, {"mountPath": at, "readOnly": True}) for name, at in secrets if at]
    mounted += [({"persistentVolumeClaim": {"claimName": name}}, {"mountPath": at}) for name, at in pairs(ray.volumes)]
    for number, (source, mount) in enumerate(mounted):
        volumes.append({"name": f"user-{number}", **source})
        mounts.append({"name": f"user-{number}", **mount})
    extra = PodFile.read(ray.pod_file)
    volumes += extra.volumes
    mounts += extra.mounts
    first = [*spec.get("initContainers", ()), *extra.containers]
    # Before the stack's own: of two variables of one name, the last one counts.
    own = [variable(name, value) for name, value in pairs(ray.env)]
    every_key = [{"secretRef": {"name": name}} for name, at in secrets if not at]
    container = {
        **container,
        "env": [*own, *container["env"]],
        **({"envFrom": every_key} if every_key else {}),
        "volumeMounts": mounts,
    }
    priority = {"priorityClassName": ray.priority_class} if ray.priority_class else {}
    annotations = {**NO_EVICTION, **SCRAPED, **annotations}
    if folder is not None:
        volumes.append({"name": "shared", **folder.volume})
        mounts.append({"name": "shared", "mountPath": folder.mount_path})
        annotations |= folder.annotations
    return {
        "metadata": {**({"labels": dict(labels)} if labels else {}), "annotations": annotations},
        # Only the first container gets the devices.
        "spec": {
            **spec,
            **({"initContainers": first} if first else {}),
            **pull_secrets(ray.pull_secrets),
            **priority,
            "volumes": volumes,
            "containers": [container],
        },
    }


def one_pod_per_node(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the affinity that keeps two pods with these labels off the same node."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def headless_service_spec(selector: Mapping[str, str], **ports: int) -> dict[str, Any]:
    """Return the spec of the headless Service that gives the pods of a Job their host names.

    Names resolve before the pods are ready, because a pod becomes ready when it has found the others.
    """
    return {
        "clusterIP": "None",
        "selector": dict(selector),
        "publishNotReadyAddresses": True,
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }


def indexed_job_spec(container: str, nodes: int) -> dict[str, Any]:
    """Return the part of a Job's spec that Indexed Job and NCCL Job share: `nodes` pods that run once, together.

    The exit code of `container` counts.

    Source: Kubernetes docs, concepts/workloads/controllers/job (read 2026-11); KEP-3998, success policy, stable in
    1.33.
    """
    rules = (
        {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"onExitCodes": {"containerName": container, "operator": "NotIn", "values": [0]}},
    )
    return {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        # One pod cannot be retried alone, and a Job cannot retry all of its pods.
        "backoffLimit": 0,
        # Pod 0 decides: otherwise a pod that hangs during shutdown would keep the Job and its nodes.
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        # backoffLimit 0 also fails the Job, but only these rules record in its status which pod failed with which exit
        # code, or that a pod lost its node.
        "podFailurePolicy": {"rules": [{"action": "FailJob", **rule} for rule in rules]},
        # A podFailurePolicy allows no other value: an index gets no second pod before the first has ended.
        "podReplacementPolicy": "Failed",
    }


def role(
    name: str, rules: Sequence[Any], account: str, namespace: str, *, whole_cluster: bool = False
) -> list[dict[str, Any]]:
    """Return a Role, or a ClusterRole of the `whole_cluster`, and its binding to a ServiceAccount of the namespace."""
    kind = "ClusterRole" if whole_cluster else "Role"
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    common = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
    return [
        {**common, "kind": kind, "rules": list(rules)},
        {**common, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]},
    ]
