"""Simulated kubectl of a rehearsal. It supports what the check of a user's cluster runs (`infra.existing.kubectl`).

It reads the cloud state and changes nothing: a request to create must be an access review or a dry run. Most requests
are access reviews, so what others need is imported in functions.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rehearsal.clouds.kubernetes import connection, identity
from rehearsal.engine.kind import Json
from rehearsal.engine.state import State, View
from rehearsal.engine.workspace import NotOursError, of_this_process

SETTING = "cluster"
"""Setting of the state with the API server of depth `cluster` or `pods` (rehearsal/cluster/provider.py)."""
FAILED = 1
"""Exit status of kubectl for every error."""
NO_RESOURCE = "the server could not find the requested resource"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TERM = re.compile(r"([^,= ]+)(?: in \(([^)]*)\)|=([^,]*))(?:,|$)")
"""A requirement of a label selector: KEY=VALUE, or KEY in (VALUE,VALUE)."""


class RequestError(Exception):
    """The API server's answer is an error. `reason` is that of its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedError(Exception):
    """The rehearsal's kubectl does not support the command line."""


def main(words: Sequence[str]) -> int:
    """Run a command line with its result on standard output; return the exit status."""
    try:
        workspace = of_this_process()
        with State(workspace.cloud_state).transaction() as state:
            text = _answer(state, list(words))
    except (NotOursError, UnsupportedError) as problem:
        print(f"error: REHEARSAL: {problem}", file=sys.stderr)
        return FAILED
    except RequestError as problem:
        print(f"Error from server ({problem.reason}): {problem}", file=sys.stderr)
        return FAILED
    print(text)
    return 0


def _answer(state: View, words: list[str]) -> str:
    access, *rest = words or [""]
    flag, _, value = access.partition("=")
    config = {"kubeconfig": Path(value).read_text()} if flag == "--kubeconfig" else {"context": value}
    found = connection.cluster(config, state)
    if found is None:
        raise UnsupportedError(f'context "{value}" does not exist' if flag == "--context" else "dial tcp: no route")
    id_, live = found
    if id_ and (there := state.setting(SETTING)):
        # Its objects are in the API server of depth `cluster` or `pods`.
        return json.dumps(_asked(there, rest))
    match rest:
        case ["get", raw] if raw.startswith("--raw=/"):
            version = str(live.get("masterVersion") or live.get("version"))
            return json.dumps(_read(state, raw.removeprefix("--raw="), version, id_))
        case ["create", raw, "--filename=-"] if raw.startswith("--raw=/"):
            return json.dumps(_create(state, raw.removeprefix("--raw="), json.load(sys.stdin)))
    raise UnsupportedError(f"the rehearsal's kubectl does not support: kubectl {' '.join(words)}")


def _asked(there: Json, words: list[str]) -> Json:
    """Return the real API server's answer."""
    from tools.kubernetes.api import Api, ApiError

    verb, raw = words[:2]
    path = raw.removeprefix("--raw=")
    api = Api(there["url"], there["token"], Path(there["authority"]))
    try:
        return api.request("POST", path, body=json.load(sys.stdin)) if verb == "create" else api.request("GET", path)
    except ApiError as error:
        raise RequestError(error.reason, error.message) from None


def _read(state: View, path: str, version: str, cluster: str) -> Json:
    """Return the answer to a GET: of the version, an API, a list or an object."""
    address = urlsplit(path)
    if address.path == "/version":
        major, minor = version.split(".")[:2]
        return {"major": major, "minor": minor, "gitVersion": f"v{version}"}
    match address.path.strip("/").split("/"):
        case ["apis", group, number]:
            from rehearsal.clouds.kubernetes import api_server

            if not api_server.served(state, group, number):
                raise RequestError("NotFound", NO_RESOURCE)
            return {"kind": "APIResourceList", "groupVersion": f"{group}/{number}"}
        case ["api", number, *below]:
            group = ""
        case ["apis", group, number, *below]:
            pass
        case _:
            raise RequestError("NotFound", NO_RESOURCE)
    namespace = below[1] if below[:1] == ["namespaces"] and len(below) > 2 else ""
    plural, *names = below[2:] if namespace else below
    every = _objects(state, (group, number, plural), namespace, cluster)
    if names:
        found = next((each for each in every if each["metadata"]["name"] == names[0]), None)
        if found is None:
            resource = f"{plural}.{group}" if group else plural
            raise RequestError("NotFound", f'{resource} "{names[0]}" not found')
        return found
    terms = [each for text in parse_qs(address.query).get("labelSelector", []) for each in _TERM.findall(text)]
    wanted = {key: several.split(",") if several else [value] for key, several, value in terms}
    chosen = [
        each
        for each in every
        if all((each["metadata"].get("labels") or {}).get(key) in values for key, values in wanted.items())
    ]
    return {"kind": "List", "apiVersion": "v1", "items": chosen}


def _objects(state: View, wanted: tuple[str, str, str], namespace: str, cluster: str) -> Iterator[Json]:
    """Yield a cluster's objects of a resource (group, version, plural), of one namespace or of all."""
    if wanted == ("", "v1", "namespaces"):
        yield from ({"metadata": {"name": name}, "status": {"phase": "Active"}} for name in identity.PRESENT)
    for type_, _, live in state.all():
        if cluster and live.get(connection.OWNER) != cluster:
            continue
        if type_ == identity.RELEASE:
            type_, live = _workload_of(live)
        kind = identity.api(type_) if type_.startswith("kubernetes:") else None
        if kind is None or (kind.group, kind.version, kind.plural) != wanted:
            continue
        if namespace in ("", (live.get("metadata") or {}).get("namespace")):
            yield {key: value for key, value in live.items() if not key.startswith("__")}


def _workload_of(release: Json) -> tuple[str, Json]:
    """Return the Deployment or DaemonSet of a release, with what somebody reads of it."""
    from rehearsal.users_cluster import operator

    values: Any = release.get("values") or {}
    name, namespace = release["name"], release["namespace"]
    if release.get("chart") == "kuberay-operator":
        return operator(name, namespace, values.get("labels") or {}, values["watchNamespace"])
    # As Helm writes them (helm: pkg/action/validate.go, v3).
    helm = {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}
    image = str((values.get("image") or {}).get("repository"))
    pod = {"containers": [{"name": name, "image": image}], "tolerations": [{"operator": "Exists"}]}
    type_ = identity.DEPLOYMENT if release.get("chart") == "cluster-autoscaler" else identity.DAEMON_SET
    kind = identity.api(type_)
    metadata = {"name": name, "namespace": namespace, "annotations": helm}
    spec = {"template": {"spec": {**pod, "nodeSelector": values.get("nodeSelector") or {}}}}
    return type_, {"apiVersion": kind.written, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _create(state: View, path: str, body: Json) -> Json:
    if path == REVIEWS:
        # Of a cluster's administrator.
        return {**body, "status": {"allowed": True}}
    if parse_qs(urlsplit(path).query) != {"dryRun": ["All"], "fieldValidation": ["Strict"]}:
        raise UnsupportedError(f"the rehearsal's kubectl creates nothing: {path}")
    from rehearsal.clouds.kubernetes import api_server

    refusal = api_server.refusal(state, urlsplit(path).path, body)
    if refusal is not None:
        raise RequestError(refusal.status, refusal.message)
    return body


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
