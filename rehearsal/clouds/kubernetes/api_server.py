"""Dry runs and API discovery of a simulated cluster, for the rehearsal's kubectl.

An API server checks the fields, the namespace and the name of an object, and of what a pod names only the
ServiceAccount and the PriorityClass (Kubernetes: plugin/pkg/admission, 1.36.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.kubernetes import identity, rules, schemas
from rehearsal.engine.kind import Json, Refusal, value_at
from rehearsal.engine.state import View

_VERSIONS = {"ray.io": ("v1",), identity.KUEUE: ("v1beta1", "v1beta2"), "monitoring.coreos.com": ("v1",)}
"""Versions that the CRDs of the pinned charts and of the Prometheus Operator serve, by group."""


def served(state: View, group: str, version: str) -> bool:
    """Return whether the API server has a version of a custom group."""
    return version in _VERSIONS.get(group, ()) and rules.installed(group, state)


def refusal(state: View, path: str, body: Json) -> Refusal | None:
    """Return why an object cannot be created at a path, with the reason of the API server's status; None if it can."""
    group, _, version = str(body["apiVersion"]).rpartition("/")
    type_ = f"kubernetes:{group or 'core'}/{version}:{body['kind']}"
    kind, metadata = identity.api(type_), body["metadata"]
    root, _, rest = path.partition("/namespaces/")
    namespace, _, plural = rest.partition("/")
    known = not schemas.unknown(kind) and (served(state, group, version) if kind.custom else True)
    if root != f"/api{'s' if group else ''}/{body['apiVersion']}" or plural != kind.plural or not known:
        return _no("NotFound", "the server could not find the requested resource")
    if not kind.namespaced or metadata.get("namespace") not in (None, namespace):
        return _no("BadRequest", f"{kind.kind} {metadata['name']} is not an object of namespace {namespace}")
    body = {**body, "metadata": {**metadata, "namespace": namespace}}
    if failures := [failure.reason for failure in schemas.failures(type_, body)]:
        return _no("BadRequest", "; ".join(failures))
    if namespace not in identity.PRESENT and state.get(identity.NAMESPACE, namespace) is None:
        return _no("NotFound", f'namespaces "{namespace}" not found')
    if type_ == identity.POD and (missing := next(_missing(state, namespace, body), None)):
        return _no("Forbidden", f'pods "{metadata["name"]}" is forbidden: {missing}')
    id_ = f"{namespace}/{metadata['name']}"
    return None if state.get(type_, id_) is None else _no("AlreadyExists", identity.conflict(type_, id_).message)


def _no(reason: str, message: str) -> Refusal:
    return Refusal(reason, message, "Kubernetes docs, reference/using-api/api-concepts, dry run, read 2026-11-27")


def _missing(state: View, namespace: str, pod: Json) -> Iterator[str]:
    """Yield what a pod names and the API server looks up."""
    account = str(value_at(pod, "spec.serviceAccountName") or "default")
    if account != "default" and state.get(identity.SERVICE_ACCOUNT, f"{namespace}/{account}") is None:
        yield f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
    priority = value_at(pod, "spec.priorityClassName")
    if priority is not None and state.get(identity.PRIORITY_CLASS, str(priority)) is None:
        yield f"no PriorityClass with name {priority} was found"
