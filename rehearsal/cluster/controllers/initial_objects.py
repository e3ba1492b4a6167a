"""Initial objects of a new cluster: CRDs, device classes, storage classes, namespaces.

Replaces what GKE and EKS install, as far as the stacks' objects need it. Sources: GKE docs (managed-prometheus,
persistent volumes, gcs-fuse-csi, allocate-network-resources-dra), EKS docs (storage classes, aws-fsx-csi-driver); names
unverified, 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.aws import tokens as aws
from rehearsal.clouds.kubernetes.schemas import WRITTEN
from rehearsal.cluster.controllers import admission, compute_class
from rehearsal.cluster.controllers.devices import device_class
from rehearsal.cluster.controllers.snapshot import Cluster, Context, Snapshot
from rehearsal.engine.kind import Json, value_at
from tools.kubernetes import kubectl
from tools.kubernetes.api import ApiError, NotYet
from tools.kubernetes.builds import module_folder

GKE_NETWORKING = "github.com/GoogleCloudPlatform/gke-networking-api"
PROVISIONING = "k8s.io/autoscaler/cluster-autoscaler/apis"
DEVICE_CLASSES = ("mrdma.google.com", "netdev.google.com")
OPENED = "opened"
"""Setting of the cloud state: id of the cluster whose initial objects exist; unset until then."""
_ADMISSION_S = 20.0


class InitialObjects:
    """Installs the cloud's objects once for each cluster, and those of its add-ons when they are added."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._opened: str | None = None
        self._addons: set[str] = set()

    def reconcile(self, snapshot: Snapshot) -> None:
        """Initialize a new cluster; on EKS, follow the add-ons."""
        cluster = snapshot.cluster
        if cluster is None:
            if self._opened is not None:
                self._note(None)
            self._opened, self._addons = None, set()
            return
        if self._opened != cluster.id:
            self._open(cluster)
            self._opened = cluster.id
        for live in snapshot.live[aws.ADDON]:
            driver = {"aws-fsx-csi-driver": "fsx.csi.aws.com", "aws-ebs-csi-driver": "ebs.csi.aws.com"}.get(
                str(live.get("addonName"))
            )
            if driver is not None and driver not in self._addons:
                self._context.api.apply(_csi_driver(driver), manager="eks")
                self._addons.add(driver)

    def _open(self, cluster: Cluster) -> None:
        api = self._context.api
        bodies = [*_gke(cluster)] if cluster.cloud == "gke" else [*_eks()]
        kubectl.install(api, bodies)
        if value_at(cluster.live, "enableMultiNetworking"):
            api.until("the admission of pods that name networks", self._admission_works, _ADMISSION_S)
        self._note(cluster.id)
        self._context.report("ClusterOpened", cluster=cluster.name, objects=len(bodies))

    def _note(self, cluster: str | None) -> None:
        with self._context.state.transaction() as view:
            view.set(OPENED, cluster)

    def _admission_works(self) -> bool:
        """Wait until the policies are active: one refuses an unknown network, the other adds resources."""
        try:
            self._context.api.create(admission.probe("no-such-network"), dry_run=True)
        except ApiError as problem:
            if "no-such-network" not in problem.message:
                raise NotYet(problem.message) from problem
        else:
            raise NotYet("a pod with an unknown network is admitted")
        seen = self._context.api.create(admission.probe(admission.PROBE), dry_run=True)
        if not seen["spec"]["containers"][0].get("resources"):
            raise NotYet("no resources are added to a pod with networks")
        return True


def _gke(cluster: Cluster) -> Iterator[Json]:
    live = cluster.live
    yield from kubectl.read(*WRITTEN.values())
    yield from compute_class.policies()
    yield from kubectl.read(
        *sorted((module_folder(PROVISIONING) / "config" / "crd").glob("*provisioningrequests.yaml"))
    )
    yield from admission.policies()
    for name in DEVICE_CLASSES:
        yield device_class(name)
    for name in ("gmp-system", "gmp-public") if value_at(live, "monitoringConfig.managedPrometheus.enabled") else ():
        yield _namespace(name)
    yield _csi_driver("pd.csi.storage.gke.io")
    if value_at(live, "addonsConfig.gcsFuseCsiDriverConfig.enabled"):
        yield _csi_driver("gcsfuse.csi.storage.gke.io", ephemeral=True)
    for name, disk in (("standard-rwo", "pd-balanced"), ("premium-rwo", "pd-ssd")):
        yield _storage_class(name, "pd.csi.storage.gke.io", disk, default=name == "standard-rwo")
    if value_at(live, "enableMultiNetworking"):
        folder = module_folder(GKE_NETWORKING) / "config" / "crds"
        names = ("networks", "gkenetworkparamsets")
        yield from kubectl.read(*(folder / f"networking.gke.io_{name}.yaml" for name in names))
        yield _namespace(admission.NAMES[0])
        vpc, subnet = (str(live.get(key) or "default").rpartition("/")[2] for key in ("network", "subnetwork"))
        pods = str(value_at(live, "ipAllocationPolicy.clusterSecondaryRangeName") or "pods")
        yield from admission.installed(vpc, subnet, pods)


def _eks() -> Iterator[Json]:
    # Since 1.30 EKS has no default class.
    yield _storage_class("gp2", "kubernetes.io/aws-ebs", "gp2", default=False)


def _namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _csi_driver(name: str, *, ephemeral: bool = False) -> Json:
    modes = ["Persistent", *(["Ephemeral"] if ephemeral else [])]
    # No controller attaches volumes here, and nothing may wait for it.
    spec = {"attachRequired": False, "podInfoOnMount": ephemeral, "volumeLifecycleModes": modes}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}


def _storage_class(name: str, provisioner: str, disk: str, *, default: bool) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": provisioner,
        "parameters": {"type": disk},
        "volumeBindingMode": "WaitForFirstConsumer",
    }
