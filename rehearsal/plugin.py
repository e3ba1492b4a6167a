"""Plugin process of the engine for a simulated cloud: print the port, serve until the engine ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent import futures

import grpc
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2_grpc

from rehearsal.clouds.registry import cloud
from rehearsal.engine.protocol import Provider
from rehearsal.engine.state import State
from rehearsal.engine.workspace import NotOursError, of_this_process

_LOOK_EVERY_S = 0.2


def main(package: str) -> int:
    """Serve the simulated cloud of a provider package to the engine that started this process."""
    engine = os.getppid()
    # A killed engine does not stop its plugins.
    return serve(package, engine, lambda: os.getppid() != engine)


def serve(package: str, engine: int, gone: Callable[[], bool]) -> int:
    """Serve a package to the engine with this process id until the engine cancels or `gone`; return the exit status."""
    try:
        workspace = of_this_process()
    except NotOursError as problem:
        print(f"pulumi-resource-{package}: {problem}", file=sys.stderr)
        return 1
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=_GRPC_CHANNEL_OPTIONS)
    servicer = _servicer(package, State(workspace.cloud_state), engine)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    while not over.wait(_LOOK_EVERY_S) and not gone():
        pass
    server.stop(grace=None)
    return 0


def _servicer(package: str, state: State, engine: int) -> Provider:
    if package == "kubernetes":
        with state.transaction() as view:
            setting = view.setting("cluster")
        if setting:
            # Depth quick does not need these imports.
            from rehearsal.cluster.provider import ClusterProvider, api_of
            from rehearsal.cluster.scaling import Scale

            scale = Scale.of(setting["scale"]) if "scale" in setting else None
            return ClusterProvider(cloud(package), state, engine, api_of(setting), scale)
    return Provider(cloud(package), state, engine)


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # A normal exit would wait for pending requests of an engine that has ended.
    os._exit(status)
