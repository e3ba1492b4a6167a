"""A Deployment's rollout: waited for, and begun anew as `kubectl rollout` does."""

from __future__ import annotations

import datetime
from functools import partial

import requests

from tools.kubernetes.api import Api, ApiError, Json, NotYet

RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""What `kubectl rollout restart` writes into the pods' template (kubectl 1.36.1: pkg/polymorphichelpers)."""
_LINES = 15


def until_done(api: Api, namespace: str, name: str, within_s: float) -> None:
    """Wait until every pod of the Deployment is of its present template and ready, and every older one is gone.

    Raises TimeoutError with the state of its pods and the end of their logs.
    """
    try:
        api.until(f"the rollout of {namespace}/{name}", partial(_done, api, namespace, name), within_s)
    except TimeoutError as problem:
        raise TimeoutError("\n".join([str(problem), *_words(api, namespace, name)])) from problem


def restart(api: Api, namespace: str, name: str) -> None:
    """Begin a rolling restart, as `kubectl rollout restart deployment` does; see `until_done` for its end."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    template = {"metadata": {"annotations": {RESTARTED: now}}}
    api.patch("apps/v1", "Deployment", name, namespace, {"spec": {"template": template}}, type="merge")


def pods(api: Api, namespace: str, name: str) -> list[Json]:
    """The pods that its selector finds, also those that are ending."""
    body = api.get("apps/v1", "Deployment", name, namespace)
    if body is None:
        return []
    labels = body["spec"]["selector"]["matchLabels"]
    return api.list("v1", "Pod", namespace, ",".join(f"{key}={value}" for key, value in labels.items()))


def _done(api: Api, namespace: str, name: str) -> bool:
    body = api.get("apps/v1", "Deployment", name, namespace)
    if body is None:
        raise NotYet("there is no such Deployment")
    wanted, status = body["spec"]["replicas"], body.get("status") or {}
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        raise NotYet("the controller has not seen it yet")
    seen = {key: status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")}
    there = pods(api, namespace, name)
    if set(seen.values()) != {wanted} or len(there) != wanted:
        raise NotYet(f"{seen} of {wanted}; pods: {', '.join(map(_state, there)) or 'none'}")
    return True


def _state(pod: Json) -> str:
    status = pod["status"]
    containers = [
        f"{each.get('state')} after {each['restartCount']} restarts" for each in status.get("containerStatuses", ())
    ]
    conditions = [each["message"] for each in status.get("conditions", ()) if each.get("message")]
    return f"{pod['metadata']['name']} {status['phase']} {'; '.join([*containers, *conditions])}"


def _words(api: Api, namespace: str, name: str) -> list[str]:
    found = []
    for pod in pods(api, namespace, name):
        place = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log"
        try:
            answer = api.request("GET", place, query={"tailLines": str(_LINES)})
        except (ApiError, requests.RequestException) as problem:
            found.append(f"{pod['metadata']['name']}: no log: {problem}")
        else:
            found.append(f"{pod['metadata']['name']}: {answer.get('text', answer)}")
    return found
