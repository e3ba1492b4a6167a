"""Manifests of Kueue: the kustomize base of its pinned Go module with the values of its Helm chart; readiness checks.

The base (config/default in sigs.k8s.io/kueue v0.19.2) has the roles and names of the chart (charts/kueue).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import yaml

from infra.catalog.pins import KUEUE, KUEUE_API
from infra.kubernetes.queue_objects import KUEUE_NAMESPACE, KUEUE_RELEASE
from tools.kubernetes import kubectl
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.builds import module_folder

MODULE = "sigs.k8s.io/kueue"
AUTOSCALER = "k8s.io/autoscaler/cluster-autoscaler/apis"
NAME = f"{KUEUE_RELEASE}-controller-manager"
SERVICE = f"{KUEUE_RELEASE}-webhook-service"
SECRET = f"{KUEUE_RELEASE}-webhook-server-cert"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

# The chart names a staging image, which Kueue's release process replaces.
_RELEASED = {"repository": KUEUE.image, "tag": KUEUE.tag, "pullPolicy": "IfNotPresent"}
_API_SERVICE = "apiregistration.k8s.io/v1"


def complete(*values: Json) -> Json:
    """Return the chart's default values, overridden by `values`."""
    [chart] = kubectl.read(module_folder(MODULE) / "charts/kueue/values.yaml")
    return kubectl.merged(chart, {"controllerManager": {"manager": {"image": _RELEASED}}}, *values)


def configuration(values: Json) -> Json:
    """Return Kueue's configuration file, from complete values."""
    settings: Json = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    certificates = {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET}
    settings.setdefault("internalCertManagement", certificates)
    return settings


def objects(values: Json) -> list[Json]:
    """Return the objects of the release, from complete values, and the ProvisioningRequest CRD."""
    settings = configuration(values)
    text = yaml.safe_dump(settings)
    policy = values["mutatingWebhook"]["reinvocationPolicy"]
    documents = kubectl.kustomize(module_folder(MODULE) / "config" / "default", _deployment(values, text))
    for body in documents:
        if body["kind"] == "ConfigMap":
            body["data"] = {"controller_manager_config.yaml": text}
        for webhook in body["webhooks"] if body["kind"] in WEBHOOKS else ():
            # "mpod.kb.io": the chart ignores webhook failures for kinds that Kueue does not manage.
            if (framework := webhook["name"][1:].partition(".")[0]) in ("pod", "deployment", "statefulset"):
                enabled = framework in settings["integrations"]["frameworks"]
                webhook["failurePolicy"] = "Fail" if enabled else "Ignore"
            if "namespaceSelector" in webhook and "managedJobsNamespaceSelector" in settings:
                webhook["namespaceSelector"] = settings["managedJobsNamespaceSelector"]
            if body["kind"] == WEBHOOKS[0]:
                webhook["reinvocationPolicy"] = policy
    request = sorted((module_folder(AUTOSCALER) / "config" / "crd").glob("*provisioningrequests.yaml"))
    return [*kubectl.read(*request), *documents]


def uninstall(api: Api, stop: Callable[[], object] = lambda: None) -> None:
    """Delete the release as `helm uninstall` does; `stop` ends a Kueue that runs outside pods."""
    documents = objects(complete())
    # First, or the API server would later reject every Job and Pod, and could delete no namespace.
    for kinds in ((*WEBHOOKS, "APIService"), ("Deployment",)):
        kubectl.remove(api, (body for body in documents if body["kind"] in kinds))
    stop()
    kubectl.remove(api, documents)


def certificate(api: Api) -> dict[str, bytes]:
    """Return the files of Kueue's certificate. Raises NotYet without them."""
    data = (api.get("v1", "Secret", SECRET, KUEUE_NAMESPACE) or {}).get("data") or {}
    if not {"ca.crt", "tls.crt", "tls.key"} <= data.keys():
        raise NotYet("the Secret is empty")
    return {name: base64.b64decode(content) for name, content in data.items()}


def write_certificate(api: Api, folder: Path) -> bool:
    """Write the certificate's files, as the kubelet does. Raises NotYet without them."""
    for name, content in certificate(api).items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)
    return True


def mount_certificate(api: Api) -> bool:
    """Make the kubelet mount the certificate now. Raises NotYet until it exists.

    The kubelet mounts a changed Secret within a minute, or when an annotation of the pod changes
    (https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/, read 2026-11).
    """
    certificate(api)
    for pod in kubectl.pods(api, KUEUE_NAMESPACE, NAME):
        change = {"metadata": {"annotations": {"rdma-ray/certificate": "created"}}}
        api.patch("v1", "Pod", pod["metadata"]["name"], KUEUE_NAMESPACE, change)
    return True


def webhooks_answer(api: Api) -> bool:
    """Return True if a dry run passes a webhook of Kueue. Raises NotYet if none answers."""
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "is-kueue-there"}}
    try:
        api.apply(flavor, dry_run=True)
    except ApiError as problem:
        if problem.status != 500:
            raise
        raise NotYet(problem.message) from problem
    return True


def api_answers(api: Api) -> bool:
    """Return True if the API server reaches Kueue's API. Raises NotYet otherwise.

    Until then, listing all kinds fails, and no namespace can be deleted.
    """
    for body in api.list(_API_SERVICE, "APIService"):
        conditions = (body.get("status") or {}).get("conditions") or []
        available = any(each["type"] == "Available" and each["status"] == "True" for each in conditions)
        if "visibility.kueue" in body["metadata"]["name"] and not available:
            raise NotYet("; ".join(str(each.get("message")) for each in conditions) or "no condition")
    return True


def _deployment(values: Json, config: str) -> Json:
    """Return the fields of the Deployment's spec that depend on values."""
    chosen = values["controllerManager"]
    gates = [kubectl.feature_gates(chosen["featureGates"])] if chosen["featureGates"] else []
    arguments = ["--config=/controller_manager_config.yaml", "--zap-log-level=2", *gates]
    container = kubectl.container("manager", chosen | chosen["manager"], arguments)
    pod = {name: chosen[name] for name in ("nodeSelector", "tolerations") if chosen[name]}
    # As in the chart: a change of the configuration restarts the pod.
    checksum = {"charts.kueue.x-k8s.io/config-checksum": hashlib.sha256(config.encode()).hexdigest()}
    template = {"metadata": {"annotations": checksum}, "spec": pod | {"containers": [container]}}
    return {"replicas": chosen["replicas"], "template": template}
