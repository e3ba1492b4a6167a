"""Objects from the YAML files of pinned Go modules: read, put in their place, applied as installers do, waited for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import yaml

from tools.kubernetes.api import Api, Json, NotYet

# libyaml reads the megabytes of a CRD in a tenth of the time, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MANAGER = "installer"
_SERVED_S = 60.0


def read(*files: Path) -> list[Json]:
    """All objects of some YAML files, in order."""
    return [body for file in files for body in yaml.load_all(file.read_text(), _LOADER) if body]


def install(api: Api, bodies: Iterable[Json]) -> None:
    """Apply objects under a field manager of their own; returns when every kind that they define is served.

    Raises:
        ApiError: the API server refuses one.
        TimeoutError: a kind is not served in time; the message has what the server says against it.
    """
    definitions = []
    for body in bodies:
        api.apply(body, manager=_MANAGER, force=True)
        if body["kind"] == "CustomResourceDefinition":
            definitions.append(body)
    for body in definitions:
        name = body["metadata"]["name"]
        api.until(f"the kind {name}", partial(_established, api, name), _SERVED_S)
    api.until("the new kinds in the API server's discovery", partial(_discovered, api, definitions), _SERVED_S)


def placed(body: Json, namespace: str, prefix: str = "") -> Json:
    """The object in a release's namespace, under its prefix: what kustomize's `namespace` and `namePrefix` do.

    `system` is kustomize's word for the release's namespace; an object that names another one stays there.
    """
    metadata = body["metadata"]
    own = metadata.get("namespace")
    if not body["kind"].startswith("Cluster") and own in (None, "system"):
        metadata["namespace"] = namespace
    metadata["name"] = prefix + metadata["name"]
    if "roleRef" in body and not body["roleRef"]["name"].startswith("extension-"):
        body["roleRef"]["name"] = prefix + body["roleRef"]["name"]
    for subject in body.get("subjects", ()):
        subject |= {"name": prefix + subject["name"], "namespace": namespace}
    for rule in body.get("rules") or ():
        if "admissionregistration.k8s.io" in rule.get("apiGroups", ()) and "resourceNames" in rule:
            rule["resourceNames"] = [prefix + name for name in rule["resourceNames"]]
    return body


def merged(below: Json, above: Json) -> Json:
    """Values over values, as Helm merges them: objects by key, everything else replaced."""
    found = dict(below)
    for key, value in above.items():
        before = found.get(key)
        found[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def _established(api: Api, name: str) -> bool:
    body = api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name) or {}
    conditions = (body.get("status") or {}).get("conditions") or []
    if any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions):
        return True
    raise NotYet("; ".join(f"{one['type']} {one['status']}: {one.get('message')}" for one in conditions) or "no status")


def _discovered(api: Api, definitions: list[Json]) -> bool:
    served = {(kind.api_version, kind.kind) for kind in api.kinds()}
    wanted = {
        (f"{body['spec']['group']}/{version['name']}", body["spec"]["names"]["kind"])
        for body in definitions
        for version in body["spec"]["versions"]
        if version["served"]
    }
    if wanted <= served:
        return True
    raise NotYet(f"without {', '.join(sorted(' '.join(one) for one in wanted - served))}")
