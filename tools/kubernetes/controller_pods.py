"""KubeRay's operator and Kueue in pods of a cluster of real nodes, as `helm install` installs them.

Programs, manifests, and Kueue's certificate and webhooks are real. The images contain only the program; the
projects' own add a distroless base (ray-operator/Dockerfile at KubeRay 1.6.2, Dockerfile at Kueue 0.19.2).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from infra.catalog.names import KUBERAY_NAMESPACE
from infra.kubernetes.queue_objects import KUEUE_NAMESPACE
from tools.kubernetes import image_archive, kubectl, kuberay, kueue
from tools.kubernetes.api import Api, Json
from tools.kubernetes.image_archive import File, Image

READY_S = 180.0
# Probe every second, so that a wait measures the program and not the probe.
_PROBE_OFTEN = {"readinessProbe": {"initialDelaySeconds": 0, "periodSeconds": 1}}
# User of the projects' own images.
_NONROOT = 65532


def controller_image(name: str, program: Path) -> Image:
    """Return an image with one static program, started as /manager by a normal user."""
    users = f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{_NONROOT}:{_NONROOT}::/home/nonroot:/sbin/nologin\n"
    files = [
        File("/manager", source=program, executable=True),
        File("/etc/passwd", text=users),
        File("/etc/group", text=f"root:x:0:\nnonroot:x:{_NONROOT}:\n"),
    ]
    config = {"User": f"{_NONROOT}:{_NONROOT}", "Entrypoint": ["/manager"]}
    return Image([name], [image_archive.layer(files, root=True)], config)


class PodOperators:
    """Installs and uninstalls KubeRay and Kueue in pods of one cluster.

    Args:
        load: Receives the name of an image, and the program that it contains, before a pod needs it.
        say: Receives progress.
    """

    def __init__(self, api: Api, load: Callable[[str, str], None], say: Callable[[str], None]) -> None:
        self._api = api
        self._load = load
        self._say = say
        self._kuberay = kuberay.complete()

    def start_kuberay(self, values: Json | None = None) -> None:
        """Install the chart kuberay-operator, and wait until its pod is ready."""
        began, api = time.monotonic(), self._api
        self._kuberay = complete = kuberay.complete(values or {}, _PROBE_OFTEN)
        self._load(kubectl.image(complete["image"]), "ray-operator")
        objects = kuberay.objects(complete)
        crds = ("CustomResourceDefinition", "Namespace")
        # As Helm: an operator without a CRD tries again after ten seconds.
        kubectl.install(api, (body for body in objects if body["kind"] in crds))
        kubectl.install(api, (body for body in objects if body["kind"] not in crds))
        kubectl.rollout_done(api, KUBERAY_NAMESPACE, kuberay.NAME, READY_S)
        self._say(f"KubeRay's operator runs in a pod, after {time.monotonic() - began:.1f} s")

    def grant_kuberay(self) -> None:
        """Create the operator's roles again, after the namespace that it watches has been created again."""
        kubectl.install(self._api, (body for body in kuberay.objects(self._kuberay) if "Role" in body["kind"]))

    def stop_kuberay(self) -> None:
        """Uninstall the release as `helm uninstall` does: its CRDs and its namespace stay."""
        objects = kuberay.objects(self._kuberay)
        kubectl.remove(self._api, (body for body in objects if body["kind"] != "CustomResourceDefinition"))

    def start_kueue(self, values: Json | None = None) -> None:
        """Install the chart kueue, and wait until its webhooks and its API answer."""
        began, api = time.monotonic(), self._api
        complete = kueue.complete(values or {}, {"controllerManager": _PROBE_OFTEN})
        self._load(kubectl.image(complete["controllerManager"]["manager"]["image"]), "kueue")
        # Until the pod is ready, the webhooks reject requests, but not for these objects.
        kubectl.install(api, kueue.objects(complete))
        api.until("Kueue's certificate", lambda: kueue.mount_certificate(api), READY_S)
        kubectl.rollout_done(api, KUEUE_NAMESPACE, kueue.NAME, READY_S)
        api.until("Kueue's webhooks", lambda: kueue.webhooks_answer(api), READY_S)
        api.until("Kueue's own API", lambda: kueue.api_answers(api), READY_S)
        self._say(f"Kueue runs in a pod, after {time.monotonic() - began:.1f} s")

    def stop_kueue(self) -> None:
        """Uninstall the release, as `helm uninstall` does."""
        kueue.uninstall(self._api)
