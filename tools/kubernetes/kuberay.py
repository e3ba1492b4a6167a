"""Manifests of KubeRay's operator: the kustomize base of its Go module with the values of its Helm chart.

The chart (helm-chart/kuberay-operator 1.6.2: 598eb66a, read 2026-11-22) is not part of the module. Without a
batch scheduler, it has the roles of the base, with `singleNamespaceInstall` in each namespace that it watches.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.names import KUBERAY_LABELS, KUBERAY_NAMESPACE
from infra.catalog.pins import KUBERAY
from tools.kubernetes import kubectl
from tools.kubernetes.api import Json
from tools.kubernetes.builds import module_folder
from tools.kubernetes.containers import config

MODULE = "github.com/ray-project/kuberay/ray-operator"
NAME = "kuberay-operator"
"""Name of the release and, by the chart's `fullnameOverride`, of all its objects."""


def complete(*values: Json) -> Json:
    """Return the chart's default values, overridden by `values`."""
    image = {"repository": KUBERAY.image, "tag": f"v{KUBERAY.version}", "pullPolicy": "IfNotPresent"}
    [chart] = kubectl.parse(config("kuberay-values.yaml"))
    return kubectl.merged(chart, {"image": image}, *values)


def objects(values: Json) -> list[Json]:
    """Return the objects of the release, from complete values."""
    if (values.get("batchScheduler") or {}).get("name"):
        raise ValueError(
            f"batchScheduler.name {values['batchScheduler']['name']!r}: with it, the chart gives the operator more "
            "roles than the kustomize base has; remove the setting"
        )
    elect, metrics = (str(on).lower() for on in (values["leaderElectionEnabled"], values["metrics"]["enabled"]))
    arguments = [f"--enable-leader-election={elect}", f"--enable-metrics={metrics}", *flags(values)]
    container = kubectl.container(NAME, values, arguments) | {"env": values.get("env") or []}
    pod = {
        key: values[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName") if key in values
    }
    deployment = {"replicas": values["replicas"], "template": {"spec": pod | {"containers": [container]}}}
    # templates/deployment.yaml
    labels = KUBERAY_LABELS | {"app.kubernetes.io/instance": NAME}
    overlay = {"namespace": KUBERAY_NAMESPACE, "labels": [{"pairs": labels, "includeSelectors": True}]}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KUBERAY_NAMESPACE}}
    base = kubectl.kustomize(module_folder(MODULE) / "config" / "default", deployment, overlay)
    return [namespace, *(each for body in base for each in _rights(body, values))]


def _rights(body: Json, values: Json) -> list[Json]:
    """Return an object as the chart installs it (templates/multiple_namespaces_role.yaml, …_rolebinding.yaml)."""
    if not values.get("singleNamespaceInstall") or not body["kind"].startswith("ClusterRole"):
        return [body]
    # Without the roles for users.
    namespaces = values["watchNamespace"] if body["metadata"]["name"] == NAME else ()
    role = {**body, "kind": body["kind"].removeprefix("Cluster")}
    if "roleRef" in role:
        role["roleRef"] = {**role["roleRef"], "kind": "Role"}
    return [{**role, "metadata": {**body["metadata"], "namespace": each}} for each in namespaces]


def flags(values: Json) -> Iterator[str]:
    """Yield the operator's flags, from complete values (templates/deployment.yaml)."""
    yield f"--log-stdout-encoder={values['logging']['stdoutEncoder']}"
    yield f"--log-file-encoder={values['logging']['fileEncoder']}"
    if scheduler := (values.get("batchScheduler") or {}).get("name"):
        yield f"--batch-scheduler={scheduler}"
    if values.get("watchNamespace"):
        yield f"--watch-namespace={','.join(values['watchNamespace'])}"
    yield f"--reconcile-concurrency={values['reconcileConcurrency']}"
    for name, value in values["kubeClient"].items():
        yield f"--{name}={value}"
    yield kubectl.feature_gates(values["featureGates"])
