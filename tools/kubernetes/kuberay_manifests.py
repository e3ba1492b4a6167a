"""What KubeRay's chart brings to a cluster, made from its pinned module: CRDs, account, roles, Service, Deployment.

The chart (helm-chart/kuberay-operator, 1.6.2: 598eb66a, read 2026-11-22) is not part of the module; the module has the
input of kustomize (`config`). Its roles are the chart's, rule for rule, where no batch scheduler is set; the Deployment
differs in labels, arguments and what values set, which is made here as the chart's templates make it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from infra.catalog.pins import KUBERAY
from infra.kubernetes.facts import KUBERAY_LABELS, KUBERAY_NAMESPACE
from tools.kubernetes import manifests
from tools.kubernetes.api import Json
from tools.kubernetes.builds import module_folder

MODULE = "github.com/ray-project/kuberay/ray-operator"
NAME = "kuberay-operator"
"""Of the release, and by the chart's `fullnameOverride` of all its objects."""
NAMESPACE = KUBERAY_NAMESPACE
LABELS = KUBERAY_LABELS | {"app.kubernetes.io/instance": NAME}
"""The Deployment's selector (templates/deployment.yaml)."""

_DEFAULTS: Json = {
    "replicas": 1,
    "image": {"repository": KUBERAY.image, "tag": f"v{KUBERAY.version}", "pullPolicy": "IfNotPresent"},
    "logging": {"stdoutEncoder": "json", "fileEncoder": "json"},
    "featureGates": [
        {"name": "RayClusterStatusConditions", "enabled": True},
        {"name": "RayJobDeletionPolicy", "enabled": True},
        {"name": "RayMultiHostIndexing", "enabled": True},
        {"name": "RayServiceIncrementalUpgrade", "enabled": False},
        {"name": "RayCronJob", "enabled": False},
    ],
    "metrics": {"enabled": True},
    "leaderElectionEnabled": True,
    "reconcileConcurrency": 1,
    "kubeClient": {"qps": 100.0, "burst": 200},
    "resources": {"limits": {"cpu": "100m", "memory": "512Mi"}},
    "livenessProbe": {"initialDelaySeconds": 10, "periodSeconds": 5, "failureThreshold": 5},
    "readinessProbe": {"initialDelaySeconds": 10, "periodSeconds": 5, "failureThreshold": 5},
}
"""The chart's values.yaml at 1.6.2, as far as the operator's pod is concerned."""

_RBAC = ("service_account", "role", "role_binding", "leader_election_role", "leader_election_role_binding")
_BY_POD = ("nodeSelector", "tolerations", "affinity", "priorityClassName")


def complete(*values: Json) -> Json:
    """The chart's own values, with each of these over them as Helm lays them."""
    found = copy.deepcopy(_DEFAULTS)
    for each in values:
        found = manifests.merged(found, each)
    return found


def image(values: Json) -> str:
    """The name of the operator's image, by complete values."""
    return f"{values['image']['repository']}:{values['image']['tag']}"


def definitions() -> list[Json]:
    """The CRDs."""
    return manifests.read(*sorted((module_folder(MODULE) / "config/crd/bases").glob("*.yaml")))


def objects(values: Json) -> list[Json]:
    """What the release has beside its CRDs, by complete values; the Deployment comes last."""
    if (values.get("batchScheduler") or {}).get("name"):
        raise ValueError(
            f"batchScheduler.name {values['batchScheduler']['name']!r}: the chart gives the operator more roles then, "
            "which are not made here; take it out"
        )
    folder = module_folder(MODULE) / "config"
    found = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    found += [manifests.placed(body, NAMESPACE) for body in manifests.read(*(folder / f"rbac/{n}.yaml" for n in _RBAC))]
    port = {"name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP"}
    found.append(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"type": "ClusterIP", "ports": [port], "selector": LABELS},
        }
    )
    return [*found, _deployment(manifests.read(folder / "manager/manager.yaml")[0], values)]


def flags(values: Json) -> Iterator[str]:
    """The operator's arguments that follow from values, complete or not (templates/deployment.yaml)."""
    for name, key in (("log-stdout-encoder", "stdoutEncoder"), ("log-file-encoder", "fileEncoder")):
        if encoder := (values.get("logging") or {}).get(key):
            yield f"--{name}={encoder}"
    scheduler = values.get("batchScheduler") or {}
    if scheduler.get("name"):
        yield f"--batch-scheduler={scheduler['name']}"
    if values.get("watchNamespace"):
        yield f"--watch-namespace={','.join(values['watchNamespace'])}"
    if "reconcileConcurrency" in values:
        yield f"--reconcile-concurrency={values['reconcileConcurrency']}"
    for name, value in (values.get("kubeClient") or {}).items():
        yield f"--{name}={value}"
    if values.get("featureGates"):
        gates = (f"{gate['name']}={str(gate['enabled']).lower()}" for gate in values["featureGates"])
        yield f"--feature-gates={','.join(gates)}"


def _deployment(body: Json, values: Json) -> Json:
    body["metadata"] |= {"name": NAME, "namespace": NAMESPACE, "labels": dict(LABELS)}
    spec: dict[str, Any] = body["spec"]
    spec["replicas"] = values["replicas"]
    spec["selector"]["matchLabels"] = dict(LABELS)
    spec["template"]["metadata"] = {"labels": LABELS | {"app.kubernetes.io/component": NAME}}
    pod = spec["template"]["spec"]
    # The chart says it of the container alone, and leaves the time to end to Kubernetes.
    del pod["securityContext"], pod["terminationGracePeriodSeconds"]
    pod |= {name: values[name] for name in _BY_POD if values.get(name)}
    [container] = pod["containers"]
    container["securityContext"]["runAsNonRoot"] = True
    elect, measure = (str(on).lower() for on in (values["leaderElectionEnabled"], values["metrics"]["enabled"]))
    container |= {
        "image": image(values),
        "imagePullPolicy": values["image"]["pullPolicy"],
        "args": [f"--enable-leader-election={elect}", f"--enable-metrics={measure}", *flags(values)],
        "resources": values["resources"],
        "env": values.get("env") or [],
    }
    for probe in ("livenessProbe", "readinessProbe"):
        container[probe] |= values[probe]
    return body
