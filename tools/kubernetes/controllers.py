"""The controllers beside a control plane: kwok, KubeRay's operator and Kueue, the real programs of pinned modules.

What a Helm chart would set in the cluster reaches the program from the same values; what only concerns the pod that the
program would run in (image, resources, node selector, replicas) has no meaning here. They run as the administrator, so
the RBAC rules that the charts bring are not shown to suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import requests
import yaml

from infra.local import loopback
from tools.kubernetes import kuberay_manifests, kueue_manifests, manifests
from tools.kubernetes.api import Json, NotYet
from tools.kubernetes.builds import module_folder

if TYPE_CHECKING:
    from tools.kubernetes.control_plane import ControlPlane

KWOK = "sigs.k8s.io/kwok"
_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
)
_READY_S = 90.0
# Apart from the Services' range, so that nobody takes a pod for a Service.
_POD_ADDRESSES = "10.244.0.0/16"


def start_kwok(plane: ControlPlane, *, complete_jobs: bool) -> None:
    """Start kwok for every node, by the stages of its module: nodes get ready, pods run, a Job's pods succeed at once.

    Without `complete_jobs` a Job's pods run until something else ends them.
    """
    stages = [stage for stage in _STAGES if complete_jobs or not stage.endswith("pod-complete")]
    folder = module_folder(KWOK) / "kustomize" / "stage"
    config = plane.work / "kwok.yaml"
    config.write_text("\n---\n".join((folder / f"{stage}.yaml").read_text() for stage in stages))
    flags = ["--manage-all-nodes=true", "--node-lease-duration-seconds=40", f"--cidr={_POD_ADDRESSES}"]
    program = plane.programs("kwok")["kwok"]
    plane.start_program("kwok", [program, f"--kubeconfig={plane.kubeconfig}", f"--config={config}", *flags])


def start_kuberay(plane: ControlPlane, values: Json | None, *, dashboard_proxy: str | None) -> None:
    """Apply KubeRay's CRDs and start its operator; returns when it is ready.

    `values` are those of the chart kuberay-operator 1.6.2 that reach the program (its templates/deployment.yaml at
    002c26b0, read on 2026-11-21). `dashboard_proxy` is an HTTP proxy ("http://127.0.0.1:PORT") which the operator asks
    for the Ray dashboards, http://HEAD-SERVICE.NAMESPACE.svc.cluster.local:8265: names of Services do not resolve here.
    """
    program = plane.programs("ray-operator")["ray-operator"]
    manifests.install(plane.api, kuberay_manifests.definitions())
    probe = loopback.free_ports(1)[0]
    flags = [
        f"--kubeconfig={plane.kubeconfig}",
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address=127.0.0.1:{probe}",
    ]
    environment = {"ENABLE_WEBHOOKS": "false"} | dict(_environment(values or {}))
    if dashboard_proxy:
        environment |= {"HTTP_PROXY": dashboard_proxy, "NO_PROXY": "127.0.0.1"}
    plane.start_program("ray-operator", [program, *flags, *kuberay_manifests.flags(values or {})], environment)
    _wait_until_ready(plane, "ray-operator", probe)


def stop_kuberay(plane: ControlPlane) -> None:
    """End the operator. Its CRDs stay, as they do when Helm uninstalls a chart that keeps them in `crds/`."""
    plane.stop_program("ray-operator")


def start_kueue(plane: ControlPlane, values: Json | None) -> None:
    """Apply what Kueue's chart brings, and the ProvisioningRequest CRD, and start Kueue; returns when it is ready.

    `values` are those of the chart kueue 0.19.2 that reach the program: `managerConfig.controllerManagerConfigYaml`,
    `controllerManager.featureGates`, `mutatingWebhook.reinvocationPolicy`. Webhooks and conversions are Kueue's own,
    with the certificate that it makes; only the way from the API server to them is a stand-in (`pod_network`).
    """
    program = plane.programs("kueue")["kueue"]
    settings = kueue_manifests.configuration(values or {})
    webhook, probe = loopback.free_ports(2)
    # The kubelet would mount the Secret that Kueue fills in; here its files are written once they are there.
    certificates = plane.work / "kueue-certificates"
    certificates.mkdir(exist_ok=True)
    manifests.install(plane.api, kueue_manifests.objects(values or {}, settings))
    service = plane.api.get("v1", "Service", kueue_manifests.SERVICE, kueue_manifests.NAMESPACE) or {}
    plane.route(f"{service['spec']['clusterIP']}:443", f"127.0.0.1:{webhook}")
    settings |= {
        "namespace": kueue_manifests.NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
    }
    config = plane.work / "kueue.yaml"
    config.write_text(yaml.safe_dump(settings))
    gates = {
        gate["name"]: gate["enabled"] for gate in (values or {}).get("controllerManager", {}).get("featureGates", [])
    }
    # Its extra API server keeps its certificate in /visibility, which only a container has.
    gates["VisibilityOnDemand"] = False
    flag = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
    flags = [f"--config={config}", f"--kubeconfig={plane.kubeconfig}", f"--feature-gates={flag}", "--zap-log-level=2"]
    plane.start_program("kueue", [program, *flags])
    plane.api.until("Kueue's own certificate", lambda: kueue_manifests.mount(plane.api, certificates), _READY_S)
    _wait_until_ready(plane, "kueue", probe)
    plane.api.until("Kueue's webhooks", lambda: kueue_manifests.answers(plane.api), _READY_S)


def stop_kueue(plane: ControlPlane) -> None:
    """End Kueue and take away what its chart brought, as `helm uninstall` does: webhooks, Service, Secret and CRDs."""
    kueue_manifests.remove_webhooks(plane.api)
    plane.stop_program("kueue")
    kueue_manifests.remove_the_rest(plane.api)


def _environment(values: Json) -> Iterator[tuple[str, str]]:
    for variable in values.get("env") or []:
        yield variable["name"], str(variable["value"])


def _wait_until_ready(plane: ControlPlane, name: str, port: int) -> None:
    def look() -> bool:
        try:
            answer = requests.get(f"http://127.0.0.1:{port}/readyz", timeout=5, proxies={"http": ""})
        except requests.RequestException as problem:
            raise NotYet("nothing listens") from problem
        if answer.status_code != 200:
            raise NotYet(answer.text.strip())
        return True

    plane.api.until(f"{name} ready", look, _READY_S)
