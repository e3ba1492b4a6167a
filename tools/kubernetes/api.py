"""A thin client of the Kubernetes API: paths from discovery, objects as plain JSON, no generated models.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/, read 2026-11-21; tested with API server 1.36.1.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import requests

Json = dict[str, Any]
# In the class below, `list` is a method.
Objects = list[Json]
Kinds = list["ObjectKind"]
T = TypeVar("T")
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
# An unknown field is an error, not a warning.
_STRICT = {"fieldValidation": "Strict"}
_DRY_RUN = {"dryRun": "All"}
_POLL_S = 0.1
_REQUEST_S = 70.0


class ApiError(RuntimeError):
    """A rejected request: HTTP `status`, its `reason` and `message`, and the whole `body`."""

    def __init__(self, status: int, reason: str, message: str, body: Json | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body or {}


class NotYet(Exception):  # noqa: N818
    """A condition is not met yet. `Api.until` reports the message, the current state, at the deadline."""


class ObjectKind(NamedTuple):
    """One kind of object that the API server serves, with its verbs."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: tuple[str, ...] = ()


class Api:
    """Client of one API server. It is thread-safe: each thread has its own session.

    Args:
        token: Bearer token, or empty for a `kubectl proxy`.
        authority: File with the CA certificate that signs the server's certificate.
        headers: Further headers of each request.
        alive: Raises if a program of the control plane has ended.
    """

    def __init__(
        self,
        url: str,
        token: str,
        authority: Path | None,
        *,
        alive: Callable[[], object] = lambda: None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._session = _Session(token, authority, headers or {})
        self._kinds: dict[tuple[str, str], ObjectKind] = {}
        self._alive = alive

    def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = _REQUEST_S,
    ) -> Json:
        """Send a request and return the JSON object of the response, or {"text": …} for plain text.

        Raises:
            ApiError: The server answered with a status of 400 or above.
            requests.RequestException: There is no response.
        """
        answer = self._session.own.request(
            method,
            self.url + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": accept},
            timeout=timeout_s,
        )
        try:
            answered = answer.json()
        except ValueError:
            answered = None
        content: Json = answered if isinstance(answered, dict) else {"text": answer.text}
        if answer.status_code >= 400:
            message = content.get("message") or content.get("text") or answer.reason
            raise ApiError(answer.status_code, str(content.get("reason") or ""), str(message), content)
        return content

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Json | None:
        """Return an object, or None if it does not exist."""
        return self._or_none(lambda: self.request("GET", self.path(api_version, kind, namespace, name)))

    def list(self, api_version: str, kind: str, namespace: str | None = None, selector: str | None = None) -> Objects:
        """Return the objects of a kind in all namespaces or one, by label selector."""
        query = {"labelSelector": selector} if selector else None
        found = self.request("GET", self.path(api_version, kind, namespace), query=query)
        # The items of a list have no kind.
        return [{"apiVersion": api_version, "kind": kind} | item for item in found.get("items") or []]

    def apply(self, body: Json, *, manager: str = "rdma-ray", dry_run: bool = False, force: bool = False) -> Json:
        """Apply an object (server-side apply) with strict validation."""
        query = {"fieldManager": manager, **_STRICT} | (_DRY_RUN if dry_run else {})
        query |= {"force": "true"} if force else {}
        return self.request(
            "PATCH", self._path_of(body), query=query, body=body, content_type="application/apply-patch+yaml"
        )

    def create(self, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object with strict validation."""
        return self.request(
            "POST", self._path_of(body, named=False), query=_STRICT | (_DRY_RUN if dry_run else {}), body=body
        )

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None,
        body: Any,
        *,
        type: str = "merge",  # noqa: A002
        subresource: str | None = None,
    ) -> Json:
        """Patch an object, or its `subresource` ("status"); `type` is "merge" or "json"."""
        path = self.path(api_version, kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, query=_STRICT, body=body, content_type=f"application/{type}-patch+json")

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, propagation: str = "Background"
    ) -> None:
        """Request the deletion of an object, which need not exist. Finalizers may delay it."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        self._or_none(lambda: self.request("DELETE", self.path(api_version, kind, namespace, name), body=body))

    def kinds(self) -> Kinds:
        """Return the kinds that the server serves, with aggregated APIs and CRDs."""
        kinds_by_name: dict[tuple[str, str], ObjectKind] = {}
        for path in ("/api", "/apis"):
            for group in self.request("GET", path, accept=_DISCOVERY).get("items") or []:
                for version in group.get("versions") or []:
                    kinds_by_name |= {(kind.api_version, kind.kind): kind for kind in _resources(group, version)}
        self._kinds = kinds_by_name
        return [*kinds_by_name.values()]

    def kind(self, api_version: str, kind: str) -> ObjectKind:
        """Return a served kind. Raises ApiError with status 404 if the server does not serve it."""
        if (api_version, kind) not in self._kinds:
            # A CRD may have been added.
            self.kinds()
        if (api_version, kind) not in self._kinds:
            raise ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
        return self._kinds[api_version, kind]

    def path(self, api_version: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
        """Return the path of all objects of a kind, those of a namespace, or one object."""
        served = self.kind(api_version, kind)
        parts = ["/apis" if "/" in api_version else "/api", api_version]
        if served.namespaced and (namespace or name):
            parts += ["namespaces", namespace or "default"]
        return "/".join([*parts, served.plural, *([name] if name else [])])

    def until(self, what: str, look: Callable[[], T | None], within_s: float) -> T:
        """Call `look` until it returns a value other than None and False. It may raise NotYet.

        Raises:
            TimeoutError: The message contains `what` and the message of the last NotYet.
        """
        deadline = time.monotonic() + within_s
        while True:
            seen = "nothing"
            try:
                result = look()
                if result is not None and result is not False:
                    return result
            except NotYet as problem:
                seen = str(problem)
            self._alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {within_s:g} s; last seen: {seen}")
            time.sleep(_POLL_S)

    def _path_of(self, body: Json, *, named: bool = True) -> str:
        metadata = body.get("metadata") or {}
        namespace = metadata.get("namespace") or "default"
        return self.path(body["apiVersion"], body["kind"], namespace, metadata["name"] if named else None)

    def _or_none(self, send: Callable[[], Json]) -> Json | None:
        try:
            return send()
        except ApiError as problem:
            if problem.status == 404:
                return None
            raise


class _Session(threading.local):
    """A session for each thread; sessions are not thread-safe."""

    def __init__(self, token: str, authority: Path | None, headers: Mapping[str, str]) -> None:
        self.own = requests.Session()
        self.own.headers.update(headers)
        if token:
            self.own.headers["Authorization"] = f"Bearer {token}"
        self.own.verify = str(authority) if authority else True
        # Ignore the user's proxies and .netrc.
        self.own.trust_env = False


def _resources(group: Json, version: Json) -> Iterator[ObjectKind]:
    name = group["metadata"].get("name")
    api_version = f"{name}/{version['version']}" if name else version["version"]
    for resource in version.get("resources") or []:
        if kind := (resource.get("responseKind") or {}).get("kind"):
            namespaced = resource.get("scope") == "Namespaced"
            yield ObjectKind(api_version, kind, resource["resource"], namespaced, tuple(resource.get("verbs") or ()))
