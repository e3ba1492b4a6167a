"""The checks of a cluster that the user has, with a real API server, kubectl, Kueue, and KubeRay's CRDs."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import OUTPUTS_KEY, STACK_LABEL, outputs_secret
from infra.catalog.pins import KUBERAY, KUEUE_API
from infra.existing import kubectl as user_kubectl
from infra.existing.objects import resource_of
from infra.existing.workload import ray_args
from infra.kubernetes.client_access import client_role
from infra.kubernetes.namespace import ENFORCE
from infra.kubernetes.workload_objects import every_object
from infra.outputs import cluster_outputs
from infra.settings import Problem
from tests.kubernetes.existing_cluster import (
    CRDS,
    EVERY_RIGHT,
    MODES,
    NAME,
    POOL,
    QUEUED,
    STACK,
    Cluster,
    claim,
    definitions,
    local_queue,
    node,
    operator,
    policy,
    quota,
    rights,
    up,
)
from tests.kubernetes.queries import GPU, WITHIN_S
from tools.kubernetes import builds, kubectl
from tools.kubernetes.api import Json
from tools.kubernetes.control_plane import ControlPlane
from workloads.client import kubectl as client_kubectl
from workloads.client.stack import read_outputs
from workloads.exits import WorkloadError
from workloads.options import StackOptions


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    programs = tmp_path_factory.mktemp("bin")
    (programs / "kubectl").symlink_to(builds.programs("kubectl")["kubectl"])
    with ControlPlane(tmp_path_factory.mktemp("existing")) as plane, pytest.MonkeyPatch.context() as environment:
        plane.start_kwok()
        kubectl.install(plane.api, CRDS)
        plane.start_kueue()
        found = Cluster(plane, programs)
        environment.setenv("KUBECONFIG", str(found.file))
        environment.setenv("PATH", str(programs))
        node(found, "of-all", "good")
        flavor = found.make(KUEUE_API, "ResourceFlavor", "any", None, spec={})["metadata"]["name"]
        resources = [{"name": name, "nominalQuota": "10k"} for name in ("cpu", "memory", GPU)]
        group = {"coveredResources": ["cpu", "memory", GPU], "flavors": [{"name": flavor, "resources": resources}]}
        for name, policy in (("open", "None"), ("stopped", "Hold")):
            spec = {"namespaceSelector": {}, "resourceGroups": [group], "stopPolicy": policy}
            found.make(KUEUE_API, "ClusterQueue", name, None, spec=spec)
        yield found


@pytest.fixture
def team(cluster: Cluster) -> str:
    """A namespace without any rules."""
    return cluster.namespace()


def is_one(found: list[Problem], path: str, *words: str) -> None:
    """Assert that there is one problem, with this setting first and these words, that can be printed."""
    assert [each.settings[0] for each in found] == [path], "\n\n".join(map(str, found))
    text = str(found[0])
    print(f"\n{text}")
    for word in words:
        assert word in " ".join(text.split()), text
    assert len(text) < 1500
    assert ".." not in text.replace("...", "")


@pytest.mark.parametrize("mode", MODES)
def test_good_cluster_has_no_problem(cluster: Cluster, team: str, mode: str) -> None:
    assert cluster.problems(team, MODES[mode]) == []


@pytest.mark.parametrize("mode", ["cluster", "job", "indexed-job"])
def test_good_queue_has_no_problem(cluster: Cluster, team: str, mode: str) -> None:
    local_queue(cluster, team, "open", "True")
    assert cluster.problems(team, MODES[mode] | QUEUED) == []


def test_context_that_does_not_exist(cluster: Cluster, team: str) -> None:
    is_one(cluster.problems(team, context="none"), "context", 'context "none" does not exist', "get-contexts")


def test_server_that_does_not_answer(cluster: Cluster, team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(user_kubectl, "TIMEOUT_S", 2)
        found = cluster.problems(team, context=cluster.context("silent", server=address))
        is_one(found, "context", "The cluster does not answer: no answer within 2 s.")
    found = cluster.problems(team, context=cluster.context("closed", server=address))
    is_one(found, "context", "The cluster does not answer: The connection to the server", "was refused")


def test_credentials_that_are_refused(cluster: Cluster, team: str) -> None:
    found = cluster.problems(team, context=cluster.context("expired", {"token": "expired"}))
    is_one(found, "context", "The cluster does not answer: You must be logged in", "sign in again")


def test_kubectl_that_is_missing(cluster: Cluster, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    is_one(cluster.problems(team), "context", "no kubectl on PATH", "Fix: install kubectl")


def test_namespace_that_does_not_exist(cluster: Cluster) -> None:
    is_one(cluster.problems("none"), "namespace", "no such namespace", "kubectl create namespace none")


def test_namespace_that_is_being_deleted(cluster: Cluster, team: str) -> None:
    kept = {"metadata": {"finalizers": ["example.com/kept"]}}
    cluster.make("v1", "ConfigMap", "kept", team)
    cluster.api.patch("v1", "ConfigMap", "kept", team, kept)
    cluster.api.delete("v1", "Namespace", team)
    is_one(cluster.problems(team), "namespace", "is being deleted")
    cluster.api.patch("v1", "ConfigMap", "kept", team, {"metadata": {"finalizers": []}})
    cluster.api.until("its end", lambda: cluster.api.get("v1", "Namespace", team) is None, WITHIN_S)


def test_quota_without_room_for_a_worker(cluster: Cluster, team: str) -> None:
    quota(cluster, team, {f"requests.{GPU}": "4"})
    is_one(
        cluster.problems(team),
        "namespace",
        "a pod such as mine-ray-ray-worker: exceeded quota: all",
        "lower nodes.gpus",
    )


def test_quota_that_the_stack_fills(cluster: Cluster, team: str) -> None:
    """Its own objects and pods are no reason against the next `up`, but the first one needs room."""
    hard = {"secrets": "0", "requests.cpu": "0"}
    quota(cluster, team, hard)
    assert len(cluster.problems(team)) == 2
    cluster.api.delete("v1", "ResourceQuota", "all", team)
    up(cluster, team)
    quota(cluster, team, hard)
    assert cluster.problems(team) == []


def test_limit_below_a_worker(cluster: Cluster, team: str) -> None:
    limit = {"type": "Container", "max": {"cpu": "64", "memory": "256Gi"}}
    cluster.make("v1", "LimitRange", "all", team, spec={"limits": [limit]})
    is_one(cluster.problems(team), "namespace", "maximum cpu usage per Container is 64, but limit is 180")


@pytest.mark.parametrize(("level", "fabric"), [("restricted", "socket"), ("restricted", "rdma"), ("baseline", "rdma")])
def test_level_that_refuses_pods(cluster: Cluster, level: str, fabric: str) -> None:
    team = cluster.namespace({ENFORCE: level})
    found = cluster.problems(team, {"fabric": fabric, "nodes.selector": [f"{POOL}=none"]})
    is_one(found, "namespace", f'violates PodSecurity "{level}:latest"')


def test_level_that_admits_pods(cluster: Cluster) -> None:
    assert cluster.problems(cluster.namespace({ENFORCE: "baseline"})) == []


@pytest.mark.parametrize(
    ("group", "resource", "rule", "words"),
    [
        ("ray.io", "rayclusters", "false", "refuses the RayCluster mine-ray"),
        ("", "pods", "object.spec.containers.all(c, c.image.startsWith('own/'))", "refuses a pod such as mine-ray"),
    ],
)
def test_policy_that_refuses_objects(
    cluster: Cluster, team: str, group: str, resource: str, rule: str, words: str
) -> None:
    with policy(cluster, team, group, resource, rule):
        is_one(cluster.problems(team), "namespace", words, "denied request: not here")


def test_missing_kuberay(cluster: Cluster, team: str) -> None:
    with definitions(cluster, []):
        found = cluster.problems(team)
        installed = cluster.problems(team, {"installKuberay": True})
        job = cluster.problems(team, MODES["indexed-job"])
    is_one(found, "installKuberay", "The cluster has no KubeRay", "installKuberay to true")
    assert installed == job == []


def test_older_definitions_of_kuberay(cluster: Cluster, team: str) -> None:
    older = copy.deepcopy(CRDS)
    for body in older:
        for version in body["spec"]["versions"]:
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            for part in (spec, spec.get("rayClusterSpec", {}).get("properties", {})):
                part.pop("authOptions", None)
    with definitions(cluster, older):
        is_one(cluster.problems(team), "context", 'unknown field "spec.authOptions"', "apply the CRDs of KubeRay")


def test_older_operator(cluster: Cluster, team: str) -> None:
    with operator(cluster, "v1.3.0"):
        is_one(cluster.problems(team), "context", "KubeRay is 1.3, but the stack needs 1.6 or later")
    with operator(cluster, f"v{KUBERAY.version}"):
        assert cluster.problems(team) == []
        assert cluster.problems(team, context=cluster.user(team, *EVERY_RIGHT)) == []


@pytest.mark.parametrize("arguments", [["--watch-namespace", "x,y"], ["--watch-namespace=x"]])
def test_operator_that_watches_another_namespace(cluster: Cluster, team: str, arguments: list[str]) -> None:
    with operator(cluster, f"v{KUBERAY.version}", arguments):
        is_one(cluster.problems(team), "namespace", "in the Deployment kuberay-1/kuberay-operator, and watches other")
        assert cluster.problems(team, {"installKuberay": True}) == []
    with operator(cluster, f"v{KUBERAY.version}", [*arguments[:-1], f"{arguments[-1]},{team}"]):
        assert cluster.problems(team) == []


def test_operator_beside_the_stacks(cluster: Cluster, team: str) -> None:
    with operator(cluster, f"v{KUBERAY.version}"):
        is_one(cluster.problems(team, {"installKuberay": True}), "installKuberay", "two operators", "to false")
    with operator(cluster, f"v{KUBERAY.version}", labels={STACK_LABEL: STACK}):
        assert cluster.problems(team, {"installKuberay": True}) == []
    with operator(cluster, f"v{KUBERAY.version}", labels={STACK_LABEL: "other"}):
        is_one(cluster.problems(team, {"installKuberay": True}), "installKuberay", "two operators")


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ((), None),
        ((("create", "pods"),), None),
        ((("get", "secrets"), ("list", "secrets")), None),
        ((("create", "rayclusters"),), "create rayclusters.ray.io."),
        ((("delete", "rayclusters"),), "delete rayclusters.ray.io."),
        ((("create", "pods/portforward"),), "create pods/portforward."),
        (
            (("create", "rayclusters"), ("patch", "rayclusters"), ("get", "pods/log"), ("create", "secrets")),
            "get pods/log; create, patch rayclusters.ray.io; create secrets.",
        ),
    ],
)
def test_rights_in_the_namespace(
    cluster: Cluster, team: str, without: tuple[tuple[str, str], ...], words: str | None
) -> None:
    """Such a user reads neither nodes nor namespaces nor Deployments."""
    found = cluster.problems(team, context=cluster.user(team, *rights(*without)))
    if words is None:
        assert found == []
    else:
        is_one(found, "namespace", f"You lack these rights: {words}", "ask an administrator")


def test_user_without_secrets_updates_the_stack(cluster: Cluster, team: str) -> None:
    up(cluster, team)
    blind = cluster.user(team, *rights(("get", "secrets"), ("list", "secrets")))
    assert cluster.problems(team, context=blind) == []


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("ray.secrets", ["none"], "There is no Secret none."),
        ("ray.pullSecrets", ["none"], "There is no Secret none."),
        ("ray.volumes", ["none=/data"], "There is no PersistentVolumeClaim none."),
        ("storage.claim", "none", "There is no PersistentVolumeClaim none."),
        ("ray.serviceAccount", "none", "There is no ServiceAccount none."),
        ("ray.priorityClass", "none", "There is no PriorityClass none."),
        ("storage.claim", "alone", "The claim alone is ReadWriteOnce"),
        ("ray.volumes", ["alone=/data"], "The claim alone is ReadWriteOnce"),
    ],
)
def test_named_object_that_is_missing(cluster: Cluster, team: str, setting: str, value: Any, words: str) -> None:
    claim(cluster, team, "alone", "ReadWriteOnce")
    is_one(cluster.problems(team, {setting: value}), setting, words)


def test_named_objects_that_are_there(cluster: Cluster, team: str) -> None:
    claim(cluster, team, "shared", "ReadWriteMany")
    cluster.make("v1", "Secret", "there", team, data={})
    cluster.make("v1", "ServiceAccount", "there", team)
    cluster.make("scheduling.k8s.io/v1", "PriorityClass", "there", None, value=7)
    named: Json = {
        "ray.secrets": ["there", "there=/there"],
        "ray.pullSecrets": ["there"],
        "ray.serviceAccount": "there",
    }
    named |= {"ray.priorityClass": "there", "storage.claim": "shared", "ray.volumes": ["shared=/data"]}
    assert cluster.problems(team, named) == []
    blind = cluster.user(team, *rights(("get", "secrets"), ("list", "secrets")))
    assert cluster.problems(team, named, context=blind) == []


def test_queue_that_is_missing(cluster: Cluster, team: str) -> None:
    found = cluster.problems(team, QUEUED)
    is_one(found, "localQueue", "The namespace has no such LocalQueue.", f"kubectl -n {team} get localqueues")


@pytest.mark.parametrize("queue", ["none", "stopped"])
def test_queue_that_admits_nothing(cluster: Cluster, team: str, queue: str) -> None:
    local_queue(cluster, team, queue, "False")
    is_one(cluster.problems(team, QUEUED), "localQueue", "The LocalQueue admits nothing: ")


@pytest.mark.parametrize(
    ("amounts", "taints", "path", "words"),
    [
        ({GPU: "4"}, (), "nodes.gpus", f"has room for a worker: {GPU} 8 (at most 4)."),
        ({"memory": "1000Gi"}, (), "nodes.memoryGib", "has room for a worker: memory 1800Gi (at most 1000Gi)."),
        ({}, ({"key": "team", "value": "a", "effect": "NoSchedule"},), "nodes.tolerations", "not tolerate: team=a."),
    ],
)
def test_nodes_that_take_no_worker(
    cluster: Cluster, team: str, amounts: Json, taints: tuple[Json, ...], path: str, words: str
) -> None:
    node(cluster, f"of-{team}", team, taints, **amounts)
    is_one(cluster.problems(team, {"nodes.selector": [f"{POOL}={team}"]}), path, words)
    if taints:
        fixed: Json = {"nodes.selector": [f"{POOL}={team}"], "nodes.tolerations": ["team=a"], "nodes.min": 1}
        assert cluster.problems(team, fixed) == []


def test_nodes_that_an_autoscaler_may_add(cluster: Cluster, team: str) -> None:
    none: Json = {"nodes.selector": [f"{POOL}=none"]}
    assert cluster.problems(team, none) == []
    found = cluster.problems(team, none | {"nodes.min": 1})
    is_one(found, "nodes.min", "nodes.min is 1, but 0 nodes have the labels")
    assert cluster.problems(team, {"nodes.selector": []}) == []


def test_object_of_this_name(cluster: Cluster, team: str) -> None:
    for labels, words in (({}, "which no stack made"), ({STACK_LABEL: "other"}, "of the stack other")):
        cluster.make("v1", "Secret", f"{NAME}-token", team, labels, data={})
        is_one(cluster.problems(team), "namespace", f"There is a Secret {NAME}-token, {words}", "another name")


def test_objects_of_this_stack(cluster: Cluster, team: str) -> None:
    up(cluster, team)
    assert cluster.problems(team) == []


def test_resource_of_every_kind(cluster: Cluster, team: str) -> None:
    kinds = set()
    for changes in MODES.values():
        settings = cluster.settings(team, changes | {"fabric": "efa-dranet", "nodes.nics": 8})
        for body in every_object(ray_args(settings, NAME)):
            served = cluster.api.kind(body["apiVersion"], body["kind"])
            assert (served.plural, served.namespaced) == (resource_of(body["kind"]), True)
            kinds.add(served.kind)
    assert {"CronJob", "RoleBinding", "NetworkPolicy", "ResourceClaimTemplate", "Job", "RayService"} <= kinds


def test_a_bound_user_reads_the_outputs_and_no_other_secret(cluster: Cluster, team: str) -> None:
    """The Role as the stack makes it, bound as docs/install.md does, and the client with a real kubectl."""
    args = ray_args(cluster.settings(team, {"access.outputsSecret": True}), NAME)
    name, outputs = outputs_secret(NAME), cluster_outputs(args.settings, NAME, None, "token")
    cluster.make("v1", "Secret", name, team, stringData={OUTPUTS_KEY: json.dumps(outputs)})
    cluster.make("v1", "Secret", args.token_secret, team, stringData={"auth_token": "token"})
    role = client_role(args)
    cluster.make(role["apiVersion"], "Role", name, team, rules=role["rules"])
    stranger, user = cluster.context("stranger", {"as": "stranger"}), cluster.context("dana", {"as": "dana"})
    with client_kubectl.Kubectl("admin", team) as admin:
        admin.run("create", "rolebinding", "users", f"--role={name}", "--user=dana")
    place = f"secret:{team}/{name}"
    found = read_outputs(StackOptions(outputs=f"{place}@{user}"))
    assert (found.context, found.namespace, found.ray.cluster) == (user, team, NAME)
    with pytest.raises(WorkloadError, match="ask an administrator to bind it to the Role"):
        read_outputs(StackOptions(outputs=f"{place}@{stranger}"))
    with pytest.raises(WorkloadError, match=f"there is no Secret other-outputs in namespace {team} of context admin"):
        read_outputs(StackOptions(outputs=f"secret:{team}/other-outputs@admin"))
    with client_kubectl.Kubectl(user, team) as kubectl:
        for kind in ("pods", "services", "rayclusters.ray.io", "workloads.kueue.x-k8s.io", "jobs.batch"):
            assert kubectl.get(kind) == []
        for refused in ("get secrets", f"get secret {args.token_secret}", "delete pod any", "create configmap mine"):
            with pytest.raises(WorkloadError, match="orbidden"):
                kubectl.run(*refused.split())
        for right in ("create pods --subresource=portforward", "create pods --subresource=exec"):
            assert kubectl.run("auth", "can-i", *right.split()).strip() == "yes"
