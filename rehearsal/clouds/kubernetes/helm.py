"""Helm releases: the objects of a chart, their deletion, and Helm's refusals."""

from __future__ import annotations

import re
from typing import Any

from rehearsal.clouds.kind import Call, Json, Kind, Refusal, value_at
from rehearsal.clouds.kubernetes import charts, queues
from rehearsal.clouds.kubernetes import kueue_shapes as kueue
from rehearsal.clouds.kubernetes.connection import OWNER, POOL_LABELS, here, pools
from rehearsal.clouds.kubernetes.identity import DEFINITION, NAMESPACE, RELEASE, Api, api, conflict, release_id
from rehearsal.clouds.kubernetes.naming import exists, second_cluster

HELM = "helm 3.18: pkg/action and pkg/repo; wording unverified, 2026-11"
RELEASES = "pulumi-kubernetes: provider/pkg/provider/helm_release.go, 94977969, 2026-07-01"
LONGEST_NAME = 53
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_BY = "__release"
"""Key of a live object with the release that created it."""


def name_unfit(call: Call) -> Refusal | None:
    """Names of the chart's objects contain the release's name, so it is short."""
    its = str(call.inputs.get("name") or "")
    if call.verb == "delete" or (its and len(its) <= LONGEST_NAME and _NAME.fullmatch(its)):
        return None
    words = (
        f"release name {its!r} is invalid: it must match regex and the length must not be longer than {LONGEST_NAME}"
    )
    return Refusal("helm", words, HELM)


def chart_unknown(call: Call) -> Refusal | None:
    """The chart exists in its repository."""
    if call.verb == "delete" or _chart(call) is not None:
        return None
    repository = (call.inputs.get("repositoryOpts") or {}).get("repo") or "stable"
    words = f'chart "{call.inputs.get("chart")}" not found in {repository} repository'
    return Refusal("helm", f"{words}; the simulation knows {', '.join(each.name for each in charts.CHARTS)}", HELM)


def version_unknown(call: Call) -> Refusal | None:
    """The version of the chart exists in its repository, and is pinned: the newest one changes."""
    chart, version = _chart(call), call.inputs.get("version")
    if call.verb == "delete" or chart is None or version in chart.versions:
        return None
    if not version:
        words = f'chart "{chart.name}": no version is given, and the newest is another one tomorrow'
        return Refusal("rehearsal", words, "rdma-ray's choice, 2026-11")
    if chart.repository.startswith("oci://"):
        words = f'failed to perform "FetchReference" on source: {chart.repository[6:]}:{version}: not found'
        return Refusal("helm", words, HELM)
    return Refusal("helm", f'chart "{chart.name}" version "{version}" not found in {chart.repository} repository', HELM)


def namespace_missing(call: Call) -> Refusal | None:
    """The namespace exists, or the release creates it."""
    wanted = _namespace(call)
    if call.verb != "create" or call.inputs.get("createNamespace") or exists(call, wanted):
        return None
    return Refusal("404 NotFound", f'create: failed to create: namespaces "{wanted}" not found', HELM)


def no_node(call: Call) -> Refusal | None:
    """Helm waits until the chart's pods run, which needs a node without GPUs."""
    chart = _chart(call)
    if call.verb == "delete" or chart is None or not chart.node or call.inputs.get("skipAwait"):
        return None
    wanted = value_at(call.inputs, "values.nodeSelector") or {}
    if any(pool.open and pool.takes(wanted) for pool in pools(call)):
        return None
    named = next((str(wanted[key]) for key in POOL_LABELS if wanted.get(key)), None)
    why = f"context deadline exceeded (no node pool {named or 'of the cluster'} takes pods without tolerations)"
    words = f'Helm release "{call.id}" was created, but failed to initialize completely. Use Helm CLI to investigate'
    if call.inputs.get("atomic"):
        words = f"release {call.inputs.get('name')} failed, and has been uninstalled due to atomic being set"
    return Refusal("timeout", f"{words}: {why}", f"{RELEASES}; {HELM}")


def kinds_in_use(call: Call) -> Refusal | None:
    """CRDs in a chart's templates are deleted with the release, and so are their objects, whose finalizers have no
    controller."""
    chart = _chart(call)
    if call.verb != "delete" or chart is None or chart.keeps or chart.name != "kueue":
        return None
    for type_, id_, _ in call.state.all():
        kind = api(type_) if type_.startswith("kubernetes:") else None
        if kind is not None and kind.group == kueue.GROUP and kind.kind in queues.HELD:
            words = (
                f"customresourcedefinitions {kind.resource} would be Terminating for ever: {kind.kind} {id_} has the "
            )
            return Refusal("timeout", f"{words}finalizer {queues.FINALIZER}", f"{chart.source}; {queues.CONTROLLERS}")
    return None


def installed(call: Call) -> Json:
    """Return the release's status, and create the namespace and the CRDs of the chart."""
    cluster, _ = here(call)
    chart = _chart(call)
    version = str(call.inputs.get("version") or "")
    namespace = _namespace(call)
    if call.inputs.get("createNamespace") and not exists(call, namespace):
        call.state.put(NAMESPACE, namespace, _made(call, Api("", "v1", "Namespace"), namespace, {}))
    for group, kind, versions in chart.definitions if chart is not None else ():
        own = Api(group, versions[-1], kind)
        if call.state.get(DEFINITION, own.resource) is None:
            spec = {
                "group": group,
                "names": {"kind": kind, "plural": own.plural},
                "versions": [{"name": each, "served": True} for each in versions],
            }
            definition = Api("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
            call.state.put(DEFINITION, own.resource, _made(call, definition, own.resource, {"spec": spec}))
    before = (call.live.get("status") or {}).get("revision") or 0
    return {
        OWNER: cluster,
        "namespace": namespace,
        "status": {
            "status": "deployed",
            "name": str(call.inputs.get("name") or ""),
            "namespace": namespace,
            "chart": chart.name if chart is not None else "",
            "version": version,
            "appVersion": chart.versions.get(version, "") if chart is not None else "",
            "revision": before + 1,
        },
    }


def goes_too(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the release: a CRD outside the crds folder, or an object of its kind.

    A namespace that Helm created stays, as with Helm.
    """
    chart = _chart(call)
    if chart is None or chart.keeps or not type_.startswith("kubernetes:"):
        return False
    groups = {group for group, _, _ in chart.definitions}
    if type_ == DEFINITION:
        return (live.get("spec") or {}).get("group") in groups and live.get(_BY) == call.id
    return api(type_).group in groups


def _made(call: Call, kind: Api, name: str, more: Json) -> Json:
    cluster, _ = here(call)
    return {
        "apiVersion": kind.written,
        "kind": kind.kind,
        "metadata": {"name": name},
        OWNER: cluster,
        _BY: call.id,
        **more,
    }


def _chart(call: Call) -> charts.Chart | None:
    options: dict[str, Any] = call.inputs.get("repositoryOpts") or {}
    return charts.find(str(call.inputs.get("chart") or ""), str(options.get("repo") or ""))


def _namespace(call: Call) -> str:
    return call.id.partition("/")[0] or "default"


RULES = (second_cluster, name_unfit, chart_unknown, version_unknown, namespace_missing, no_node, kinds_in_use)

KIND = Kind(
    type=RELEASE,
    identify=release_id,
    compute=installed,
    replace_on=frozenset({"name", "namespace"}),
    rules=RULES,
    cascade=goes_too,
    conflict=conflict,
    awaited=True,
)
