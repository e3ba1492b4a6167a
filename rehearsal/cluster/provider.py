"""The `kubernetes` provider with a real API server: it sends the requests of pulumi-kubernetes 4.34.

It creates an object with a plain request, updates it by server-side apply with its own field manager, previews by dry
run, and deletes in the foreground. Field validation is strict: a field that the real provider would drop with a warning
is an error. A difference is a change that an apply would make in the program's fields. The real provider compares with
its state instead, so it finds the same differences only after a refresh.

The API server is reachable only while the simulated cloud has the cluster, or always, if the provider has the context
of a user's cluster. The cloud state keeps Helm releases, as at depth `quick` (`release_status`). At depth `pods` the
provider scales what it sends (`scaled`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import requests
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from rehearsal.clouds.kubernetes.drift import dropped
from rehearsal.clouds.kubernetes.identity import RELEASE, api
from rehearsal.cluster import objects, release_status
from rehearsal.cluster.readiness import FIXED_WAIT_S, LEFT_TO_GO, REFRESHED, NeverReadyError, skips, unready
from rehearsal.cluster.scaling import Scale, ScaledManifests
from rehearsal.engine.kind import Cloud, Json, Refusal, RefusedError
from rehearsal.engine.protocol import Provider, compared, failing
from rehearsal.engine.state import State, View
from rehearsal.engine.values import from_wire, to_wire, unknown
from tools.kubernetes.api import Api, ApiError

SETTING = "cluster"
"""Setting of the cloud state with the API server's URL, token and CA. It selects this provider."""
PATIENCE_S = 90.0
"""Timeout of a rehearsal for one object, in seconds. The real provider waits ten minutes, for operations that take
minutes in a cloud; here they take seconds."""
PODS_PATIENCE_S = 400.0
"""The same with real pods: a controller's pod waits for a node to start, on shared processors."""
_POLL_S = 0.1
_TRIES = 6
_SERVER = "the API server"

T = TypeVar("T")


def api_of(setting: Json) -> Api:
    """Return a client of the API server in the cloud state's setting."""
    return Api(setting["url"], setting["token"], Path(setting["authority"]))


class ClusterProvider(Provider):
    """Serves the protocol. Methods have the protocol's names."""

    # ruff: noqa: N802 - the protocol's names

    def __init__(self, cloud: Cloud, state: State, engine: int, server: Api, scale: Scale | None = None) -> None:
        super().__init__(cloud, state, engine)
        self._server = server
        self._scaled = ScaledManifests(state, scale)

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Return the changes of an apply of the inputs; with unknown inputs, the changes of the inputs."""
        if request.type == RELEASE:
            return super().Diff(request, context)
        with failing(context):
            kind = self._kind(request.type)
            before, now = (kind.normalized(from_wire(each)) for each in (request.old_inputs, request.news))
            planned = None if unknown(now) else self._planned(request.type, request.id, request.urn, now)
            if planned is not None:
                live, then = planned
                before, now = (self._scaled.inputs(request.type, each) for each in (before, now))
                # Inputs that the program removed exist until the update.
                before = objects.shown(request.type, live, _both(before, now))
                given = dropped(request.type, now)
                now = objects.shown(request.type, then, now)
                now["metadata"] = {**given, **(now.get("metadata") or {})}
            return compared(before, now, kind.replace_on, lambda path: objects.ignored(path, request.ignoreChanges))
        raise AssertionError

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Create the object and wait until it is ready. A preview is a dry run."""
        inputs = from_wire(request.properties)
        if request.preview:
            with failing(context):
                made = None if request.type == RELEASE else self._made_up(request.type, inputs)
                properties = request.properties if made is None else to_wire(made)
                return provider_pb2.CreateResponse(id="", properties=properties)
        with failing(context), self._step("create", request.type, request.urn) as (kind, injected):
            if request.type == RELEASE:
                with self._reaching() as state:
                    id_, live = self._made(kind, state, injected, inputs)
                release_status.prepare(self._server, inputs)
                self._run(id_, live)
                return provider_pb2.CreateResponse(id=id_, properties=to_wire(live))
            self._reached()
            live = self._patiently(lambda: self._post(self._body(request.type, inputs), dry_run=False))
            id_ = objects.id_of(live)
            if injected == "timeout":
                raise RefusedError(self._failure("timeout"), kept=(id_, _state(live)))
            live = self._ready(request.type, inputs, live, request.timeout, existed=False)
            return provider_pb2.CreateResponse(id=id_, properties=to_wire(_state(live)))
        raise AssertionError

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Return the live object. One that exists and is not ready is reported as such."""
        if request.type == RELEASE:
            return super().Read(request, context)
        with failing(context):
            self._reached()
            asked = from_wire(request.inputs)
            live = self._get(request.type, request.id)
            if live is None:
                return provider_pb2.ReadResponse()
            # Without inputs it is an import; an interrupted creation has inputs and no properties yet.
            inputs = self._scaled.shown(request.type, live, asked) if asked else objects.imported(live)
            if asked and f"{live['apiVersion']}/{live['kind']}" in REFRESHED:
                why = self._unready(asked, live, existed=True)
                if why is not None:
                    raise _unfinished(objects.id_of(live), live, why)
            id_ = request.id or objects.id_of(live)
            return provider_pb2.ReadResponse(id=id_, properties=to_wire(_state(live)), inputs=to_wire(inputs))
        raise AssertionError

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Apply the object and wait until it is ready again. A preview is a dry run."""
        inputs = from_wire(request.news)
        if request.preview:
            if request.type == RELEASE or unknown(inputs):
                return super().Update(request, context)
            with failing(context):
                return provider_pb2.UpdateResponse(properties=to_wire(_state(self._applied(request, dry_run=True))))
        with failing(context), self._step("update", request.type, request.urn) as (kind, injected):
            if request.type == RELEASE:
                with self._reaching() as state:
                    now = self._changed(kind, state, injected, request)
                self._run(request.id, now)
                return provider_pb2.UpdateResponse(properties=to_wire(now))
            self._reached()
            live = self._applied(request, dry_run=False)
            if injected == "timeout":
                raise RefusedError(self._failure("timeout"), kept=(request.id, _state(live)))
            live = self._ready(request.type, inputs, live, request.timeout, existed=True)
            return provider_pb2.UpdateResponse(properties=to_wire(_state(live)))
        raise AssertionError

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Delete the object and wait until it is gone, including finalizers and dependents."""
        with failing(context), self._step("delete", request.type, request.urn) as (kind, _):
            if request.type == RELEASE:
                with self._reaching() as state:
                    self._taken_away(kind, state, request)
                self._stopped(request.id)
                return empty_pb2.Empty()
            self._reached()
            self._deleted(request, from_wire(request.old_inputs))
        return empty_pb2.Empty()

    @property
    def _users(self) -> bool:
        """Whether the cluster is the user's: the provider has a context, and no kubeconfig of a simulated cloud."""
        return bool(self._config.get("context")) and not self._config.get("kubeconfig")

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S if self._scaled.scale is None and not self._users else PODS_PATIENCE_S

    def _deadline(self, timeout_s: float = 0.0) -> float:
        return time.monotonic() + min(timeout_s or self._patience_s, self._patience_s)

    def _reach(self, state: View) -> None:
        if not self._users:
            super()._reach(state)

    def _reached(self) -> None:
        with self._state.transaction() as state:
            self._reach(state)

    def _reachable(self) -> bool:
        with self._state.transaction() as state:
            return self._users or self._cloud.reaches(self._config, state) is None

    def _body(self, type_: str, inputs: Json) -> Json:
        """Return the object to send. Raises ApiError, status 404, for a kind that the server does not have."""
        kind = api(type_)
        namespaced = self._server.kind(kind.written, kind.kind).namespaced
        namespace = str(self._config.get("namespace") or "default") if namespaced else None
        return self._scaled.body(objects.manifest(type_, inputs, namespace))

    def _get(self, type_: str, id_: str) -> Json | None:
        kind = api(type_)
        name, namespace = objects.place_of(id_)
        return _asked(lambda: self._server.get(kind.written, kind.kind, name, namespace))

    def _post(self, body: Json, *, dry_run: bool) -> Json:
        query = {"fieldManager": objects.CREATOR, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        path = self._server.path(body["apiVersion"], body["kind"], body["metadata"].get("namespace"))
        return self._server.request("POST", path, query=query, body=body)

    def _patiently(self, ask: Callable[[], Json]) -> Json:
        """Retry while the namespace or the kind does not exist yet, as the provider does."""
        for trial in range(_TRIES):
            try:
                return ask()
            except ApiError as problem:
                if problem.status != 404 or trial == _TRIES - 1:
                    raise _refused(problem) from problem
            time.sleep(0.1 * 2**trial)
        raise AssertionError

    def _made_up(self, type_: str, inputs: Json) -> Json | None:
        """Return the object that a create would produce; None if the API server cannot run the create dry yet."""
        if unknown(inputs) or not self._reachable():
            return None
        try:
            body = self._body(type_, inputs)
            made = self._post(body, dry_run=True)
        except ApiError as problem:
            if problem.status == 404:
                # The kind or the namespace does not exist.
                self._note_unchecked(type_)
            if problem.status == 404 or problem.reason == "AlreadyExists":
                # The existing object may be the one to replace.
                return None
            raise _refused(problem) from problem
        return {key: value for key, value in _state(made).items() if key != "status"}

    def _note_unchecked(self, type_: str) -> None:
        with self._state.transaction() as state:
            state.set("unchecked", sorted({*state.setting("unchecked", []), type_}))

    def _planned(self, type_: str, id_: str, urn: str, inputs: Json) -> tuple[Json, Json] | None:
        """Return the object now and after an apply; None if the API server cannot run the apply dry."""
        if not self._reachable():
            return None
        try:
            live = self._get(type_, id_)
            body = self._body(type_, inputs)
            if live is None or objects.id_of(body) != objects.id_of(live):
                return None
            # With force, as for a preview of a replacement: the update decides about ownership of fields.
            return live, self._server.apply(body, manager=_manager(urn), dry_run=True, force=True)
        except (ApiError, RefusedError):
            # An update cannot produce this; the inputs decide whether it is replaced or refused.
            return None

    def _applied(self, request: provider_pb2.UpdateRequest, *, dry_run: bool) -> Json:
        """Apply an update by the resource's field manager, which first takes over what was created."""
        manager = _manager(request.urn)
        live = self._get(request.type, request.id)
        if live is None:
            raise RefusedError(Refusal("404 NotFound", f"{request.id} was not found", _SERVER))
        force = objects.annotated(from_wire(request.news), "patchForce")
        force = force or (dry_run and objects.created_by_us(live))
        if not dry_run:
            live = self._handed_over(live, manager)
        try:
            body = self._body(request.type, from_wire(request.news))
            sent = objects.without_ignored(body, live, request.ignoreChanges, manager)
            return self._server.apply(sent, manager=manager, dry_run=dry_run, force=force)
        except ApiError as problem:
            raise _refused(problem) from problem

    def _handed_over(self, live: Json, manager: str) -> Json:
        """Return the object after the manager owns what the creation wrote."""
        place = live["apiVersion"], live["kind"], live["metadata"]["name"], live["metadata"].get("namespace")
        for trial in range(_TRIES):
            entries = objects.taken_over(live, manager)
            if entries is None:
                break
            patch = [
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
            ]
            try:
                return self._server.patch(*place, patch, type="json")
            except ApiError as problem:
                # A controller wrote in between: read the owners again.
                found = self._server.get(*place) if problem.reason == "Conflict" else None
                if found is None or trial == _TRIES - 1:
                    raise _refused(problem) from problem
                live = found
        return live

    def _ready(self, type_: str, inputs: Json, live: Json, timeout: float, *, existed: bool) -> Json:
        """Wait until the object is ready. If it is not ready in time, it stays in the state as failed."""
        fixed = FIXED_WAIT_S.get(f"{live['apiVersion']}/{live['kind']}")
        id_, deadline = objects.id_of(live), self._deadline(fixed or timeout)
        while True:
            why = self._unready(inputs, live, existed=existed)
            if why is None:
                return live
            if time.monotonic() > deadline:
                raise _unfinished(id_, live, f"not ready in time: {why}")
            time.sleep(_POLL_S)
            found = self._get(type_, id_)
            if found is None:
                raise RefusedError(Refusal("404 NotFound", f"{id_} was deleted while it was awaited", _SERVER))
            live = found

    def _unready(self, inputs: Json, live: Json, *, existed: bool) -> str | None:
        try:
            return unready(inputs, live, lambda *of: _asked(lambda: self._server.list(*of)), existed=existed)
        except NeverReadyError as problem:
            raise _unfinished(objects.id_of(live), live, str(problem)) from problem

    def _deleted(self, request: provider_pb2.DeleteRequest, inputs: Json) -> None:
        kind = api(request.type)
        name, namespace = objects.place_of(request.id)
        way = objects.note(inputs, "deletionPropagationPolicy").capitalize() or "Foreground"
        live = self._get(request.type, request.id)
        if live is None:
            return
        _asked(lambda: self._server.delete(kind.written, kind.kind, name, namespace, propagation=way))
        if skips(inputs) and f"{live['apiVersion']}/{live['kind']}" in LEFT_TO_GO:
            return
        deadline = self._deadline(request.timeout)
        while (found := self._get(request.type, request.id)) and found["metadata"]["uid"] == live["metadata"]["uid"]:
            if time.monotonic() > deadline:
                held = ", ".join(found["metadata"].get("finalizers") or ()) or "none"
                raise RefusedError(Refusal("timeout", f"{request.id} still exists; finalizers: {held}", _SERVER))
            time.sleep(_POLL_S)

    def _run(self, id_: str, live: Json) -> None:
        """Wait until the cloud controllers report that the release runs."""
        status, words = self._release(id_, "ready", "simulated", "failed")
        if status not in ("ready", "simulated"):
            why = words or "the chart's controllers did not start"
            said = f"release {id_} was created and did not become ready: {why}"
            raise RefusedError(Refusal("timeout", said, release_status.SOURCE), kept=(id_, live))

    def _stopped(self, id_: str) -> None:
        """Wait until the release's objects are deleted, as Helm does."""
        ends = ("", "simulated", "stopped")
        if self._release(id_, *ends)[0] not in ends:
            raise RefusedError(Refusal("timeout", f"objects of release {id_} were not deleted", release_status.SOURCE))

    def _release(self, id_: str, *statuses: str) -> tuple[str, str]:
        """Wait for one of the statuses of a release; return the last one."""
        deadline = self._deadline()
        while True:
            with self._state.transaction() as state:
                found = release_status.status_of(state, id_)
            if found[0] in statuses or time.monotonic() > deadline:
                return found
            time.sleep(_POLL_S)


def _manager(urn: str) -> str:
    """Return the field manager of a resource: the provider's prefix and a suffix that is the same in every request."""
    return f"{objects.CREATOR}-{hashlib.sha256(urn.encode()).hexdigest()[:8]}"


def _state(live: Json) -> Json:
    """Return the object as the state keeps it, without managedFields."""
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    return {**live, "metadata": metadata}


def _both(one: Any, other: Any) -> Any:
    """Merge the shapes of two inputs."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _both(one.get(key, other.get(key)), other.get(key, one.get(key))) for key in one.keys() | other}
    if isinstance(one, list) and isinstance(other, list):
        longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
        return [_both(item, shorter[i]) if i < len(shorter) else item for i, item in enumerate(longer)]
    return other


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except ApiError as problem:
        raise _refused(problem) from problem
    except requests.RequestException as problem:
        words = f"configured Kubernetes cluster is unreachable: {type(problem).__name__}"
        raise RefusedError(Refusal("unreachable", words, _SERVER)) from problem


def _refused(problem: ApiError) -> RefusedError:
    return RefusedError(Refusal(f"{problem.status} {problem.reason}".strip(), problem.message, _SERVER))


def _unfinished(id_: str, live: Json, why: str) -> RefusedError:
    words = f"{live.get('kind')} {id_} was created and did not become ready: {why}"
    return RefusedError(Refusal("timeout", words, _SERVER), kept=(id_, _state(live)))
