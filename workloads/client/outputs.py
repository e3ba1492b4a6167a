"""A stack's outputs from text, and from the Secret in its cluster that the setting access.outputsSecret writes.

Whoever may write the Secret decides nothing but what this stack's Ray is: kubectl uses the context of the user's
kubeconfig, and names of the Secret's place go before those in its content.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from infra.catalog.names import CLIENT_PORT, DASHBOARD_PORT, OUTPUTS_KEY, SERVE_PORT, outputs_secret
from infra.outputs import FORWARDED, Outputs
from workloads.client.kubectl import Kubectl
from workloads.exits import WorkloadError
from workloads.results.files import loads
from workloads.untrusted import MALFORMED

SECRET = "secret:"
"""How `--outputs` begins if it names a Secret."""
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"  # no option of kubectl, and no other path of the API server
_PLACE = re.compile(rf"{SECRET}(?:({_NAME})/)?({_NAME})(?:@(.+))?")
LARGEST = 2**20
"""Bytes of a Secret's content (Kubernetes docs, concepts/configuration/secret, read 2026-11-28)."""


def parsed(text: str | bytes, where: str, fix: str) -> Outputs:
    """Return the outputs in JSON text. WorkloadError if they do not match the contract, without their values."""
    try:
        return Outputs.model_validate_json(text)
    except ValidationError as error:
        # Only names and messages: the values may include the token.
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'the document'}: {e['msg']}"
            for e in error.errors(include_input=False, include_url=False, include_context=False)
        )
    # Raised outside the except block: a chained ValidationError would print its inputs.
    raise WorkloadError(f"the outputs of {where} do not match the contract of infra/outputs.py: {problems}\n{fix}")


@dataclass(frozen=True)
class SecretPlace:
    """A Secret of a cluster, by a context of the user's kubeconfig."""

    name: str
    namespace: str
    context: str

    def __str__(self) -> str:
        return f"Secret {self.name} in namespace {self.namespace} of context {self.context}"

    @classmethod
    def of(cls, text: str) -> SecretPlace:
        """Return the place that `--outputs` names: secret:[NAMESPACE/]NAME[@CONTEXT].

        Without one, the context is the current one, and the namespace that of the context, as kubectl has them.
        """
        if (match := _PLACE.fullmatch(text)) is None:
            raise WorkloadError(
                f"--outputs {text}: write secret:NAME or secret:NAMESPACE/NAME, and @CONTEXT after it for a context"
                " of your kubeconfig"
            )
        namespace, name, context = match.groups()
        with Kubectl(context, None) as kubectl:
            view = kubectl.run("config", "view", "--minify", "--output=json")
        try:
            [found] = loads(view)["contexts"]
            namespace = namespace or found["context"].get("namespace") or "default"
            return cls(name, str(namespace), context or str(found["name"]))
        except MALFORMED:
            raise WorkloadError("kubectl config view: the answer has no context: set KUBECONFIG") from None

    def read(self) -> Outputs:
        """Return the outputs in the Secret, with this place's context. WorkloadError if it has none to trust."""
        with Kubectl(self.context, self.namespace) as kubectl:
            try:
                [body] = kubectl.get("secret", self.name)
            except WorkloadError as error:
                raise WorkloadError(self._refused(str(error))) from None
        fix = "bring its stack up to date with `make up`"
        try:
            text = base64.b64decode(body["data"][OUTPUTS_KEY], validate=True)
        except MALFORMED:
            raise WorkloadError(
                f"the {self} has no key {OUTPUTS_KEY} with outputs: choose the one that access.outputsSecret writes"
            ) from None
        if len(text) > LARGEST:
            raise WorkloadError(f"the {self} has more than {LARGEST >> 20} MiB: {fix}")
        outputs = parsed(text, f"the {self}", fix)
        if problem := self._problem(outputs, text):
            raise WorkloadError(f"the {self} {problem}, which its stack does not write: do not use it, and {fix}")
        return outputs.model_copy(update={"context": self.context})

    def _refused(self, reason: str) -> str:
        if "(NotFound)" in reason:
            return f"there is no {self}: its stack writes it with access.outputsSecret: true (docs/install.md)"
        if "(Forbidden)" in reason:
            return (
                f"your account may not read the {self}: ask an administrator to bind it to the Role of this name with"
                f" `kubectl create rolebinding -n {self.namespace} --role {self.name} …` (docs/install.md)"
            )
        return f"cannot read the {self}: {reason}"

    def _problem(self, outputs: Outputs, text: bytes) -> str | None:
        """Return what the content decides and must not."""
        # The outputs of a team may have a kubeconfig, and nothing here checks them.
        if outputs.kubeconfig is not None or outputs.context is not None or outputs.teams is not None:
            return "names another way into the cluster"
        if outputs.target not in ("gke", "eks", "kubernetes") or outputs.namespace != self.namespace:
            return "is of another namespace"
        if outputs_secret(outputs.ray.cluster) != self.name:
            return "is of another Ray cluster"
        ray, http = outputs.ray, f"http://{FORWARDED}"
        addresses = (ray.dashboard, ray.jobs, ray.client, ray.serve or f"{http}:{SERVE_PORT}")
        forwarded = (*2 * (f"{http}:{DASHBOARD_PORT}",), f"ray://{FORWARDED}:{CLIENT_PORT}", f"{http}:{SERVE_PORT}")
        if addresses != forwarded:
            return "sends you to another address"
        if not all(each.isprintable() for each in _texts(loads(text))):
            return "has control characters"
        return None


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)
