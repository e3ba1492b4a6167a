"""Objects of a stack as the checks of a cluster create them as dry runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from infra.existing.kubectl import Json
from infra.kubernetes.pods import RayArgs


def pods(args: RayArgs, objects: Iterable[Json], missing: Container[str] = ()) -> list[Json]:
    """Return a pod like each kind of Ray's, as a dry run creates it: alone, and named after its workload.

    Args:
        objects: Those of the workload, from `every_object`.
        missing: Settings that name an object that does not exist. A pod that names it would only be refused for that.
    """
    templates = {
        str(template["spec"]["containers"][0]["name"]): template
        for body in objects
        for template in _templates(body["spec"] if isinstance(body.get("spec"), dict) else {})
    }
    left_out = {
        # The stack's own accounts are not there yet.
        "serviceAccountName": not args.existing_accounts or "ray.serviceAccount" in missing,
        "priorityClassName": "ray.priorityClass" in missing,
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            # Its own labels would attract the workload's Services and budgets.
            "metadata": {"name": f"{args.name}-{name}", "annotations": template["metadata"].get("annotations", {})},
            "spec": {key: value for key, value in template["spec"].items() if not left_out.get(key)},
        }
        for name, template in templates.items()
        if name.startswith("ray-")
    ]


def _templates(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        if isinstance(value.get("template"), dict) and "containers" in (value["template"].get("spec") or {}):
            yield value["template"]
        for each in value.values():
            yield from _templates(each)
    elif isinstance(value, list):
        for each in value:
            yield from _templates(each)


def path_of(body: Json, namespace: str) -> str:
    """Return the API path of all objects of this kind in a namespace."""
    root = "/apis" if "/" in body["apiVersion"] else "/api"
    return f"{root}/{body['apiVersion']}/namespaces/{namespace}/{resource_of(body['kind'])}"


def group_of(body: Json) -> str:
    """Return the API group of an object; "" for the core group."""
    return str(body["apiVersion"]).rpartition("/")[0]


def resource_of(kind: str) -> str:
    """Return the resource of a kind that a stack makes: networkpolicies of NetworkPolicy."""
    word = kind.lower()
    if word.endswith("rules"):
        return word
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
