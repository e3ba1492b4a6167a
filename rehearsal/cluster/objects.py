"""Conversion of Kubernetes objects between program and API server, and ownership of fields. Pure.

As in pulumi-kubernetes with server-side apply (provider/pkg/provider/provider.go and util.go,
provider/pkg/await/await.go, 94977969, 2026-07-01, which is 4.32; these parts are unchanged up to 4.34.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from rehearsal.clouds.kubernetes.drift import normalized
from rehearsal.clouds.kubernetes.identity import api
from rehearsal.engine.kind import Json, value_at
from rehearsal.engine.values import Path

CREATOR = "pulumi-kubernetes"
"""Field manager of objects that the provider creates with a plain request, without apply (since 4.29)."""

_OF_THE_SERVER = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)
_PART = re.compile(r'\[(\d+|\*)\]|\["((?:[^"\\]|\\.)*)"\]|([^.\[\]]+)')


def manifest(type_: str, inputs: Json, namespace: str | None) -> Json:
    """Return the object to send: the inputs with API, kind, and `namespace` by default (None: cluster-scoped).

    Metadata that the server sets is omitted.
    """
    kind = api(type_)
    metadata = {key: value for key, value in (inputs.get("metadata") or {}).items() if key not in _OF_THE_SERVER}
    if namespace is None:
        metadata.pop("namespace", None)
    else:
        metadata.setdefault("namespace", namespace)
    return {**deepcopy(inputs), "apiVersion": kind.written, "kind": kind.kind, "metadata": metadata}


def id_of(live: Json) -> str:
    """Return the provider's id of an object: "namespace/name", or "name"."""
    metadata = live.get("metadata") or {}
    name, namespace = str(metadata.get("name") or ""), metadata.get("namespace")
    return f"{namespace}/{name}" if namespace else name


def place_of(id_: str) -> tuple[str, str | None]:
    """Split an id into (name, namespace)."""
    namespace, _, name = id_.rpartition("/")
    return name, namespace or None


def pruned(live: Any, asked: Any) -> Any:
    """Reduce live values to the shape of the inputs: the same keys, and lists of the same length."""
    if isinstance(live, Mapping) and isinstance(asked, Mapping):
        return {key: pruned(value, asked[key]) for key, value in live.items() if key in asked}
    if isinstance(live, list) and isinstance(asked, list) and live and asked:
        return [pruned(*both) for both in zip(live, asked, strict=False)]
    return live


def shown(type_: str, live: Json, asked: Json) -> Json:
    """Return the live object reduced to the shape of the normalized inputs."""
    its: Json = pruned({key: value for key, value in live.items() if value is not None}, normalized(type_, asked))
    return its


def imported(live: Json) -> Json:
    """Return the inputs of an imported object: everything that the server does not set."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in _OF_THE_SERVER}
    return {**{key: value for key, value in live.items() if key != "status"}, "metadata": metadata}


def annotated(inputs: Json, name: str) -> bool:
    """Return whether an annotation of the provider ("skipAwait", "patchForce") is on."""
    return note(inputs, name).lower() == "true"


def note(inputs: Json, name: str) -> str:
    """Return the value of an annotation of the provider, or ""."""
    return str(((inputs.get("metadata") or {}).get("annotations") or {}).get(f"pulumi.com/{name}") or "")


def parsed(path: str) -> Path:
    """Split a property path of the engine into keys and indexes: `a[0]["b.c"].d`. "*" stays."""
    steps: list[str | int] = []
    for index, quoted, plain in _PART.findall(path):
        steps.append(int(index) if index.isdigit() else index or quoted.replace('\\"', '"') or plain)
    return tuple(steps)


def ignored(changed: Path, ignores: Iterable[str]) -> bool:
    """Return whether a changed path equals or is below an ignored one."""
    return any(
        len(changed) >= len(path) and all(part in ("*", other) for part, other in zip(path, changed, strict=False))
        for path in map(parsed, ignores)
    )


def without_ignored(body: Json, live: Json, ignores: Iterable[str], manager: str) -> Json:
    """Apply `ignore_changes` to an update: drop ignored fields of other managers, keep the last value of our own.

    The provider supports paths of keys only, and skips a path through a list (handleSSAIgnoreFields).
    """
    sent = deepcopy(body)
    entries: list[Json] = (live.get("metadata") or {}).get("managedFields") or []
    for path in map(parsed, ignores):
        if any(isinstance(part, int) or part == "*" for part in path):
            continue
        theirs = any(_owns(entry, path) for entry in entries if entry.get("manager") != manager)
        ours = any(_owns(entry, path) for entry in entries if entry.get("manager") == manager)
        above = value_at(sent, path[:-1])
        if not isinstance(above, dict):
            continue
        if theirs and not ours:
            above.pop(path[-1], None)
        elif value_at(live, path) is not None:
            above[path[-1]] = deepcopy(value_at(live, path))
    return sent


def taken_over(live: Json, manager: str) -> list[Json] | None:
    """Return managedFields with the fields of the creating manager moved to `manager`; None if there are none.

    Otherwise both managers would own the fields, and an apply would never remove one (await.go, fixCSAFieldManagers,
    which also names kubectl's).
    """
    entries: list[Json] = (live.get("metadata") or {}).get("managedFields") or []
    gone = [each for each in entries if not each.get("subresource") and _key(each) == (CREATOR, "Update")]
    if not gone:
        return None
    applied = next((each for each in entries if _key(each) == (manager, "Apply")), None)
    fields: Json = (applied or {}).get("fieldsV1") or {}
    for each in gone:
        fields = _union(fields, each.get("fieldsV1") or {})
    merged = {**(applied or gone[0]), "manager": manager, "operation": "Apply", "fieldsV1": fields}
    return [*(each for each in entries if each not in gone and each is not applied), merged]


def created_by_us(live: Json) -> bool:
    """Return whether the creating manager still owns its fields, so that a dry run needs force."""
    entries = (live.get("metadata") or {}).get("managedFields") or []
    return not entries or any(_key(each) == (CREATOR, "Update") for each in entries)


def ours(live: Json) -> bool:
    """Return whether the provider created the object, by its field managers."""
    entries = (live.get("metadata") or {}).get("managedFields") or []
    return any(str(each.get("manager", "")).startswith(CREATOR) for each in entries)


def _owns(entry: Json, path: Path) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    for part in path:
        fields = fields.get(f"f:{part}") if isinstance(fields, Mapping) else None
    return fields is not None


def _union(one: Json, other: Json) -> Json:
    both = dict(one)
    for key, below in other.items():
        both[key] = _union(both.get(key) or {}, below or {})
    return both


def _key(entry: Json) -> tuple[str, str]:
    return str(entry.get("manager") or ""), str(entry.get("operation") or "")
