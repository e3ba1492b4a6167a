"""`kubectl port-forward` to a port of a stack: it ends with the command, and starts again on use."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from contextlib import AbstractContextManager, ExitStack

from infra.catalog.names import DASHBOARD_PORT
from infra.outputs import Outputs
from workloads.client.head import explain, service
from workloads.client.kubectl import Kubectl, failure, usual_fix
from workloads.exits import WorkloadError

READY_S = 60  # for the user's credential plugin and a distant control plane
_READY = re.compile(r"^Forwarding from 127\.0\.0\.1:(\d+) -> \d+$", re.MULTILINE)


class Forward(AbstractContextManager["Forward"]):
    """Port-forward on a free port of 127.0.0.1.

    kubectl ends when it loses the pod, and may be stuck when it loses the control plane. `address` starts it again, on
    another port, if it has ended; `drop` ends it after a failed request.

    Args:
        outputs: The stack's outputs: they name the head.
        remote: Port of the Service, or of the pod.
        pod: Name of a pod to connect to instead of the Service. kubectl connects to its loopback as well.
        local: Port of this machine; 0 for a free one.
    """

    def __init__(
        self, kubectl: Kubectl, outputs: Outputs, remote: int = DASHBOARD_PORT, *, pod: str = "", local: int = 0
    ) -> None:
        self.keep_port = bool(local)
        """Whether it starts again on the same port, for a browser."""
        self._kubectl, self._outputs, self._remote = kubectl, outputs, remote
        self.folder = kubectl.folder
        """Private folder, which ends with the command."""
        self._pod = pod
        self._log = kubectl.folder / f"{pod or 'port-forward'}-{remote}.log"
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = local

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._end()

    def address(self) -> str:
        """Return `http://127.0.0.1:PORT`. WorkloadError with the reason if kubectl cannot forward."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._end()
                self._start()
            return self._address

    def runs(self, address: str) -> bool:
        """Return whether kubectl still listens at an address."""
        process = self._process
        return process is not None and process.poll() is None and address == self._address

    def drop(self, address: str) -> None:
        """End the kubectl that listens at an address, if that is still the current one."""
        with self._lock:
            if address == self._address:
                self._end()

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _start(self) -> None:
        target = f"pod/{self._pod}" if self._pod else f"svc/{service(self._kubectl, self._outputs, self._remote)}"
        port = f"{self._port if self.keep_port and self._port else ''}:{self._remote}"
        # The timeout is for a Service without pods.
        options = ("--address=127.0.0.1", "--pod-running-timeout=1s")
        # A file, because kubectl prints a line for each connection, which would fill a pipe.
        with self._log.open("wb") as log:
            self._process = self._open.enter_context(
                self._kubectl.guarded(
                    "port-forward",
                    *options,
                    target,
                    port,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C must not end it: the command may still stop its job
                )
            )
        deadline = time.monotonic() + READY_S
        while True:
            ended = self._process.poll() is not None
            said = self._log.read_text(errors="replace")
            if match := _READY.search(said):
                self._port = int(match[1])
                return
            if ended or time.monotonic() > deadline:
                self._end()
                reason = failure(said) if ended else f"kubectl port-forward is not ready within {READY_S} s"
                if ended and not usual_fix(said) and not self._pod:
                    reason = explain(self._kubectl, self._outputs) or reason
                raise WorkloadError(f"no connection to {self._pod or 'Ray'}: {reason}")
            time.sleep(0.05)

    def _end(self) -> None:
        self._process = None
        self._open.close()
