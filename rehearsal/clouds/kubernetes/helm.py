"""Helm releases: the objects that they install and delete, and Helm's refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.constraints import rule
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.kubernetes.connection import OWNER, POOL_LABELS, here, open_pools
from rehearsal.clouds.kubernetes.identity import PRESENT, api, conflict
from rehearsal.clouds.kubernetes.pods import to
from rehearsal.clouds.kubernetes.rules import KNOWN, chart_of
from rehearsal.engine.kind import Call, Json, ResourceKind, value_at

_GUIDE = "ray-project/kuberay: helm-chart/kuberay-operator/README.md, v1.6.2"


@rule(
    refused="pulumi/pulumi-kubernetes #2113, 2022-07-31: the chart or version is not in the repository",
    accepted=f"{_GUIDE}; OCI: kubernetes-sigs/kueue ff69552e: charts/kueue/README.md",
    status="helm",
)
def chart_exists(call: Call) -> str | None:
    """The chart and its version exist in the repository. A version is set, because the newest one changes."""
    chart, wanted = chart_of(call.inputs), call.inputs.get("version")
    if chart is not None and wanted in chart["versions"]:
        return None
    repository = (call.inputs.get("repositoryOpts") or {}).get("repo")
    words = f'chart "{call.inputs.get("chart")}" version "{wanted}" not found in {repository} repository'
    return f"failed to pull chart: {words}; the simulation knows {', '.join(KNOWN)}"


@rule(
    refused="ministryofjustice/modernisation-platform-environments #17679, 2026-07-07: no node for a pod in time",
    accepted=_GUIDE,
    status="timeout",
)
def release_fits_a_node(call: Call) -> str | None:
    """Helm waits until the chart's pods run, which needs a node without GPUs."""
    chart = chart_of(call.inputs)
    if chart is None or not chart.get("node") or call.inputs.get("skipAwait"):
        return None
    selector = value_at(call.inputs, "values.nodeSelector") or {}
    wanted = next((str(selector[key]) for key in POOL_LABELS if selector.get(key)), None)
    open_ = list(open_pools(call))
    if wanted in open_ or (wanted is None and open_):
        return None
    words = f'Helm release "{call.id}" was created, but failed to initialize completely: context deadline exceeded'
    return f"{words} (no node pool {wanted or 'of the cluster'} takes pods without tolerations)"


@rule(
    "delete",
    refused="k8snetworkplumbingwg/sriov-network-operator #174, 2021-08-06: objects terminate forever without it",
    accepted="kubernetes-sigs/kueue #2921, 2024-08-28: objects first, while the controller runs",
    status="timeout",
)
def operator_outlives_its_objects(call: Call) -> str | None:
    """Objects with a finalizer of an operator cannot be deleted after it."""
    chart = chart_of(call.live)
    for type_, id_, _ in call.state.all() if chart is not None else ():
        kind = api(type_) if type_.startswith("kubernetes:") else None
        if chart and kind and kind.group in chart.get("groups", ()) and kind.kind in chart["finalized"]:
            return f"{kind.kind} {id_} would stay in Terminating: only {chart['name']} removes its finalizer"
    return None


def release_id(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return the id of a Helm release: "namespace/name"."""
    return f"{inputs.get('namespace') or config.get('namespace') or 'default'}/{inputs.get('name') or ''}"


def installed(call: Call) -> Json:
    """Return the release's status, and create its namespace."""
    cluster, _ = here(call)
    namespace, _, name = call.id.partition("/")
    missing = namespace not in PRESENT and call.state.get(identity.NAMESPACE, namespace) is None
    if call.inputs.get("createNamespace") and missing:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}, OWNER: cluster}
        call.state.put(identity.NAMESPACE, namespace, made)
    status = {
        "status": "deployed",
        "name": name,
        "namespace": namespace,
        "chart": str(call.inputs.get("chart")).rpartition("/")[2],
        "version": str(call.inputs.get("version") or ""),
        "revision": ((call.live.get("status") or {}).get("revision") or 0) + 1,
    }
    return {OWNER: cluster, "namespace": namespace, "status": status}


def goes_too(call: Call, type_: str, _live: Json) -> bool:
    """Return whether an object is deleted with the release, because its CRD is. A namespace that Helm created stays."""
    chart = chart_of(call.live)
    if chart is None or chart.get("keeps") or not type_.startswith("kubernetes:"):
        return False
    return api(type_).group in chart.get("groups", ())


def _namespace(value: Any, inputs: Json, _config: Mapping[str, Any]) -> str | None:
    return None if inputs.get("createNamespace") or value in PRESENT else str(value)


KIND = ResourceKind(
    type=identity.RELEASE,
    identify=release_id,
    compute=installed,
    replace_on=frozenset({"name", "namespace"}),
    references=(to("namespace", identity.NAMESPACE, _namespace),),
    rules=(chart_exists, release_fits_a_node, operator_outlives_its_objects),
    cascade=goes_too,
    conflict=conflict,
    awaited=True,
)
