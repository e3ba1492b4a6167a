"""What Kueue's chart brings to a cluster, made from its pinned module: CRDs, webhooks, Service, Secret.

The chart's templates (charts/kueue in sigs.k8s.io/kueue v0.19.2) need Helm; the module has the same objects as input of
kustomize (config/components), and the few things that the chart computes are computed here. Release and namespace have
the names that this project gives them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.pins import KUEUE_API
from tools.kubernetes import manifests
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.builds import module_folder

KUEUE = "sigs.k8s.io/kueue"
AUTOSCALER = "k8s.io/autoscaler/cluster-autoscaler/apis"
RELEASE = "kueue"
NAMESPACE = "kueue-system"
SERVICE = f"{RELEASE}-webhook-service"
SECRET = f"{RELEASE}-webhook-server-cert"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_ADMISSION = "admissionregistration.k8s.io/v1"
_CRD = "apiextensions.k8s.io/v1"
_REMOVED_S = 60.0


def configuration(values: Json) -> Json:
    """Kueue's configuration as the chart makes it: `managerConfig.controllerManagerConfigYaml`, or the chart's own."""
    text = (values.get("managerConfig") or {}).get("controllerManagerConfigYaml")
    if text is None:
        text = manifests.read(_folder() / "charts/kueue/values.yaml")[0]["managerConfig"]["controllerManagerConfigYaml"]
    settings: Json = yaml.safe_load(text)
    settings.setdefault(
        "internalCertManagement",
        {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
    )
    return settings


def objects(values: Json, settings: Json) -> list[Json]:
    """Namespace, CRDs with their conversion, Service, Secret and webhooks; the ProvisioningRequest CRD comes first."""
    crds = _folder() / "config" / "components" / "crd"
    patches = {body["metadata"]["name"]: body for body in _conversions(crds)}
    found = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    found += manifests.read(*sorted((module_folder(AUTOSCALER) / "config" / "crd").glob("*provisioningrequests.yaml")))
    for body in manifests.read(*sorted((crds / "bases").glob("*.yaml"))):
        if patch := patches.get(body["metadata"]["name"]):
            body["spec"]["conversion"] = _in_place(patch["spec"]["conversion"])
        found.append(body)
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    found.append(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"port": 443, "targetPort": 9443}]},
        }
    )
    found.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}})
    return [*found, *_webhooks(values, settings)]


def mount(api: Api, folder: Path) -> bool:
    """Write the files of Kueue's Secret into `folder`, as the kubelet does for a pod; NotYet before it is filled."""
    data = (api.get("v1", "Secret", SECRET, NAMESPACE) or {}).get("data") or {}
    if not {"ca.crt", "tls.crt", "tls.key"} <= data.keys():
        raise NotYet("the Secret is empty")
    for name, content in data.items():
        file = folder / name
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(content))
    return True


def answers(api: Api) -> bool:
    """Whether the API server reaches Kueue's webhooks, seen by a dry run that has to pass one."""
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "is-kueue-there"}}
    try:
        api.apply(flavor, dry_run=True)
    except ApiError as problem:
        if problem.status != 500:
            raise
        raise NotYet(problem.message) from problem
    return True


def remove_webhooks(api: Api) -> None:
    """Take the webhooks away first: without them every Job and Pod would be refused once Kueue is gone."""
    for kind in _WEBHOOKS:
        api.delete(_ADMISSION, kind, _webhook_name(kind))


def remove_the_rest(api: Api) -> None:
    """Delete Service, Secret and CRDs, with every object of these kinds; the namespace is the installer's.

    Raises:
        TimeoutError: an object's finalizer waits for Kueue, which is gone; the message says which kind.
    """
    api.delete("v1", "Service", SERVICE, NAMESPACE)
    api.delete("v1", "Secret", SECRET, NAMESPACE)
    names = [
        body["metadata"]["name"] for body in manifests.read(*(_folder() / "config/components/crd/bases").glob("*.yaml"))
    ]
    for name in names:
        api.delete(_CRD, "CustomResourceDefinition", name)

    def gone() -> bool:
        left = [name for name in names if api.get(_CRD, "CustomResourceDefinition", name)]
        if left:
            raise NotYet(f"still there: {', '.join(left)}")
        return True

    api.until("Kueue's kinds removed", gone, _REMOVED_S)
    api.kinds()


def _folder() -> Path:
    return module_folder(KUEUE)


def _conversions(crds: Path) -> list[Json]:
    # Not every patch of the folder is in use; kustomize reads those that this list names.
    listed = manifests.read(crds / "kustomization.yaml")[0]["patches"]
    return manifests.read(*(crds / patch["path"] for patch in listed))


def _webhooks(values: Json, settings: Json) -> Iterator[Json]:
    folder = _folder() / "config" / "components" / "webhook"
    # Only some of the webhooks look at namespaces; kustomize's replacements and the chart name the same ones.
    selective = set(re.findall(r"name=([a-z]+\.kb\.io)", (folder / "kustomization.yaml").read_text()))
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    namespaces = settings.get("managedJobsNamespaceSelector", {"matchExpressions": [elsewhere]})
    policy = (values.get("mutatingWebhook") or {}).get("reinvocationPolicy", "Never")
    frameworks = settings["integrations"]["frameworks"]
    for body in manifests.read(folder / "manifests.yaml"):
        body["metadata"]["name"] = _webhook_name(body["kind"])
        for webhook in body["webhooks"]:
            webhook["clientConfig"] = _in_place(webhook["clientConfig"])
            if webhook["name"] in selective:
                webhook["namespaceSelector"] = namespaces
            # "mpod.kb.io": what the chart lets pass where the framework is off and Kueue may be away.
            if (framework := webhook["name"][1:].partition(".")[0]) in ("pod", "deployment", "statefulset"):
                webhook["failurePolicy"] = "Fail" if framework in frameworks else "Ignore"
            if body["kind"] == _WEBHOOKS[0]:
                webhook["reinvocationPolicy"] = policy
        yield body


def _webhook_name(kind: str) -> str:
    return f"{RELEASE}-{'mutating' if kind == _WEBHOOKS[0] else 'validating'}-webhook-configuration"


def _in_place(part: Any) -> Any:
    """`part` with the Service's real name and namespace instead of kustomize's short ones."""
    if isinstance(part, dict):
        if part.get("name") == "webhook-service":
            return part | {"name": SERVICE, "namespace": NAMESPACE}
        return {key: _in_place(value) for key, value in part.items()}
    return part
