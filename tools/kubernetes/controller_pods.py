"""KubeRay's operator and Kueue in pods of a cluster of real nodes, as `helm install` installs them.

The programs of the pinned modules, the manifests, Kueue's certificate and the connections to its webhooks are real. The
images have the projects' names and contain only the program; the projects' own add a distroless base
(ray-operator/Dockerfile at KubeRay 1.6.2, Dockerfile at Kueue 0.19.2).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infra.kubernetes.queue_objects import KUEUE_NAMESPACE
from tools.kubernetes import image_archive, kuberay, kueue, manifests
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.image_archive import File, Image

READY_S = 180.0
_GONE_S = 60.0
# Probe every second, so that a wait measures the program and not the probe.
_PROBE_OFTEN = {"readinessProbe": {"initialDelaySeconds": 0, "periodSeconds": 1}}
# User of the projects' own images.
_NONROOT = 65532


def image(name: str, program: Path) -> Image:
    """Return an image with one static program, started as /manager by the user of the projects' own images."""
    users = f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{_NONROOT}:{_NONROOT}::/home/nonroot:/sbin/nologin\n"
    files = [
        File("/manager", source=program, executable=True),
        File("/etc/passwd", text=users),
        File("/etc/group", text=f"root:x:0:\nnonroot:x:{_NONROOT}:\n"),
    ]
    config = {"User": f"{_NONROOT}:{_NONROOT}", "Entrypoint": ["/manager"]}
    return Image([name], [image_archive.layer(files, root=True)], config)


def start_kuberay(api: Api, values: Json | None, load: Callable[[str], None]) -> None:
    """Install the release kuberay-operator with the values of its chart, and wait until its pod is ready.

    `load` receives the name of the image before a pod needs it.
    """
    complete = kuberay.complete(values or {}, _PROBE_OFTEN)
    load(kuberay.image(complete))
    objects = kuberay.objects(complete)
    crds = ("CustomResourceDefinition", "Namespace")
    # Helm also waits for the CRDs; an operator without one tries again after ten seconds.
    manifests.install(api, (body for body in objects if body["kind"] in crds))
    manifests.install(api, (body for body in objects if body["kind"] not in crds))
    manifests.rollout_done(api, kuberay.NAMESPACE, kuberay.NAME, READY_S)


def stop_kuberay(api: Api) -> None:
    """Uninstall the release as `helm uninstall` does: its CRDs and its namespace stay."""
    objects = kuberay.objects(kuberay.complete())
    manifests.remove(api, (body for body in objects if body["kind"] != "CustomResourceDefinition"))
    _wait_until_gone(api, kuberay.NAMESPACE, "app.kubernetes.io/instance=kuberay-operator")


def start_kueue(api: Api, values: Json | None, load: Callable[[str], None]) -> None:
    """Install the release kueue with the values of its chart, and wait until its webhooks and its API answer."""
    complete = kueue.complete(values or {}, {"controllerManager": _PROBE_OFTEN})
    load(kueue.image(complete))
    # Until the pod is ready, the webhooks reject requests; none of them is for Kueue's own objects.
    manifests.install(api, kueue.objects(complete))
    api.until("Kueue's certificate", lambda: kueue.mount_certificate(api), READY_S)
    manifests.rollout_done(api, KUEUE_NAMESPACE, kueue.NAME, READY_S)
    api.until("Kueue's webhooks", lambda: kueue.webhooks_answer(api), READY_S)
    api.until("Kueue's own API", lambda: kueue.api_answers(api), READY_S)


def stop_kueue(api: Api) -> None:
    """Uninstall the release as `helm uninstall` does: webhooks, API, Deployment, roles and CRDs."""
    kueue.remove_callbacks(api)
    objects = kueue.objects(kueue.complete())
    manifests.remove(api, (body for body in objects if body["kind"] == "Deployment"))
    _wait_until_gone(api, KUEUE_NAMESPACE, "control-plane=controller-manager")
    manifests.remove(api, objects)


def _wait_until_gone(api: Api, namespace: str, selector: str) -> None:
    def gone() -> bool:
        if left := api.list("v1", "Pod", namespace, selector):
            raise NotYet(f"still there: {', '.join(pod['metadata']['name'] for pod in left)}")
        return True

    api.until("the controller's pod to be gone", gone, _GONE_S)
