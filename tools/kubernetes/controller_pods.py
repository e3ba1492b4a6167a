"""KubeRay's operator and Kueue in pods of a cluster of real nodes, as a user has them.

Real: the programs of the pinned modules; Deployment, ServiceAccount, roles and Service as the charts make them, under
the charts' names; Kueue's certificate, which it makes itself, and the API server's way to its webhooks. Stand-ins: for
Helm, this; for the images, others of the same names that hold the program and nothing else, as the projects' own do
on a distroless base (ray-operator/Dockerfile at KubeRay 1.6.2, Dockerfile at Kueue 0.19.2).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.kubernetes import images_archive, kuberay_manifests, kueue_manifests, kueue_pod, manifests, rollout
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.images_archive import Image
from tools.kubernetes.images_files import File

READY_S = 180.0
_GONE_S = 60.0
# Readiness is asked for as often as it can be: whoever waits for it waits for the program, not for the probe.
_SOON = {"readinessProbe": {"initialDelaySeconds": 0, "periodSeconds": 1}}
_USER = "65532:65532"


def image(name: str, program: Path) -> Image:
    """An image with one static program, started as /manager by the user that the projects' own images have."""
    files = [
        File("/manager", source=program, executable=True),
        File(
            "/etc/passwd",
            text="root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n",
        ),
        File("/etc/group", text="root:x:0:\nnonroot:x:65532:\n"),
    ]
    return Image([name], [images_archive.layer(files, root=True)], {"User": _USER, "Entrypoint": ["/manager"]})


def start_kuberay(api: Api, values: Json | None, give: Callable[[str], None]) -> None:
    """Apply what the release of kuberay-operator brings; returns when its pod is ready.

    `values` are the chart's. `give` is called with the name of the image before anything needs it.
    """
    complete = kuberay_manifests.complete(values or {}, _SOON)
    give(kuberay_manifests.image(complete))
    # Helm, too, waits for the definitions; an operator that misses one looks again after ten seconds.
    manifests.install(api, kuberay_manifests.definitions())
    manifests.install(api, kuberay_manifests.objects(complete))
    rollout.until_done(api, kuberay_manifests.NAMESPACE, kuberay_manifests.NAME, READY_S)


def stop_kuberay(api: Api) -> None:
    """Take away what the release brought, as `helm uninstall` does: the CRDs stay, and so does the namespace."""
    _remove(api, kuberay_manifests.objects(kuberay_manifests.complete()))
    _until_gone(api, kuberay_manifests.NAMESPACE, kuberay_manifests.LABELS)


def start_kueue(api: Api, values: Json | None, give: Callable[[str], None]) -> None:
    """Apply what the release of kueue brings, and the ProvisioningRequest CRD; returns when its webhooks answer."""
    complete = kueue_pod.complete(values or {}, {"controllerManager": _SOON})
    settings = kueue_manifests.configuration(complete)
    give(kueue_pod.image(complete))
    # Until the pod answers, the webhooks refuse what they are asked about; its own objects are none of that.
    manifests.install(api, kueue_pod.selected(kueue_manifests.objects(complete, settings)))
    manifests.install(api, kueue_pod.objects(complete, settings))
    api.until("Kueue's own certificate", lambda: kueue_pod.looks_again(api), READY_S)
    rollout.until_done(api, kueue_manifests.NAMESPACE, kueue_pod.NAME, READY_S)
    api.until("Kueue's webhooks", lambda: kueue_manifests.answers(api), READY_S)
    api.until("Kueue's own API", lambda: kueue_pod.visible(api), READY_S)


def stop_kueue(api: Api) -> None:
    """Take away what the release brought, as `helm uninstall` does: webhooks, API, Deployment, roles and CRDs."""
    kueue_manifests.remove_webhooks(api)
    kueue_pod.remove_apis(api)
    complete = kueue_pod.complete()
    _remove(api, kueue_pod.objects(complete, kueue_manifests.configuration(complete)))
    _until_gone(api, kueue_manifests.NAMESPACE, kueue_pod.LABELS)
    kueue_manifests.remove_the_rest(api)


def _remove(api: Api, bodies: list[Json]) -> None:
    for body in reversed(bodies):
        if body["kind"] != "Namespace":
            metadata = body["metadata"]
            api.delete(body["apiVersion"], body["kind"], metadata["name"], metadata.get("namespace"))


def _until_gone(api: Api, namespace: str, labels: dict[str, str]) -> None:
    selector = ",".join(f"{key}={value}" for key, value in labels.items())

    def gone() -> bool:
        if left := api.list("v1", "Pod", namespace, selector):
            raise NotYet(f"still there: {', '.join(pod['metadata']['name'] for pod in left)}")
        return True

    api.until("the controller's pod to be gone", gone, _GONE_S)
