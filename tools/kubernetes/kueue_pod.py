"""What lets Kueue run in a pod as its chart has it: ServiceAccount, roles, configuration, Services, Deployment.

Made as `kueue_manifests` makes the rest: from the module's input of kustomize, under the release's names, with the few
things that the chart computes (charts/kueue/templates in sigs.k8s.io/kueue v0.19.2).
Its roles are the chart's, rule for rule.
"""

from __future__ import annotations

import hashlib
from typing import Any

import yaml

from infra.catalog import pins
from tools.kubernetes import kueue_manifests, manifests, rollout
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.builds import module_folder
from tools.kubernetes.kueue_manifests import KUEUE, NAMESPACE, RELEASE

NAME = f"{RELEASE}-controller-manager"
LABELS = {
    "app.kubernetes.io/name": "kueue",
    "app.kubernetes.io/instance": RELEASE,
    "control-plane": "controller-manager",
}
"""The Deployment's selector (templates/_helpers.tpl)."""

# The chart in the repository names a staging image, which its release rewrites; the stacks say the release's.
_RELEASED = {"repository": pins.KUEUE.image, "tag": pins.KUEUE_TAG, "pullPolicy": "IfNotPresent"}
_PATCHES = ("manager_config", "manager_webhook", "manager_visibility", "manager_metrics")
_CONFIG = f"{RELEASE}-manager-config"
_VISIBILITY = f"{RELEASE}-visibility-server"
_API_SERVICE = "apiregistration.k8s.io/v1"


def complete(*values: Json) -> Json:
    """The chart's own values, with each of these over them as Helm lays them."""
    found = manifests.read(module_folder(KUEUE) / "charts/kueue/values.yaml")[0]
    for each in ({"controllerManager": {"manager": {"image": _RELEASED}}}, *values):
        found = manifests.merged(found, each)
    return found


def image(values: Json) -> str:
    """The name of Kueue's image, by complete values."""
    found = values["controllerManager"]["manager"]["image"]
    return f"{found['repository']}:{found['tag']}"


def objects(values: Json, settings: Json) -> list[Json]:
    """ServiceAccount, roles, configuration, visibility's Service and APIs, and last the Deployment."""
    folder = module_folder(KUEUE) / "config"
    names = manifests.read(folder / "components/rbac/kustomization.yaml")[0]["resources"]
    found = manifests.read(*(folder / "components/rbac" / name for name in names))
    found += manifests.read(folder / "components/visibility/role_binding.yaml")
    found = [manifests.placed(body, NAMESPACE, f"{RELEASE}-") for body in found]
    text = yaml.safe_dump(settings)
    found.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _CONFIG, "namespace": NAMESPACE},
            "data": {"controller_manager_config.yaml": text},
        }
    )
    return [*found, *_visibility(), _deployment(values, text)]


def looks_again(api: Api) -> bool:
    """Let the kubelet mount Kueue's certificate now that Kueue has made it; NotYet before.

    By itself the kubelet does so within a minute or two. It does at once when an annotation of the pod changes
    (https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/, read 2026-11).
    """
    data = (api.get("v1", "Secret", kueue_manifests.SECRET, NAMESPACE) or {}).get("data") or {}
    if "tls.crt" not in data:
        raise NotYet("Kueue has not made it")
    for pod in rollout.pods(api, NAMESPACE, NAME):
        change = {"metadata": {"annotations": {"rdma-ray/certificate": "made"}}}
        api.patch("v1", "Pod", pod["metadata"]["name"], NAMESPACE, change)
    return True


def visible(api: Api) -> bool:
    """Whether the API server reaches Kueue's own API, by which it lists what waits; NotYet otherwise.

    While it does not, nobody can list all kinds, and no namespace can be deleted.
    """
    for body in _visibility():
        if body["kind"] == "APIService":
            now = api.get(_API_SERVICE, "APIService", body["metadata"]["name"]) or {}
            conditions = (now.get("status") or {}).get("conditions") or []
            if not any(each["type"] == "Available" and each["status"] == "True" for each in conditions):
                raise NotYet("; ".join(str(each.get("message")) for each in conditions) or "no condition")
    return True


def remove_apis(api: Api) -> None:
    """Take Kueue's own API away, before the pod that answers for it goes."""
    for body in _visibility():
        if body["kind"] == "APIService":
            api.delete(_API_SERVICE, "APIService", body["metadata"]["name"])


def _visibility() -> list[Json]:
    folder = module_folder(KUEUE) / "config/components/visibility"
    found = manifests.read(
        *(folder / f"{name}.yaml" for name in ("service", "apiservice_v1beta1", "apiservice_v1beta2"))
    )
    for body in found:
        if body["kind"] == "Service":
            body["metadata"]["name"] = _VISIBILITY
            body["spec"]["selector"] = dict(LABELS)
        else:
            body["spec"]["service"]["name"] = _VISIBILITY
    return found


def _deployment(values: Json, config: str) -> Json:
    folder = module_folder(KUEUE) / "config"
    body = next(
        each for each in manifests.read(folder / "components/manager/manager.yaml") if each["kind"] != "Namespace"
    )
    pod = body["spec"]["template"]["spec"]
    for name in _PATCHES:
        patch = manifests.read(folder / f"default/{name}_patch.yaml")[0]["spec"]["template"]["spec"]
        [change] = patch["containers"]
        pod["containers"][0] = _patched(pod["containers"][0], change)
        pod["volumes"] = [*pod.get("volumes", []), *patch.get("volumes", [])]
    for volume in pod["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = _CONFIG
    chosen = values["controllerManager"]
    body["metadata"] = {"name": NAME, "namespace": NAMESPACE, "labels": dict(LABELS)}
    body["spec"] |= {"replicas": chosen["replicas"], "selector": {"matchLabels": dict(LABELS)}}
    # As the chart does, so that another configuration is another pod.
    checksum = hashlib.sha256(config.encode()).hexdigest()
    body["spec"]["template"]["metadata"]["labels"] = dict(LABELS)
    body["spec"]["template"]["metadata"]["annotations"]["charts.kueue.x-k8s.io/config-checksum"] = checksum
    pod |= {"serviceAccountName": NAME} | {
        name: chosen[name] for name in ("nodeSelector", "tolerations") if chosen[name]
    }
    [container] = pod["containers"]
    gates = ",".join(f"{gate['name']}={str(gate['enabled']).lower()}" for gate in chosen["featureGates"])
    container["args"] += [f"--feature-gates={gates}"] if gates else []
    container |= {
        "image": image(values),
        "imagePullPolicy": chosen["manager"]["image"]["pullPolicy"],
        "resources": chosen["manager"]["resources"],
    }
    for probe in ("livenessProbe", "readinessProbe"):
        container[probe] |= chosen[probe]
    return body


def _patched(container: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """One container with kustomize's change: ports and mounts are added, arguments replaced."""
    added = ("ports", "volumeMounts")
    return container | {
        key: [*container.get(key, []), *value] if key in added else value for key, value in change.items()
    }


def selected(bodies: list[Json]) -> list[Json]:
    """What `kueue_manifests` makes, with its Service leading to the pod."""
    for body in bodies:
        if body["kind"] == "Service" and body["metadata"]["name"] == kueue_manifests.SERVICE:
            body["spec"]["selector"] = dict(LABELS)
    return bodies
