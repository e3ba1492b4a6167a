"""Plugin process of the engine for a simulated cloud: print the port, serve until the engine ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

from pulumi.runtime.proto import provider_pb2_grpc

from rehearsal.clouds.registry import cloud
from rehearsal.engine.protocol import Provider
from rehearsal.engine.state import State
from rehearsal.engine.workspace import NotOursError, of_this_process
from tools.host.language_host import answer


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
    servicer = _servicer(package, State(workspace.cloud_state), engine)
    answer(16, partial(provider_pb2_grpc.add_ResourceProviderServicer_to_server, servicer), gone)
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
