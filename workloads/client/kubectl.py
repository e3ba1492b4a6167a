"""The user's kubectl with a stack's kubeconfig, which only the user can read and which ends with the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from workloads.exits import WorkloadError

TIMEOUT_S = 60
_FIXES = {
    r"unauthorized|must be logged in|provide credentials|getting credentials|expired": "your credentials are missing or"
    " have expired: sign in again (`gcloud auth login`, `aws sso login`)",
    r"forbidden|cannot .* resource": "your account lacks this permission: ask an administrator of the cluster",
    r"unable to connect|connection to the server|i/o timeout|no such host|tls handshake|connection refused": "the"
    " control plane does not answer: is it up, and is your address in access.authorizedNetworks, or your VPN up?",
}


class Kubectl(AbstractContextManager["Kubectl"]):
    """kubectl for one cluster and namespace. WorkloadError if there is no kubectl on PATH.

    Args:
        kubeconfig: Kubeconfig as JSON.
        namespace: Default namespace of the commands.
    """

    def __init__(self, kubeconfig: SecretStr, namespace: str) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise WorkloadError(
                "no kubectl on PATH, which connects to the cluster: install it (docs/gke.md, docs/eks.md)"
            )
        self.namespace = namespace
        self._program = program
        self._temporary = tempfile.TemporaryDirectory(prefix="rdma-ray-")  # mode 0700
        self.folder = Path(self._temporary.name)
        self._file = self.folder / "kubeconfig"
        self._file.write_text(kubeconfig.get_secret_value(), encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a kubectl with these arguments."""
        return [self._program, f"--kubeconfig={self._file}", f"--namespace={self.namespace}", *arguments]

    def run(self, *arguments: str) -> str:
        """Return what a kubectl with these arguments prints. WorkloadError with its last line if it fails."""
        try:
            done = subprocess.run(
                self.command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise WorkloadError(f"kubectl {' '.join(arguments)}: no answer within {TIMEOUT_S} s") from None
        if done.returncode:
            raise WorkloadError(f"kubectl {' '.join(arguments)}: {failure(done.stderr)}")
        return done.stdout

    def get(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, or those that further arguments of `kubectl get` select."""
        found: dict[str, Any] = json.loads(self.run("get", kind, *arguments, "--output=json"))
        items: list[dict[str, Any]] = found["items"] if found.get("kind") == "List" else [found]
        return items


def failure(said: str) -> str:
    """Return the last line that a failed kubectl printed, with the fix where there is a usual one."""
    reason = (said.strip().splitlines() or ["no reason given"])[-1]
    return f"{reason}\n{fix}" if (fix := usual_fix(said)) else reason


def usual_fix(said: str) -> str | None:
    """Return the fix for what a failed kubectl printed, if it did not reach the cluster or was not allowed to."""
    return next((fix for pattern, fix in _FIXES.items() if re.search(pattern, said, re.IGNORECASE)), None)
