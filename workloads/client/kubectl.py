"""The user's kubectl with a stack's kubeconfig, which only the user can read and which is removed after the command,
or with a context of the user's own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from workloads import untrusted
from workloads.exits import WorkloadError

TIMEOUT_S = 60
LARGEST = 2**25
"""Bytes of an answer: 1,000 nodes with their lists of images have about as many."""
LARGEST_ERROR = 2**16
_FIXES = {
    r"unauthorized|must be logged in|provide credentials|getting credentials|expired": "your credentials are missing or"
    " have expired: sign in again (`gcloud auth login`, `aws sso login`)",
    r"current-context must exist": "your kubeconfig has no current context: choose one with `kubectl config"
    " use-context`, or with @CONTEXT after the name of the Secret",
    r"context was not found|context \S+ does not exist|cannot locate context": "your kubeconfig does not have the"
    " context: set KUBECONFIG, or rename one of those that `kubectl config get-contexts` lists",
    r"forbidden|cannot .* resource": "your account lacks this permission: ask an administrator of the cluster",
    r"unable to connect|connection to the server|i/o timeout|no such host|tls handshake|connection refused": "the"
    " control plane does not answer: is it up, and is your address in access.authorizedNetworks, or your VPN up?",
}


# Reads the ID of kubectl's process, and later an empty line. If its input closes before that line, the command has
# ended in any way, even by SIGKILL, and has left its folder ($0) with the kubeconfig.
_GUARD = """
read -r kubectl && read -r _ && exit
rm -rf "$0"
[ -z "$kubectl" ] || kill -9 "$kubectl"
"""


class Kubectl(AbstractContextManager["Kubectl"]):
    """kubectl for one cluster and namespace. WorkloadError if there is no kubectl on PATH.

    Args:
        kubeconfig: Kubeconfig as JSON, or the name of a context of the user's own kubeconfig; None for the current one.
        namespace: Default namespace of the commands; None for that of the context.
    """

    def __init__(self, kubeconfig: SecretStr | str | None, namespace: str | None) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise WorkloadError(
                "no kubectl on PATH, which connects to the cluster: install it (docs/gke.md, docs/eks.md)"
            )
        self._options = [] if namespace is None else [f"--namespace={namespace}"]
        self._program = program
        self._temporary = tempfile.TemporaryDirectory(prefix="rdma-ray-")  # mode 0700
        self.folder = Path(self._temporary.name)
        if isinstance(kubeconfig, str):
            self._options.insert(0, f"--context={kubeconfig}")
        elif kubeconfig is not None:
            file = self.folder / "kubeconfig"
            file.write_text(kubeconfig.get_secret_value(), encoding="utf-8")
            self._options.insert(0, f"--kubeconfig={file}")

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a kubectl with these arguments."""
        return [self._program, *self._options, *arguments]

    def run(self, *arguments: str) -> str:
        """Return the output of a kubectl with these arguments; bytes that are not UTF-8 are replaced.

        WorkloadError with its last line if it fails, and if it prints more than LARGEST bytes.
        """
        return self.read(*arguments).decode("utf-8", "replace")

    def read(self, *arguments: str, largest: int | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
        """Return the output as `run` does, within other limits."""
        largest = largest or LARGEST
        # Without the program of an `exec`.
        shown = arguments[: arguments.index("--")] if "--" in arguments else arguments
        name = f"kubectl {' '.join(shown)}"
        with (
            tempfile.TemporaryFile() as complaints,
            subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, stderr=complaints) as process,
        ):
            assert process.stdout is not None
            late = threading.Timer(timeout_s, process.kill)
            late.start()
            try:
                output = process.stdout.read(largest + 1)
                if len(output) > largest:
                    raise WorkloadError(f"{name}: the answer is larger than {largest // 2**20} MiB")
                process.wait()
                if not late.is_alive():
                    raise WorkloadError(f"{name}: no answer within {timeout_s:.0f} s")
            finally:
                late.cancel()
                process.kill()
            complaints.seek(0)
            if process.returncode:
                raise WorkloadError(f"{name}: {failure(complaints.read(LARGEST_ERROR).decode(errors='replace'))}")
        return output

    @contextmanager
    def guarded(self, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Start a kubectl that ends with the context, and with this process in any way, as its kubeconfig does.

        Args:
            streams: Keyword arguments of Popen.
        """
        with (
            subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # a closed terminal must not end it
            ) as guard,
            subprocess.Popen(self.command(*arguments), **streams) as process,
        ):
            _tell(guard, f"{process.pid}\n")
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                _tell(guard, "\n")

    def get(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, or those that further arguments of `kubectl get` select.

        The fields are as the API server has them. They may have any type, as in a custom resource.
        """
        try:
            document = untrusted.read(self.run("get", kind, *arguments, "--output=json"))
        except ValueError as error:
            raise WorkloadError(f"kubectl get {kind}: the answer is not JSON: {error}") from None
        listed = isinstance(document, dict) and document.get("kind") == "List"
        items = document.get("items") if listed else [document]
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise WorkloadError(f"kubectl get {kind}: the answer contains something other than objects")
        return items


def _tell(guard: subprocess.Popen[bytes], line: str) -> None:
    assert guard.stdin is not None
    with suppress(BrokenPipeError):  # it was killed
        guard.stdin.write(line.encode())


def failure(said: str) -> str:
    """Return the last line that a failed kubectl printed, with the fix where there is a usual one."""
    reason = (said.strip().splitlines() or ["no reason given"])[-1]
    return f"{reason}\n{fix}" if (fix := usual_fix(said)) else reason


def usual_fix(said: str) -> str | None:
    """Return the fix for the error of a failed kubectl, if it did not reach the cluster or lacked permission."""
    return next((fix for pattern, fix in _FIXES.items() if re.search(pattern, said, re.IGNORECASE)), None)
