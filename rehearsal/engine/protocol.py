"""The engine's provider protocol, implemented once for every simulated cloud.

It behaves like bridged providers: it compares inputs with the last inputs, external changes show after a refresh only
in properties that the program sets, and a replacement deletes first because names are fixed.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from rehearsal.engine import faults
from rehearsal.engine.kind import (
    COPY,
    Call,
    Cloud,
    Json,
    Refusal,
    RefusedError,
    ResourceKind,
    Verb,
    first_refusal,
    value_at,
)
from rehearsal.engine.state import State, View
from rehearsal.engine.values import (
    UNKNOWN,
    Path,
    applied,
    as_asked,
    covers,
    differences,
    from_wire,
    reaches_into,
    to_wire,
)


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves one simulated cloud. Methods have the protocol's names."""

    # ruff: noqa: N802 - the protocol's names

    def __init__(self, cloud: Cloud, state: State, engine: int) -> None:
        self._cloud = cloud
        self._state = state
        self._engine = engine
        self._config: Json = {}

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        """Accept no optional feature, so that the engine sends plain values for secrets and resource references."""
        del request, context
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Return the version that the program's SDK requires."""
        del request, context
        return plugin_pb2.PluginInfo(version=version(f"pulumi-{self._cloud.package}"))

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Accept any configuration: there are no credentials to check."""
        del context
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Return whether a configuration change replaces the provider and all of its resources."""
        del context
        return compared(from_wire(request.old_inputs), from_wire(request.news), self._cloud.replace_on)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Store the configuration."""
        del context
        self._config = from_wire(request.args)
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Report inputs that the provider refuses before any request. The API validates the rest in the request."""
        with failing(context):
            kind = self._kind(request.type)
            inputs = self._cloud.completed(request.type, from_wire(request.news), self._config)
            response = provider_pb2.CheckResponse(inputs=to_wire(inputs))
            for failure in kind.check(inputs):
                response.failures.add(property=failure.path, reason=f"REHEARSAL: {failure.reason}")
            return response
        raise AssertionError

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Compare the new inputs with the last ones. The engine has applied `ignore_changes`."""
        with failing(context):
            kind = self._kind(request.type)
            before, now = (kind.normalized(from_wire(each)) for each in (request.old_inputs, request.news))
            return compared(before, now, kind.replacing(before, now), kind.keeps(before, now, from_wire(request.olds)))
        raise AssertionError

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Create the object unless the API refuses. In a preview, only the inputs are known."""
        inputs = from_wire(request.properties)
        if request.preview:
            with failing(context):
                return provider_pb2.CreateResponse(id="", properties=to_wire(self._kind(request.type).planned(inputs)))
        with failing(context), self._change("create", request.type, request.urn) as (kind, state, injected):
            id_, live = self._made(kind, state, injected, inputs)
            return provider_pb2.CreateResponse(id=id_, properties=to_wire(live))
        raise AssertionError

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Return the live object; empty if it does not exist. Without last properties it is an import."""
        with failing(context):
            kind = self._kind(request.type)
            if not kind.remembered:
                return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
            id_ = request.id if request.properties.fields else kind.from_import(request.id, self._config)
            with self._state.transaction() as state:
                self._reach(state)
                live = state.get(kind.type, id_)
            if live is None:
                return provider_pb2.ReadResponse()
            inputs = as_asked(kind.normalized(from_wire(request.inputs)), live, kind.maps)
            return provider_pb2.ReadResponse(id=id_, properties=to_wire(live), inputs=to_wire(inputs))
        raise AssertionError

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Update the object in place unless the API refuses. In a preview, settled outputs stay known."""
        if request.preview:
            planned = applied(from_wire(request.olds), from_wire(request.old_inputs), from_wire(request.news))
            planned |= dict.fromkeys(self._kind(request.type).unsettled, UNKNOWN)
            return provider_pb2.UpdateResponse(properties=to_wire(planned))
        with failing(context), self._change("update", request.type, request.urn) as (kind, state, injected):
            now = self._changed(kind, state, injected, request)
            return provider_pb2.UpdateResponse(properties=to_wire(now))
        raise AssertionError

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Delete the object and its cascade, unless the API refuses. A missing object is not an error."""
        with failing(context), self._change("delete", request.type, request.urn) as (kind, state, _):
            self._taken_away(kind, state, request)
        return empty_pb2.Empty()

    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        """Call a provider function."""
        function = self._cloud.functions.get(request.tok)
        with failing(context):
            if function is None:
                raise RefusedError(
                    Refusal("unknown", f"the simulated cloud has no function {request.tok}", "rehearsal")
                )
            response = provider_pb2.InvokeResponse()
            with self._state.transaction() as state:
                results = to_wire(function(from_wire(request.args), self._config, state))
            getattr(response, "return").CopyFrom(results)
            return response
        raise AssertionError

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Do nothing: requests are short."""
        del request, context
        return empty_pb2.Empty()

    def _kind(self, type_: str) -> ResourceKind:
        kind = self._cloud.kind(type_)
        if kind is None:
            raise RefusedError(
                Refusal("unknown", f"the simulated cloud has no kind {type_}; add it to rehearsal/clouds", "rehearsal")
            )
        return kind

    def _made(self, kind: ResourceKind, state: View, injected: faults.How | None, inputs: Json) -> tuple[str, Json]:
        """Create the object in the cloud state; return its id and value."""
        id_ = self._identify(kind, inputs, state)
        live = created(kind, id_, inputs, self._config, state)
        if injected == "timeout":
            raise RefusedError(self._failure("timeout"), kept=(id_, live))
        return id_, live

    def _changed(
        self, kind: ResourceKind, state: View, injected: faults.How | None, request: provider_pb2.UpdateRequest
    ) -> Json:
        """Update the object in the cloud state; return its value."""
        inputs, before = (kind.normalized(from_wire(each)) for each in (request.news, request.old_inputs))
        live = state.get(kind.type, request.id) if kind.remembered else from_wire(request.olds)
        if live is None:
            raise RefusedError(Refusal("404 notFound", f"{request.id} was not found", "rehearsal"))
        asked = applied(live, before, inputs)
        if not kind.whole:
            # Providers send what changed (HasChange). Of a block that changed they send all, also what is ignored.
            asked |= {name: live[name] for name in inputs if name in live and inputs[name] == before.get(name)}
        call = self._call("update", kind, request.id, inputs, live, state, asked)
        _judge(kind, call)
        now = {**asked, **kind.compute(call)}
        if kind.remembered:
            state.put(kind.type, request.id, now)
        if kind.nodes(live) and any(covers(kind.recreates, path) for path, _ in differences(before, inputs)):
            state.set("recreated", {**state.setting("recreated", {}), request.id: kind.nodes(live)})
        if injected == "timeout":
            raise RefusedError(self._failure("timeout"), kept=(request.id, now))
        return now

    def _taken_away(self, kind: ResourceKind, state: View, request: provider_pb2.DeleteRequest) -> None:
        """Delete the object and its cascade from the cloud state."""
        live = state.get(kind.type, request.id)
        if live is None:
            return
        call = self._call("delete", kind, request.id, from_wire(request.old_inputs), live, state, {})
        _judge(kind, call)
        state.remove(kind.type, request.id)
        for type_, id_, other in list(state.all()):
            if kind.cascade(call, type_, other):
                state.remove(type_, id_)

    def _identify(self, kind: ResourceKind, inputs: Json, state: View) -> str:
        id_ = kind.identify(inputs, self._config)
        copy = 1
        while kind.generated_ids and state.get(kind.type, id_) is not None:
            copy += 1
            id_ = kind.identify({**inputs, COPY: copy}, self._config)
        return id_

    def _failure(self, how: faults.How) -> Refusal:
        return self._cloud.failures.get(how) or faults.FAILURES[how]

    def _call(self, verb: Verb, kind: ResourceKind, id_: str, inputs: Json, live: Json, state: View, now: Json) -> Call:
        return Call(
            verb=verb, type=kind.type, id=id_, inputs=inputs, live=live, config=self._config, state=state, now=now
        )

    def _reach(self, state: View) -> None:
        refusal = self._cloud.reaches(self._config, state)
        if refusal is not None:
            raise RefusedError(refusal)

    @contextmanager
    def _change(self, verb: Verb, type_: str, urn: str) -> Iterator[tuple[ResourceKind, View, faults.How | None]]:
        """Run one change of the cloud state as a step of the rehearsal."""
        with self._step(verb, type_, urn) as (kind, injected), self._reaching() as state:
            yield kind, state, injected

    @contextmanager
    def _reaching(self) -> Iterator[View]:
        """Open a transaction for one change, if the API is reachable. The objects of a failed request are committed."""
        kept: RefusedError | None = None
        with self._state.transaction() as state:
            self._reach(state)
            try:
                yield state
            except RefusedError as refused:
                if refused.kept is None:
                    raise
                # The object exists although the request failed: commit the transaction.
                kept = refused
        if kept is not None:
            raise kept

    @contextmanager
    def _step(self, verb: Verb, type_: str, urn: str) -> Iterator[tuple[ResourceKind, faults.How | None]]:
        """Run one change as a step of the rehearsal: count it, inject a fault, and record its outcome."""
        kind = self._kind(type_)
        with self._state.transaction() as state:
            step = state.begin_step(verb, type_, urn)
            injected = faults.inject(state, type_, verb, step)
        if injected == "kill-before":
            self._kill_engine()
        outcome = "done"
        try:
            lasting = injected == "timeout" and kind.awaited and verb != "delete"
            if injected is not None and injected in faults.FAILURES and not lasting:
                raise RefusedError(self._failure(injected))
            yield kind, injected
        except Exception as problem:
            # A refusal, or a defect in a kind.
            outcome = str(problem) or type(problem).__name__
            raise
        finally:
            if injected != "kill-after":
                with self._state.transaction() as state:
                    state.end_step(urn, outcome)
        if injected == "kill-after":
            self._kill_engine()

    def _kill_engine(self) -> NoReturn:
        """Kill the engine, as a power failure would, and this process before it responds."""
        os.kill(self._engine, signal.SIGKILL)
        os._exit(1)


def created(kind: ResourceKind, id_: str, inputs: Json, config: Mapping[str, Any], state: View) -> Json:
    """Create an object in the cloud state, and return its value. Raises `RefusedError`."""
    if kind.remembered and not kind.repeatable and state.get(kind.type, id_) is not None:
        raise RefusedError(kind.conflict(kind.type, id_))
    inputs = kind.normalized(inputs)
    call = Call(verb="create", type=kind.type, id=id_, inputs=inputs, live={}, config=config, state=state, now=inputs)
    _judge(kind, call)
    live = {**inputs, **kind.compute(call)}
    if kind.remembered:
        state.put(kind.type, id_, live)
    return live


def _judge(kind: ResourceKind, call: Call) -> None:
    if (refusal := first_refusal(kind, call)) is not None:
        raise RefusedError(refusal)


def compared(
    before: Json, now: Json, replace_on: frozenset[str], leave_out: Callable[[Path], bool] = lambda _path: False
) -> provider_pb2.DiffResponse:
    """Return the protocol's answer for a diff. Paths for which `leave_out` is true do not count."""
    response = provider_pb2.DiffResponse(hasDetailedDiff=True, changes=provider_pb2.DiffResponse.DIFF_NONE)
    kinds = {"add": "ADD", "delete": "DELETE", "update": "UPDATE"}
    for path, how in differences(before, now):
        if leave_out(path):
            continue
        # A block that comes or goes changes what it gives; an unknown one may turn out to be different, at any depth.
        block = value_at(before if how == "delete" else now, path)
        replaces = covers(replace_on, path) or reaches_into(replace_on, path, block)
        top = str(path[0])
        response.changes = provider_pb2.DiffResponse.DIFF_SOME
        response.diffs.append(top)
        if replaces:
            response.replaces.append(top)
            # Names are fixed, so the old one must be deleted first.
            response.deleteBeforeReplace = True
        name = f"{kinds[how]}_REPLACE" if replaces else kinds[how]
        response.detailedDiff[_quoted(path)].CopyFrom(
            provider_pb2.PropertyDiff(kind=provider_pb2.PropertyDiff.Kind.Value(name), inputDiff=True)
        )
    return response


def _quoted(path: Path) -> str:
    """Return a path in the engine's notation: `a[0]["b/c"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return text


@contextmanager
def failing(context: grpc.ServicerContext) -> Iterator[None]:
    """Convert a refusal to the protocol's error; if the object exists, to a failed initialization."""
    try:
        yield
    except RefusedError as refused:
        if refused.kept is not None:
            id_, live = refused.kept
            detail = any_pb2.Any()
            detail.Pack(provider_pb2.ErrorResourceInitFailed(id=id_, properties=to_wire(live), reasons=[str(refused)]))
            status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(refused), details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.UNKNOWN, str(refused))
