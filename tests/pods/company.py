"""A company's cluster before a stack: KubeRay for all namespaces, a team's namespace with its objects, and a user whose
rights end at that namespace."""

from __future__ import annotations

import base64
import contextlib
import difflib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.names import NAMESPACE
from infra.catalog.pins import KUEUE_API
from infra.kubernetes.pods import RBAC
from rehearsal.cluster.provider import SETTING
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import Workspace
from tests.kubernetes import stack_objects
from tests.pods.deployed_stack import RDMA_RAY
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes import builds
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.node import Cluster

TEAM, USER, CONTEXT = "team-a", "alice", "company"
CLAIMS = ("datasets", "shared")
# Without a request for CPU, so that Ray's pods also fit on its node, which has two CPUs.
OPERATOR = {"resources": {"requests": {"cpu": "0", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}}

_WRITTEN = ("metadata managedFields", "metadata resourceVersion")
# A busy machine answers a readiness probe of an operator's too late, now and then. A second later, all is as before but
# times, and the order of conditions.
_READY = (
    *_WRITTEN,
    *("metadata generation", "metadata annotations endpoints.kubernetes.io/last-change-trigger-time"),
    *("status conditions lastTransitionTime", "status conditions lastUpdateTime", "status containerStatuses"),
)
CHANGED_BY_OTHERS: Mapping[str, Sequence[str]] = {
    # Records, which expire, and leases, which are renewed every few seconds.
    "Event": ("",),
    "Lease": ("",),
    # The kubelet reports them.
    "Node": (
        *_WRITTEN,
        *("status conditions lastHeartbeatTime", "status images", "status volumesAttached", "status volumesInUse"),
    ),
    # Kueue counts the workloads of each queue in its status.
    "ClusterQueue": _WRITTEN,
    "LocalQueue": _WRITTEN,
    **dict.fromkeys(("APIService", "Deployment", "Endpoints", "EndpointSlice", "Pod", "ReplicaSet"), _READY),
}
"""Kinds, and the fields of them, that controllers of the cluster write; "" is the whole object. All else is compared
byte for byte."""


@dataclass(frozen=True)
class Company:
    """The cluster with the team's objects. `folders` are the folders of this machine behind the claims.

    Args:
        kubeconfig: The user's, whose current context does not exist.
    """

    pod_cluster: PodCluster
    kubeconfig: Path
    folders: Mapping[str, Path]
    token: str

    @property
    def api(self) -> Api:
        """Client of an administrator."""
        return self.pod_cluster.api

    def engine(self, folder: Path, plugins: Path, stack: str, file: Path) -> Engine:
        """Return the engine with an initialized stack, whose provider has the user's rights."""
        assert self.pod_cluster.cluster is not None
        workspace = Workspace(folder, plugins)
        workspace.control_plane = (builds.programs("kubectl")["kubectl"].parent, self.kubeconfig)
        workspace.begin(stack, file)
        engine = Engine(workspace, stack)
        plane = self.pod_cluster.cluster.plane
        with engine.cloud_state.transaction() as state:
            state.set(SETTING, {"url": plane.url, "token": self.token, "authority": str(plane.authority)})
        engine.cloud_state.path.chmod(0o600)
        engine.init()
        return engine

    @property
    def environment(self) -> dict[str, str]:
        """The user's kubectl and kubeconfig."""
        path = f"{builds.programs('kubectl')['kubectl'].parent}{os.pathsep}{os.environ['PATH']}"
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def rdma_ray(self, file: Path, *arguments: str) -> str:
        """Run this project's command line on the stack whose outputs are in the file; return what it prints."""
        return self._printed([str(RDMA_RAY), *arguments], {"RDMA_RAY_OUTPUTS": str(file)})

    def shown(self, file: Path, job: str, folder: Path) -> tuple[str, Json]:
        """Return the lines of a job and its result, without the command that showed them."""
        result = folder / "shown.json"
        lines = self.rdma_ray(file, "logs", job, "--all", "--json", str(result))
        return lines, json.loads(result.read_text()) | {"command": None}

    def check_kept_secrets(self, file: Path) -> None:
        """Check that no file of the kept jobs has Ray's token or the value of the team's Secret."""
        secrets = [json.loads(file.read_text())["ray"]["token"], *_NAMED.values()]
        secrets += [base64.b64encode(secret.encode()).decode() for secret in secrets]
        files = [path for path in (self.folders["shared"] / "rdma-ray").rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files for each in secrets if each.encode() in path.read_bytes()]

    def until_as_before(self, before: Mapping[str, str]) -> None:
        """Wait until every object of the cluster is as in this snapshot."""

        def as_before() -> bool:
            if left := differences(before, snapshot(self.api)):
                raise NotYet(json.dumps(left, indent=1)[:4000])
            return True

        self.api.until("the cluster to be as before", as_before, 60)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the team's namespace; return what it prints."""
        return self._printed(["kubectl", f"--context={CONTEXT}", f"--namespace={TEAM}", *arguments], {})

    def _printed(self, command: list[str], variables: Mapping[str, str]) -> str:
        """Run a command as the user; return its stdout."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@contextlib.contextmanager
def company(pod_cluster: PodCluster, cluster: Cluster, folder: Path) -> Iterator[Company]:
    """The cluster with what a company has in it; afterwards with the tier's operator again."""
    api, operators = pod_cluster.api, cluster.operators
    operators.stop_kuberay()
    operators.start_kuberay(OPERATOR)
    folders = {name: folder / name for name in CLAIMS}
    bodies = [*_rights(), *_objects(folders)]
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    try:
        for body in bodies:
            api.apply(body)
        api.until("the claims to be bound", lambda: all(_bound(api, name) for name in CLAIMS), 60)
        place = f"/api/v1/namespaces/{TEAM}/serviceaccounts/{USER}/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = str(api.request("POST", place, body=review)["status"]["token"])
        kubeconfig = folder / "kubeconfig"
        _write_kubeconfig(kubeconfig, cluster.plane.kubeconfig, token)
        yield Company(pod_cluster, kubeconfig, folders, token)
    finally:
        api.delete("v1", "Namespace", TEAM)
        for name in CLAIMS:
            api.delete("v1", "PersistentVolume", f"{TEAM}-{name}")
        operators.stop_kuberay()
        api.until("the namespace to be gone", lambda: api.get("v1", "Namespace", TEAM) is None, 120)
        _restore(api, cluster)


@contextlib.contextmanager
def kueue(users: Company, cluster: Cluster) -> Iterator[str]:
    """The company's Kueue, with room for any team; yields the name of the team's LocalQueue."""
    values = stack_objects.release("gke, queued", "kueue")
    values["controllerManager"]["manager"] |= OPERATOR
    cluster.operators.start_kueue(values)
    quotas = [{"name": name, "nominalQuota": "100"} for name in ("cpu", "nvidia.com/gpu")]
    quotas.append({"name": "memory", "nominalQuota": "1Ti"})
    group = {"coveredResources": [each["name"] for each in quotas], "flavors": [{"name": "any", "resources": quotas}]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    place = {"name": "team-queue", "namespace": TEAM}
    bodies: list[Json] = [
        {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": "company"}, "spec": queue},
        {"apiVersion": KUEUE_API, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": "company"}},
    ]
    try:
        for body in bodies:
            users.api.apply(body)
        yield place["name"]
    finally:
        for body in reversed(bodies):
            where = (KUEUE_API, body["kind"], body["metadata"]["name"], body["metadata"].get("namespace"))
            users.api.delete(*where)
            users.api.until(f"the {body['kind']} to be gone", partial(_gone, users.api, *where), 60)
        cluster.operators.stop_kueue()


def _gone(api: Api, *where: str) -> bool:
    return api.get(*where) is None


def snapshot(api: Api) -> dict[str, str]:
    """Return every object of every kind that can be listed, as JSON by kind and name, but for `CHANGED_BY_OTHERS`."""
    found: dict[str, str] = {}
    for kind in api.kinds():
        if "list" not in kind.verbs or "" in CHANGED_BY_OTHERS.get(kind.kind, ()):
            continue
        for body in api.list(kind.api_version, kind.kind):
            place = f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
            for path in CHANGED_BY_OTHERS.get(kind.kind, ()):
                _remove(body, *path.split())
            status = body.get("status")
            if isinstance(status, dict) and isinstance(status.get("conditions"), list):
                status["conditions"].sort(key=lambda each: str(each.get("type")))
            found[f"{kind.api_version} {kind.kind} {place}"] = json.dumps(body, sort_keys=True, indent=1)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the lines that differ, by object, of the objects that are not the same in both."""
    return {
        name: "\n".join(
            difflib.unified_diff(before.get(name, "").splitlines(), now.get(name, "").splitlines(), lineterm="", n=0)
        )
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    }


def _remove(value: Any, name: str, *names: str) -> None:
    """Remove a field, by the names on the way to it, of which a list's items have one each, and what is empty then."""
    for each in value if isinstance(value, list) else [value]:
        if names:
            _remove(each.get(name, {}), *names)
        if not names or not each.get(name, True):
            each.pop(name, None)


def _rights() -> list[Json]:
    """Return the user with the rights of a team: Kubernetes' role `admin` in one namespace, and Ray's kinds there."""
    here: Json = {"namespace": TEAM}
    rule = {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["*"]}
    subjects = [{"kind": "ServiceAccount", "name": USER, **here}]
    api = f"{RBAC}/v1"
    roles = (("ClusterRole", "admin"), ("Role", "ray"))
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": USER, **here}},
        {"apiVersion": api, "kind": "Role", "metadata": {"name": "ray", **here}, "rules": [rule]},
        *(
            {
                "apiVersion": api,
                "kind": "RoleBinding",
                "metadata": {"name": f"{USER}-{name}", "namespace": TEAM},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
                "subjects": subjects,
            }
            for kind, name in roles
        ),
    ]


def _objects(folders: Mapping[str, Path]) -> list[Json]:
    """Return the team's Secrets, and a claim for each folder with its volume."""
    here = {"namespace": TEAM}
    login = json.dumps({"auths": {"registry.invalid": {"username": "team", "password": "secret-three"}}})
    bodies: list[Json] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "named", **here}, "stringData": _NAMED},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "registry", **here},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": login},
        },
    ]
    for name, folder in folders.items():
        folder.mkdir()
        folder.chmod(0o777)
        bodies += volume(name, folder)
    (folders["datasets"] / "size").write_text("three")
    return bodies


_NAMED = {"HF_TOKEN": "secret-one"}


def volume(name: str, folder: Path) -> list[Json]:
    """Return a claim of the team's, and its volume in a folder of this machine."""
    common: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    owned = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}}
    claim = {**common, "volumeName": f"{TEAM}-{name}", "resources": {"requests": {"storage": "1Gi"}}}
    place = {"name": name, "namespace": TEAM}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{TEAM}-{name}"}, "spec": owned},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": place, "spec": claim},
    ]


def _bound(api: Api, name: str) -> bool:
    claim = api.get("v1", "PersistentVolumeClaim", name, TEAM) or {}
    return (claim.get("status") or {}).get("phase") == "Bound"


def _write_kubeconfig(file: Path, admin: Path, token: str) -> None:
    config = yaml.safe_load(admin.read_text())
    [cluster] = config["clusters"]
    config["users"] = [{"name": USER, "user": {"token": token}}]
    config["contexts"] = [{"name": CONTEXT, "context": {"cluster": cluster["name"], "user": USER}}]
    # Only what names the context works.
    config["current-context"] = "another"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))


def _restore(api: Api, cluster: Cluster) -> None:
    """Start the tier's operator again, in a namespace that is not ending."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}

    def active() -> bool:
        try:
            return str(api.apply(body)["status"]["phase"]) == "Active"
        except ApiError:
            return False

    api.until(f"namespace {NAMESPACE} to be there", active, 120)
    cluster.operators.start_kuberay(stack_objects.release("gke", "kuberay-operator"))
