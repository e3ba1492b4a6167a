"""A warm start for sweeps: the engine's hosts and plugins as forks of one process that has imported everything.

An `up` of a rehearsal spends most of its time on imports. For hundreds of them, a sweep starts this server once and
puts small executables before the real ones: each connects, hands over what the engine gave it, and waits; the fork
that answers does what the real one would do. `make rehearse` and users never meet it.

The life of a fork hangs on its client's connection, and the client ends with its engine, so nothing outlives either.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rehearsal.clouds.registry import PACKAGES
from rehearsal.workspace import ROOT

_CLIENT = Path(__file__).with_name("fork_client.py")
_LANGUAGE = "language"
_MODULES = (
    "infra.eks.stack",
    "infra.gke.stack",
    "rehearsal.plugin",
    *(f"rehearsal.clouds.{package}.cloud" for package in PACKAGES),
    "tools.host.language_host",
    # The SDKs import these when they are first used, which a fork would do anew each time.
    *(
        f"pulumi_gcp.{name}"
        for name in ("compute", "container", "organizations", "projects", "serviceaccount", "storage")
    ),
    *(f"pulumi_aws.{name}" for name in ("autoscaling", "cloudwatch", "ec2", "eks", "fsx", "iam", "kms", "vpc")),
    *(f"pulumi_kubernetes.{name}.v1" for name in ("apps", "core", "networking", "policy")),
    *("pulumi_kubernetes.apiextensions", "pulumi_kubernetes.helm.v3", "pulumi_random", "grpc._server"),
)
_TAKES_S = 120


class ForkServer:
    """A server, from `with` to the end of the block; `bin` has the executables that the engine is to find."""

    def __enter__(self) -> ForkServer:
        """Start the server and wait until it has imported everything."""
        # A folder of the system's, because the address of a socket has at most about 100 characters.
        self._folder = tempfile.TemporaryDirectory(prefix="rdma-ray-")
        folder = Path(self._folder.name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        address = str(folder / "socket")
        names = {"pulumi-language-python": _LANGUAGE, **{f"pulumi-resource-{name}": name for name in PACKAGES}}
        for name, what in names.items():
            # Isolated and without site-packages: the client has to start at once.
            words = [sys.executable, "-I", "-S", str(_CLIENT), address, what]
            (self.bin / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (self.bin / name).chmod(0o755)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "rehearsal.fork_server", address],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        if self.server.stdout.readline() != "ready\n":
            self.__exit__(None, None, None)
            raise RuntimeError("the warm start's server ended before it was ready; its own words stand above")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the server; forks still at work end with their clients."""
        self.server.terminate()
        self.server.communicate(timeout=_TAKES_S)
        self._folder.cleanup()


def listen(address: str) -> None:
    """Import everything, say so, and fork for every client until the process is terminated or its starter is gone."""
    _import_everything()
    assert threading.active_count() == 1, "a fork would lose the other threads"
    # What has been made so far is shared with every fork; a collection would copy it.
    gc.collect()
    gc.freeze()
    # Nobody waits for a fork: the system does.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(64)
    starter = os.getppid()
    server.settimeout(1)
    print("ready", flush=True)
    while os.getppid() == starter:
        try:
            client, _ = server.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            server.close()
            _become(client)
        client.close()


def _import_everything() -> None:
    for module in _MODULES:
        # Some packages of the SDKs load themselves only when something of them is asked for.
        hasattr(importlib.import_module(module), "__all__")


def _become(client: socket.socket) -> None:
    """Be what the client was started as, with its environment, folder and output; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        client.settimeout(None)
        text, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 3)
        while not text.endswith(b"\n"):
            more = client.recv(1 << 20)
            if not more:
                # The client ended before it had said all: so had its engine.
                return
            text += more
        request = json.loads(text)
        *outputs, folder = descriptors
        for number, output in enumerate(outputs, start=1):
            os.dup2(output, number)
        os.fchdir(folder)
        for descriptor in descriptors:
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        gone = threading.Event()
        threading.Thread(target=_watch, args=(client, gone), daemon=True).start()
        if request["what"] == _LANGUAGE:
            from tools.host import language_host

            language_host.serve(gone.is_set)
            status = 0
        else:
            from rehearsal import plugin

            status = plugin.serve(request["what"], request["engine"], gone.is_set)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not an exit of the server's, whose code runs above this.
        os._exit(status)


def _watch(client: socket.socket, gone: threading.Event) -> None:
    with suppress(OSError):
        # Nothing is ever sent; the end of the connection is the end of the client.
        client.recv(1)
    gone.set()


if __name__ == "__main__":
    listen(sys.argv[1])
