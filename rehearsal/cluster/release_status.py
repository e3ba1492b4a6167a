"""Status of Helm releases: the provider waits until the cloud controllers report that a release runs.

The provider writes the release with its values into the cloud state. The cloud controllers start the real controller of
`kuberay-operator` and of `kueue` and report "ready". Charts whose pods need real hardware (device plugins) report
"simulated". After a deletion they stop the controller and report "stopped".
"""

from __future__ import annotations

from rehearsal.engine.kind import Json
from rehearsal.engine.state import View
from tools.kubernetes.api import Api

SETTING = "controllers"
"""Setting of the cloud state: id of the release ("namespace/name") to status and message."""
SOURCE = "helm 3.18: pkg/action; pulumi-kubernetes: provider/pkg/provider/helm_release.go, 94977969, 2026-07-01"


def set_status(state: View, id_: str, status: str, words: str = "") -> None:
    """Set the status of a release ("starting", "ready", "simulated", "failed", "stopped"), and the reason or chart."""
    state.set(SETTING, {**state.setting(SETTING, {}), id_: (status, words)})


def status_of(state: View, id_: str) -> tuple[str, str]:
    """Return the status of a release, "" if it is not seen yet, with the reason or chart."""
    status, words = state.setting(SETTING, {}).get(id_, ("", ""))
    return status, words


def prepare(server: Api, inputs: Json) -> None:
    """Create the release's namespace if the release requests it."""
    namespace = inputs.get("namespace")
    if inputs.get("createNamespace") and namespace:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"name": namespace}}}
        server.apply(body, manager="helm")
