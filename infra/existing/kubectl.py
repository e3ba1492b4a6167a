"""The user's kubectl as the stack's check of a cluster uses it: reads, access reviews and dry runs, nothing else.

Every call is one request of one process (`--raw`): kubectl neither discovers the kinds of the cluster nor caches them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from infra.terminal import printable

Json = dict[str, Any]

TIMEOUT_S = 30
LONGEST = 600
"""Characters of an error that a problem repeats."""
DRY_RUN = "?dryRun=All&fieldValidation=Strict"

_NOISE = re.compile(r"Warning: |[EIW]\d{4} ")
_ERROR = re.compile(r"Error from server|error: |The .* is invalid")


class KubectlError(Exception):
    """The API server's answer is an error; `reason` is that of its status, such as NotFound, or empty.

    The message is as `one_line` returns it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(one_line(message))
        self.reason = reason


@dataclass
class Kubectl:
    """kubectl with one context of the user's kubeconfig, or with a kubeconfig file of its own."""

    context: str = ""
    kubeconfig: str = ""

    def read(self, path: str) -> Json:
        """Return the answer to a GET of an API path. Raises KubectlError."""
        return _object(self._run("get", f"--raw={path}"))

    def allowed(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Return whether the user has a right, by an access review. Raises KubectlError."""
        resource, _, subresource = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        attributes |= {"subresource": subresource} if subresource else {}
        api, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
        review = {"apiVersion": api, "kind": kind, "spec": {"resourceAttributes": attributes}}
        status = self._post(f"/apis/{api}/selfsubjectaccessreviews", review).get("status")
        return isinstance(status, dict) and status.get("allowed") is True

    def try_create(self, path: str, body: Json) -> None:
        """Create an object as a dry run, with strict field validation. Raises KubectlError."""
        self._post(f"{path}{DRY_RUN}", body)

    def _post(self, path: str, body: Json) -> Json:
        return _object(self._run("create", f"--raw={path}", "--filename=-", stdin=json.dumps(body)))

    def _run(self, *arguments: str, stdin: str = "") -> str:
        program = shutil.which("kubectl")
        if program is None:
            raise KubectlError("NoKubectl", "there is no kubectl on PATH")
        access = f"--kubeconfig={self.kubeconfig}" if self.kubeconfig else f"--context={self.context}"
        command = [program, access, *arguments]
        try:
            done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise KubectlError("Timeout", f"no answer within {TIMEOUT_S} s") from None
        except OSError as error:
            raise KubectlError("NoKubectl", f"{program} does not run: {error.strerror}") from None
        if done.returncode:
            raise refusal(done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")


def refusal(said: str) -> KubectlError:
    """Return the error that a failed kubectl printed, which may have several lines, below warnings."""
    lines = [line for line in said.splitlines() if line.strip() and not _NOISE.match(line)]
    start = next((number for number, line in enumerate(lines) if _ERROR.match(line)), len(lines) - 1)
    text = "\n".join(lines[start:]) or "kubectl gave no reason"
    status = re.match(r"Error from server(?: \((\w+)\))?: |error: ", text)
    return KubectlError((status and status[1]) or "", text.removeprefix(status[0]) if status else text)


def one_line(text: str) -> str:
    """Return text of the cluster for a sentence of a message: safe to print, not too long, without a full stop."""
    line = printable(" ".join(text.split()))
    return line.rstrip(".?! ") if len(line) <= LONGEST else f"{line[:LONGEST]} (...)"


def _object(text: str) -> Json:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise KubectlError("", "the answer is not JSON") from None
    if not isinstance(answer, dict):
        raise KubectlError("", "the answer is not a JSON object")
    return answer
