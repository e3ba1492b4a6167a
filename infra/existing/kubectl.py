"""The user's kubectl as the stack's check of a cluster uses it: reads, access reviews and dry runs, nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

TIMEOUT_S = 30
DRY_RUN = "?dryRun=All&fieldValidation=Strict"


class RefusedError(Exception):
    """The API server's answer is an error; `reason` is that of its status, such as NotFound, or empty."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one context of the user's kubeconfig."""

    context: str

    def read(self, path: str) -> Json:
        """Return the answer to a GET of an API path. Raises RefusedError."""
        return _object(self._run("get", f"--raw={path}"))

    def exists(self, kind: str, name: str, namespace: str) -> bool:
        """Return whether an object exists, without its content. Raises RefusedError, but for NotFound."""
        return bool(self._run("get", kind, name, f"--namespace={namespace}", "--output=name", "--ignore-not-found"))

    def allowed(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Return whether the user has a right, by an access review. Raises RefusedError."""
        resource, _, subresource = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        attributes |= {"subresource": subresource} if subresource else {}
        api, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
        review = {"apiVersion": api, "kind": kind, "spec": {"resourceAttributes": attributes}}
        answer = self._post(f"/apis/{api}/selfsubjectaccessreviews", review)
        return (answer.get("status") or {}).get("allowed") is True

    def try_create(self, path: str, body: Json) -> None:
        """Create an object as a dry run, with strict field validation. Raises RefusedError."""
        self._post(f"{path}{DRY_RUN}", body)

    def _post(self, path: str, body: Json) -> Json:
        return _object(self._run("create", f"--raw={path}", "--filename=-", stdin=json.dumps(body)))

    def _run(self, *arguments: str, stdin: str = "") -> str:
        program = shutil.which("kubectl")
        if program is None:
            raise RefusedError("NoKubectl", "there is no kubectl on PATH")
        command = [program, f"--context={self.context}", *arguments]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RefusedError("Timeout", f"no answer within {TIMEOUT_S} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["kubectl gave no reason"])[-1]
            reason = re.match(r"Error from server \((\w+)\): ", last)
            raise RefusedError(reason[1] if reason else "", last.removeprefix(reason[0]) if reason else last)
        return done.stdout


def _object(text: str) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        raise RefusedError("", "the answer is not JSON") from None
    if not isinstance(answer, dict):
        raise RefusedError("", "the answer is not a JSON object")
    return answer
