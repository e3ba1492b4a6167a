"""`kubectl port-forward`, as the documents tell users to reach a head: for the tests, and for a rehearsal's job."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.kubernetes import builds

DASHBOARD = 8265


class ForwardError(RuntimeError):
    """`kubectl` did not forward; says what it said."""


@contextmanager
def forwarded(kubeconfig: Path, namespace: str, target: str, port: int = DASHBOARD) -> Iterator[int]:
    """Forward to a port of a target, such as "svc/NAME" or "pod/NAME"; yields the port on 127.0.0.1.

    Raises `ForwardError`.
    """
    kubectl = builds.programs("kubectl")["kubectl"]
    command = [str(kubectl), f"--kubeconfig={kubeconfig}", "-n", namespace, "port-forward", target, f":{port}"]
    # A file, since a pipe that nobody reads would fill and stop it.
    with tempfile.TemporaryFile("w+") as problems:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=problems, text=True)
        assert process.stdout is not None
        try:
            match = re.search(r"127\.0\.0\.1:(\d+) ->", process.stdout.readline())
            if match is None:
                problems.seek(0)
                raise ForwardError(f"kubectl port-forward {target}: {problems.read().strip()}")
            yield int(match[1])
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
