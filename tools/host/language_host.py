"""Python language host for the Pulumi engine, for machines without `pulumi-language-python`.

That program is not part of the modules that the engine is built from. The engine starts any executable of that
name that prints a port and serves the LanguageRuntime protocol. The SDK has such a server for its Automation API;
this file adds a handshake, and running the project's `__main__.py`.

It does not install dependencies, serve policy packs or run plugins written in Python.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import grpc
from pulumi.automation._server import LanguageServer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

_LOOK_EVERY_S = 0.2


class ProjectHost(LanguageServer):
    """Language host that runs the project's program instead of an inline function."""

    def __init__(self) -> None:
        super().__init__(program=lambda: None)

    def Handshake(  # noqa: N802 - the protocol's name
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        """Accept any engine: the lock pins the SDK to the engine's version."""
        del request, context
        return language_pb2.LanguageHandshakeResponse()

    def Run(  # noqa: N802 - the protocol's name
        self, request: language_pb2.RunRequest, context: grpc.ServicerContext
    ) -> language_pb2.RunResponse:
        """Run `__main__.py`, or the project's `main`, in this process."""
        os.chdir(request.pwd)
        directory = Path(request.info.program_directory)
        entry = request.info.entry_point
        program = directory if entry in ("", ".") else directory / entry
        loaded = sys.modules.get("infra")
        if loaded is not None and Path(str(loaded.__file__)).parents[1] != directory.resolve():
            # A fork of a rehearsal's server has imported this version; the program belongs to another one.
            for name in [name for name in sys.modules if name.partition(".")[0] == "infra"]:
                del sys.modules[name]
        # First in the path, so that `import infra` finds the project and not an installed package.
        sys.path.insert(0, str(directory))

        def run_program() -> None:
            runpy.run_path(str(program), run_name="__main__")

        self.program = run_program
        response: language_pb2.RunResponse = super().Run(request, context)  # type: ignore[no-untyped-call]
        # Every error has been logged; without `bail`, the engine would print it again.
        return language_pb2.RunResponse(bail=True) if response.error else response


def main() -> None:
    """Serve the engine that started this process."""
    engine = os.getppid()
    # A killed engine does not stop its hosts.
    serve(lambda: os.getppid() != engine)


def serve(gone: Callable[[], bool]) -> None:
    """Print the port, and serve until the engine ends this process or is `gone`."""
    answer(4, lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(ProjectHost(), server), gone)
    if gone():
        # The program's thread is blocked in a call to an engine that has exited.
        os._exit(1)


def answer(threads: int, add: Callable[[grpc.Server], None], gone: Callable[[], bool]) -> None:
    """Serve what `add` adds to a server: print the port, and return when the engine ends this process or is `gone`."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=threads), options=_GRPC_CHANNEL_OPTIONS)
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    over = threading.Event()
    # The engine interrupts hosts and plugins when it exits; a traceback would appear in the user's output.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    while not over.wait(_LOOK_EVERY_S) and not gone():
        pass
    server.stop(grace=None)


if __name__ == "__main__":
    main()
