"""Client side of the provider protocol over gRPC, for tests without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from rehearsal.engine import faults
from rehearsal.engine.faults import Fault
from rehearsal.engine.kind import Cloud, Json
from rehearsal.engine.protocol import Provider
from rehearsal.engine.state import State
from rehearsal.engine.values import from_wire, to_wire

NO_PROCESS = 2**30
"""Above every process id of Linux and macOS, so that an accidental kill hits no process."""


@dataclass
class Client:
    """Client of the protocol."""

    stub: provider_pb2_grpc.ResourceProviderStub
    state: State

    def create(self, type_: str, inputs: Json, *, preview: bool = False, urn: str = "urn:a") -> tuple[str, Json]:
        """Create an object; return id and outputs."""
        response = self.stub.Create(
            provider_pb2.CreateRequest(urn=urn, type=type_, properties=to_wire(inputs), preview=preview)
        )
        return response.id, from_wire(response.properties)

    def update(
        self,
        type_: str,
        id_: str,
        before: Json,
        now: Json,
        *,
        preview: bool = False,
        olds: Any = None,
        ignores: Sequence[str] = (),
    ) -> Json:
        """Update an object; return the outputs."""
        request = provider_pb2.UpdateRequest(
            id=id_,
            urn="urn:a",
            type=type_,
            old_inputs=to_wire(before),
            news=to_wire(now),
            olds=to_wire(olds or {}),
            preview=preview,
            ignoreChanges=ignores,
        )
        return from_wire(self.stub.Update(request).properties)

    def read(self, type_: str, id_: str, asked: Json) -> tuple[Json, Json] | None:
        """Read current inputs and outputs; None if the object does not exist."""
        response = self.stub.Read(
            provider_pb2.ReadRequest(id=id_, urn="urn:a", type=type_, inputs=to_wire(asked), properties=to_wire(asked))
        )
        return (from_wire(response.inputs), from_wire(response.properties)) if response.id else None

    def delete(self, type_: str, id_: str, asked: Json, *, within_s: float = 0) -> None:
        """Delete an object; `within_s` is the program's timeout, 0 for none."""
        request = provider_pb2.DeleteRequest(
            id=id_, urn="urn:a", type=type_, old_inputs=to_wire(asked), timeout=within_s
        )
        self.stub.Delete(request)

    def diff(
        self, type_: str, before: Json, now: Json, *, id_: str = "x", ignores: Sequence[str] = ()
    ) -> provider_pb2.DiffResponse:
        """Return the diff of two versions of the inputs."""
        request = provider_pb2.DiffRequest(
            id=id_,
            urn="urn:a",
            type=type_,
            old_inputs=to_wire(before),
            news=to_wire(now),
            olds=to_wire(before),
            ignoreChanges=ignores,
        )
        response: provider_pb2.DiffResponse = self.stub.Diff(request)
        return response

    def order(self, *texts: str) -> None:
        """Inject faults."""
        with self.state.transaction() as view:
            faults.schedule(view, [Fault.parse(text) for text in texts])

    def live(self, type_: str, id_: str) -> Json | None:
        """Return the objects in the cloud."""
        with self.state.transaction() as view:
            return view.get(type_, id_)

    def outcomes(self) -> list[str]:
        """Return the outcomes of the steps."""
        with self.state.transaction() as view:
            return [step.outcome for step in view.steps("")]


@contextmanager
def served(
    cloud: Cloud, state: Path, config: Mapping[str, Any], provider: Callable[[Cloud, State, int], Provider] = Provider
) -> Iterator[Client]:
    """Serve a cloud on its own port and configure it."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    shared = State(state)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider(cloud, shared, NO_PROCESS), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        stub.Configure(provider_pb2.ConfigureRequest(args=to_wire(config)))
        yield Client(stub, shared)
    server.stop(grace=None)
