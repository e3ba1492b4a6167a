"""Fork server: the engine's hosts and plugins are forks of one process that has imported everything.

An `up` in a rehearsal spends most of its time on imports. A rehearsal starts this server once and replaces the real
executables by small clients. A client connects, sends its arguments, and waits; a fork of the server does the work. A
fork ends with its client's connection, and the client ends with its engine.
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
from rehearsal.engine.workspace import ROOT

_CLIENT = Path(__file__).with_name("fork_client.py")
_LANGUAGE, _KUBECTL = "language", "kubectl"
_MODULES = (
    "infra.eks.stack",
    "infra.existing.stack",
    "infra.gke.stack",
    "rehearsal.clouds.kubernetes.api_server",
    "rehearsal.plugin",
    "rehearsal.users_kubectl",
    *(f"rehearsal.clouds.{package}.cloud" for package in PACKAGES),
    "tools.host.language_host",
    # The SDKs import these on first use; otherwise every fork would repeat the imports.
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
    """Fork server for the duration of a `with` block; `bin` holds the executables for the engine."""

    def __enter__(self) -> ForkServer:
        """Start the server and wait until it has imported everything."""
        # A folder in the system's temporary folder, because a socket address is limited to about 100 characters.
        self._folder = tempfile.TemporaryDirectory(prefix="rdma-ray-")
        folder = Path(self._folder.name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        address = str(folder / "socket")
        names = {
            "pulumi-language-python": _LANGUAGE,
            "kubectl": _KUBECTL,
            **{f"pulumi-resource-{name}": name for name in PACKAGES},
        }
        for name, what in names.items():
            # Isolated and without site-packages, so that the client starts fast.
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
            raise RuntimeError("the fork server ended before it was ready; see its output above")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop the server. Running forks end with their clients."""
        self.server.terminate()
        self.server.communicate(timeout=_TAKES_S)
        self._folder.cleanup()


def listen(address: str) -> None:
    """Import everything, print "ready", and fork for every client until the process or its parent ends."""
    _import_everything()
    assert threading.active_count() == 1, "a fork does not copy other threads"
    # Forks share these objects; garbage collection would copy them.
    gc.collect()
    gc.freeze()
    # The system reaps the forks.
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
        # Some packages of the SDKs load only when an attribute is read.
        hasattr(importlib.import_module(module), "__all__")


def _become(client: socket.socket) -> None:
    """Run the client's request with its environment, folder and output. Does not return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        client.settimeout(None)
        text, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 4)
        while not text.endswith(b"\n"):
            more = client.recv(1 << 20)
            if not more:
                # The client ended before it sent the request, so its engine has ended.
                return
            text += more
        request = json.loads(text)
        *outputs, folder, stdin = descriptors
        os.dup2(stdin, 0)
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
        elif request["what"] == _KUBECTL:
            from rehearsal import users_kubectl

            status = users_kubectl.main(request["arguments"])
            sys.stdout.flush()
            client.send(bytes([status]))
        else:
            from rehearsal import plugin

            status = plugin.serve(request["what"], request["engine"], gone.is_set)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Skip the server's own exit handlers.
        os._exit(status)


def _watch(client: socket.socket, gone: threading.Event) -> None:
    with suppress(OSError):
        # The client sends nothing more: the connection closes when the client ends.
        client.recv(1)
    gone.set()


if __name__ == "__main__":
    listen(sys.argv[1])
