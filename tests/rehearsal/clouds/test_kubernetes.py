"""The simulated Kubernetes API: schemas, connection, references, Helm releases, and changes by others."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.settings import from_stack_file
from rehearsal import users_cluster
from rehearsal.clouds.kubernetes import connection, identity, quantities, schemas
from rehearsal.clouds.kubernetes.schemas import failures
from rehearsal.engine.kind import Json, first_refusal, value_at
from rehearsal.engine.state import View
from rehearsal.engine.values import UNKNOWN, as_asked, merged
from rehearsal.engine.workspace import ROOT
from tests.rehearsal.configurations import GONE, accepted, changed, kind, request

DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
HOST = "34.1.2.3"
GKE = {
    "name": "c1",
    "endpoint": HOST,
    "masterVersion": "1.35.6-gke.1",
    "enableMultiNetworking": True,
    "removeDefaultNodePool": True,
    "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.us-central1.gke.goog"}},
}
EKS = {"name": "e1", "endpoint": "https://e1.eks.amazonaws.com", "version": "1.35"}
WORKERS = "spec/workerGroupSpecs/0"
NODES = {"cloud.google.com/gke-nodepool": "gpu"}


def kubeconfig(host: str) -> Json:
    """Return a provider's configuration."""
    entries = {
        "clusters": [{"name": "c", "cluster": {"server": f"https://{host}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
    }
    return {"kubeconfig": yaml.safe_dump({**entries, "current-context": "x"})}


CONFIG = kubeconfig(HOST)


@pytest.fixture
def state(empty: View) -> View:
    """Cloud state with a GKE cluster with GPUs, Kueue, KubeRay, and a queue."""
    empty.put(connection.CLUSTER, "c1", GKE)
    empty.put(connection.NODE_POOL, "system", {"name": "system", "cluster": "c1"})
    gpus = {"machineType": "a3-ultragpu-8g"}
    empty.put(connection.NODE_POOL, "gpu", {"name": "gpu", "cluster": "c1", "nodeConfig": gpus})
    for type_, inputs in made("queued-ray-cluster-and-job"):
        if type_ not in (identity.RAY_CLUSTER, identity.RAY_JOB):
            create(empty, type_, inputs)
    return empty


@cache
def made(name: str) -> list[tuple[str, Json]]:
    """Return the types and inputs of an accepted configuration."""
    (found,) = (one for one in accepted() if one.name == name)
    return [(one["type"], one["inputs"]) for one in found.resources.values()]


def create(state: View, type_: str, inputs: Json) -> Json:
    """Create an object without a judgment; return its live value."""
    asked = request(state, type_, inputs, CONFIG)
    live = {**inputs, **kind(type_).compute(asked)}
    state.put(type_, asked.id, live)
    return live


def refusal(state: View, type_: str, inputs: Json) -> str:
    """Return the message of the first refusal, or ""."""
    found = first_refusal(kind(type_), request(state, type_, inputs, CONFIG))
    return found.message if found else ""


def named(name: str, namespace: str | None = None, **rest: Any) -> Json:
    """Return an object."""
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **rest}


DAEMONS = dict(made("daemon-set-with-priority"))[DAEMON_SET]
RAY = dict(made("ray-cluster-with-token"))[identity.RAY_CLUSTER]
QUEUED = dict(made("queued-ray-cluster-and-job"))[identity.RAY_CLUSTER]
POD = "spec/template/spec"
BOX = f"{POD}/containers/0"
MODE = named("a", spec={"vpc": "v", "vpcSubnet": "s", "deviceMode": "RDMA"})
CLASS = named("rdma", spec={"priorities": [{"nodepools": ["gpu"]}], "whenUnsatisfiable": "DoNotScaleUp"})


UNCHECKED = schemas.unchecked()
needs_crds = pytest.mark.skipif(UNCHECKED is not None, reason=str(UNCHECKED))


@needs_crds
@pytest.mark.parametrize(
    ("type_", "right", "path", "new", "says"),
    [
        (DAEMON_SET, DAEMONS, f"{BOX}/resorces", {}, 'unknown field "spec.template.spec.containers[0].resorces"'),
        (DAEMON_SET, DAEMONS, "metadata/lables", {}, 'unknown field "metadata.lables"'),
        # The SDK 4.34 has both, and Kubernetes 1.36 neither (pulumi-kubernetes #4570, 2026-08-27).
        (DAEMON_SET, DAEMONS, "metadata/clusterName", "a", 'unknown field "metadata.clusterName"'),
        (DAEMON_SET, DAEMONS, f"{POD}/evictionResponders", [], 'unknown field "spec.template.spec.evictionResponders"'),
        (DAEMON_SET, DAEMONS, "metadata/name", GONE, "metadata.name: Required value"),
        (DAEMON_SET, DAEMONS, "spec/template", GONE, "spec.template: Required value"),
        (DAEMON_SET, DAEMONS, f"{BOX}/image", 1, "spec.template.spec.containers[0].image: Invalid value: must be of"),
        (DAEMON_SET, DAEMONS, f"{BOX}/resources/limits/memory", "16GB", "limits.memory: Invalid value: '16GB'"),
        # KubeRay 1.7 has it, 1.6.2 does not.
        (identity.RAY_CLUSTER, RAY, f"{WORKERS}/priority", 1, 'unknown field "spec.workerGroupSpecs[0].priority"'),
        (identity.RAY_CLUSTER, RAY, f"{WORKERS}/maxReplicas", "4", "spec.workerGroupSpecs[0].maxReplicas: Invalid"),
        (identity.RAY_CLUSTER, RAY, "spec/authOptions/mode", "on", 'Unsupported value: "on": supported values: "dis'),
        (identity.RAY_CLUSTER, RAY, "metadata/lables", {}, 'unknown field "metadata.lables"'),
        (identity.PARAM_SET, MODE, "spec/deviceMode", "rdma", 'spec.deviceMode: Unsupported value: "rdma"'),
        (identity.PARAM_SET, MODE, "spec/vpcs", "a", 'unknown field "spec.vpcs"'),
        (identity.COMPUTE_CLASS, CLASS, "spec/whenUnsatisfiable", "Fail", "spec.whenUnsatisfiable: Unsupported value"),
    ],
)
def test_wrong_field_is_refused(type_: str, right: Json, path: str, new: Any, says: str) -> None:
    assert list(failures(type_, right)) == []
    (found,) = failures(type_, changed(right, {path: new}))
    assert says in found.reason


@needs_crds
def test_unknown_values_of_a_preview_pass() -> None:
    for path in (f"{WORKERS}/maxReplicas", "spec/authOptions/mode", "spec/workerGroupSpecs", "metadata/name"):
        assert list(failures(identity.RAY_CLUSTER, changed(RAY, {path: UNKNOWN}))) == []


@needs_crds
def test_built_in_kinds_take_null_and_numbers_as_quantities() -> None:
    probe = {"httpGet": {"port": "http"}, "initialDelaySeconds": 1}
    changes = {f"{BOX}/resources/limits/cpu": 2, f"{BOX}/livenessProbe": probe, f"{BOX}/env": None}
    assert list(failures(DAEMON_SET, changed(DAEMONS, changes))) == []


@needs_crds
def test_field_with_a_default_is_not_required_and_gets_it() -> None:
    bare = changed(RAY, {f"{WORKERS}/minReplicas": GONE, f"{WORKERS}/maxReplicas": GONE})
    assert list(failures(identity.RAY_CLUSTER, bare)) == []
    (group,) = schemas.defaulted(identity.RAY_CLUSTER, bare)["spec"]["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (0, 2147483647)


@pytest.mark.parametrize("token", ["core/v1:Container", "core/v9:Pod", "nowhere/v1:X", "ray.io/v9:RayCluster"])
def test_unserved_kind_has_no_schema(token: str) -> None:
    assert schemas.schema(identity.api(f"kubernetes:{token}")) is None


def test_missing_go_is_reported_and_nothing_is_called_unknown(tmp_path: Path) -> None:
    program = (
        "from rehearsal.clouds.kubernetes.schemas import api, failures, unchecked, unknown\n"
        "print(unchecked())\n"
        "for kind in ('ray.io/v1:RayCluster', 'core/v1:Namespace'):\n"
        "    type_ = f'kubernetes:{kind}'\n"
        "    print(unknown(api(type_)), *failures(type_, {'metadata': {'name': 'a'}, 'spex': 1}))\n"
    )
    environment = {**os.environ, "PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path), "GOMODCACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    reason, *verdicts = done.stdout.splitlines()
    assert reason.startswith("Fields of Kubernetes objects were NOT checked")
    assert verdicts == ["False", "False"]


@pytest.mark.parametrize("host", [HOST, f"{HOST}:443", "gke-1.us-central1.gke.goog"])
def test_kubeconfig_selects_cluster_by_endpoint(state: View, host: str) -> None:
    assert connection.cluster(kubeconfig(host), state) == ("c1", GKE)
    assert connection.reaches(kubeconfig(host), state) is None


@pytest.mark.parametrize("config", [{}, {"kubeconfig": "{"}, {"kubeconfig": "[]"}, kubeconfig("10.9.9.9")])
def test_provider_without_cluster_is_unreachable(state: View, config: Json) -> None:
    assert "configured Kubernetes cluster is unreachable" in str(connection.reaches(config, state))


def test_access_to_eks_requires_an_access_entry(state: View) -> None:
    state.put(connection.EKS_CLUSTER, "e1", {**EKS, "accessConfig": {"authenticationMode": "API"}})
    config = kubeconfig("e1.eks.amazonaws.com")
    assert "401" in str(connection.reaches(config, state))
    state.put(connection.ACCESS_POLICY, "a", {"clusterName": "e1"})
    assert connection.reaches(config, state) is None


def test_open_pools_have_no_gpus_and_no_taints(state: View) -> None:
    assert list(connection.open_pools(request(state, identity.NAMESPACE, named("a"), CONFIG))) == ["system"]
    state.put(connection.EKS_CLUSTER, "e1", EKS)
    tainted = [{"key": "a", "effect": "NO_SCHEDULE"}]
    for name, size, taints in (("system", 2, []), ("empty", 0, []), ("gpu", 2, tainted)):
        group = {"clusterName": "e1", "nodeGroupName": name, "scalingConfig": {"desiredSize": size}, "taints": taints}
        state.put(connection.NODE_GROUP, name, group)
    on_eks = request(state, identity.NAMESPACE, named("a"), kubeconfig("e1.eks.amazonaws.com"))
    assert list(connection.open_pools(on_eks)) == ["system"]


def pod(**spec: Any) -> Json:
    """Return a DaemonSet whose pods have a spec, and maybe networks."""
    networks = spec.pop("networks", None)
    annotations = {"annotations": {"networking.gke.io/interfaces": networks}} if networks else {}
    template = {"metadata": {"labels": {"a": "b"}, **annotations}, "spec": {"containers": [], **spec}}
    return named("a", "default", spec={"selector": {"matchLabels": {"a": "b"}}, "template": template})


@pytest.mark.parametrize(
    ("type_", "inputs", "missing"),
    [
        (identity.SECRET, named("a", "none"), "metadata.namespace: none"),
        (DAEMON_SET, pod(volumes=[{"name": "v", "configMap": {"name": "x"}}]), "volumes.configMap.name: default/x"),
        (
            DAEMON_SET,
            pod(containers=[{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "x"}}}]}]),
            "secretKeyRef.name: default/x",
        ),
        (DAEMON_SET, pod(networks='[{"interfaceName": "eth1", "network": "rdma-9"}]'), "rdma-9 does not exist"),
        (DAEMON_SET, pod(nodeSelector={"cloud.google.com/compute-class": "x"}), "nodeSelector: x"),
        (identity.RAY_CLUSTER, changed(QUEUED, {"metadata/labels": {identity.QUEUE: "x"}}), "labels: default/x"),
    ],
)
def test_dangling_reference_is_refused(state: View, type_: str, inputs: Json, missing: str) -> None:
    assert missing in refusal(state, type_, inputs)


def test_names_that_the_cluster_provides_are_no_references(state: View) -> None:
    provided = pod(serviceAccountName="default", networks="[{}]")
    assert refusal(state, DAEMON_SET, provided) == ""


def test_objects_of_a_user_may_come_later(state: View) -> None:
    """Kubernetes checks no reference of a pod: it waits for a Secret or a claim."""
    claim = {"name": "user-0", "persistentVolumeClaim": {"claimName": "x"}}
    box = {"name": "c", "envFrom": [{"secretRef": {"name": "x"}}]}
    later = pod(priorityClassName="x", imagePullSecrets=[{"name": "x"}], volumes=[claim], containers=[box])
    assert refusal(state, DAEMON_SET, later) == ""
    own = {"name": "own", "persistentVolumeClaim": {"claimName": "x"}}
    assert "volumes: default/x" in refusal(state, DAEMON_SET, pod(volumes=[own]))


def test_release_creates_its_namespace_and_counts_revisions(state: View) -> None:
    state.remove(identity.NAMESPACE, "kueue-system")
    inputs = dict(made("kueue-with-provisioning-check"))[identity.RELEASE]
    live = create(state, identity.RELEASE, inputs)
    assert state.get(identity.NAMESPACE, "kueue-system") is not None
    assert (live["status"]["chart"], live["status"]["revision"]) == ("kueue", 1)
    again = kind(identity.RELEASE).compute(request(state, identity.RELEASE, inputs, CONFIG, "update"))
    assert again["status"]["revision"] == 2


def test_deletion_cascades(state: View) -> None:
    releases = {value_at(live, "status.chart"): live for _, _, live in state.all(identity.RELEASE)}
    gone = {chart: request(state, identity.RELEASE, live, CONFIG, "delete") for chart, live in releases.items()}
    cascade = kind(identity.RELEASE).cascade
    # Helm keeps the CRDs in a crds folder, as KubeRay's.
    assert cascade(gone["kueue"], identity.LOCAL_QUEUE, {})
    assert not cascade(gone["kueue"], identity.RAY_CLUSTER, {})
    assert not cascade(gone["kuberay-operator"], identity.RAY_CLUSTER, {})
    namespace = request(state, identity.NAMESPACE, named("ray"), CONFIG, "delete")
    cascade = kind(identity.NAMESPACE).cascade
    assert cascade(namespace, identity.SECRET, named("a", "ray"))
    assert cascade(namespace, identity.RELEASE, {"namespace": "ray"})
    assert not cascade(namespace, identity.SECRET, named("a", "other"))
    assert not cascade(namespace, "gcp:storage/bucket:Bucket", {"metadata": {"namespace": "ray"}})


def drifted(state: View, type_: str, inputs: Json) -> Json:
    """Create an object and apply its drift; return what a refresh shows of it."""
    live = create(state, type_, inputs)
    found: Json = as_asked(inputs, merged(live, kind(type_).drift(live, state)), frozenset())
    return found


@pytest.mark.parametrize(
    "name", ["daemon-set-with-priority", "kueue-with-provisioning-check", "ray-cluster-with-token", "indexed-job"]
)
def test_refresh_shows_no_change_of_canonical_objects(state: View, name: str) -> None:
    for type_, inputs in made(name):
        same = quantities.rewritten(inputs)
        shown = drifted(state, type_, same)
        expected = changed(same, {f"{WORKERS}/replicas": 1}) if type_ == identity.RAY_CLUSTER else same
        assert shown == expected


def test_api_server_returns_canonical_quantities(state: View) -> None:
    asked = changed(DAEMONS, {f"{BOX}/resources/limits": {"cpu": "1000m", "nvidia.com/gpu": 8}})
    shown = drifted(state, DAEMON_SET, asked)
    limits = value_at(shown, "spec.template.spec.containers.0.resources.limits")
    assert limits == {"cpu": "1", "nvidia.com/gpu": "8"}


def test_new_queued_job_is_suspended_until_kueue_is_gone(state: View) -> None:
    assert create(state, identity.RAY_CLUSTER, QUEUED)["spec"]["suspend"] is True
    assert "suspend" not in create(state, identity.RAY_CLUSTER, RAY)["spec"]
    state.remove(identity.RELEASE, "kueue-system/kueue")
    assert "suspend" not in create(state, identity.RAY_CLUSTER, QUEUED)["spec"]


def test_admitted_job_gets_the_nodes_and_tolerations_of_its_flavor(state: View) -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    flavor = named("default-flavor", spec={"nodeLabels": NODES, "tolerations": tolerations})
    create(state, identity.RESOURCE_FLAVOR, flavor)
    asked = changed(QUEUED, {"spec/suspend": True, f"{WORKERS}/template/spec/nodeSelector": NODES})
    # Labels of the flavor's nodes that the program sets itself show no difference.
    assert drifted(state, identity.RAY_CLUSTER, asked) == quantities.rewritten(changed(asked, {"spec/suspend": False}))
    own = changed(asked, {f"{WORKERS}/template/spec/tolerations": [{"key": "own"}]})
    shown = drifted(state, identity.RAY_CLUSTER, own)
    assert value_at(shown, "spec.workerGroupSpecs.0.template.spec.tolerations") == [{"key": "own"}, *tolerations]


def test_job_for_other_nodes_waits(state: View) -> None:
    create(state, identity.RESOURCE_FLAVOR, named("default-flavor", spec={"nodeLabels": NODES}))
    elsewhere = {"cloud.google.com/gke-nodepool": "other"}
    asked = changed(QUEUED, {"spec/suspend": True, f"{WORKERS}/template/spec/nodeSelector": elsewhere})
    assert drifted(state, identity.RAY_CLUSTER, asked)["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("written", "back"),
    [
        *(("2048Gi", "2Ti"), ("1000", "1k"), ("32", "32"), (4, "4"), ("1500m", "1500m"), ("1000m", "1")),
        *(("0.5", "500m"), ("1.5Gi", "1536Mi"), ("0Gi", "0"), ("512Ki", "512Ki"), ("0.5Ki", "512")),
        *((UNKNOWN, UNKNOWN), ("lots", "lots")),
    ],
)
def test_quantities_are_canonical(written: Any, back: Any) -> None:
    assert quantities.canonical(written) == back


def test_only_quantities_are_rewritten() -> None:
    before = {"limits": {"cpu": 4}, "sizeLimit": "1024Mi", "nominalQuota": 1000, "command": ["1000"], "limit": "1000"}
    after = {"limits": {"cpu": "4"}, "sizeLimit": "1Gi", "nominalQuota": "1k", "command": ["1000"], "limit": "1000"}
    assert quantities.rewritten([before]) == [after]


@pytest.fixture
def users(empty: View) -> View:
    """The user's cluster of the stack file, with a queue."""
    settings = from_stack_file(ROOT / "Pulumi.kubernetes.yaml", {"queue": "kueue", "localQueue": "team"})
    users_cluster.prepare(empty, settings)
    return empty


def test_provider_of_a_context_reaches_the_users_cluster_alone(users: View) -> None:
    assert connection.reaches({"context": "rdma-ray"}, users) is None
    assert connection.reaches({"context": "other"}, users) is not None
    assert connection.reaches({}, users) is not None
    call = request(users, identity.NAMESPACE, named("a"), {"context": "rdma-ray"})
    assert list(connection.open_pools(call)) == ["head", "worker-0", "worker-1"]


def test_references_to_what_the_user_has_are_accepted(users: View) -> None:
    def refusal(namespace: str, queue: str) -> str:
        metadata = {"name": "r", "namespace": namespace, "labels": {identity.QUEUE: queue}}
        inputs = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        found = first_refusal(kind(identity.JOB), request(users, identity.JOB, inputs, {"context": "rdma-ray"}))
        return "" if found is None else found.message

    assert refusal("ray", "team") == ""
    assert refusal("none", "team") == "metadata.namespace: none does not exist"
    assert refusal("ray", "other") == "metadata.labels: ray/other does not exist"


def test_users_cluster_serves_the_kinds_of_its_operators(users: View) -> None:
    cluster = next(inputs for type_, inputs in made("queued-ray-cluster-and-job") if type_ == identity.RAY_CLUSTER)
    inputs = changed(cluster, {"metadata": {"name": "r", "namespace": "ray", "labels": {}}})
    call = request(users, identity.RAY_CLUSTER, inputs, {"context": "rdma-ray"})
    assert first_refusal(kind(identity.RAY_CLUSTER), call) is None
    users.remove(identity.DEFINITION, "rayclusters.ray.io")
    refused = first_refusal(kind(identity.RAY_CLUSTER), call)
    assert refused is not None
    assert "no matches for kind" in refused.message
