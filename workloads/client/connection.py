"""Connection of a command to its stack: the outputs, Ray's REST interface, and kubectl where there is a Kubernetes."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cached_property

from pydantic import SecretStr

from infra.catalog.names import DASHBOARD_PORT, SERVE_PORT
from workloads.client.api import JobsApi
from workloads.client.forward import Forward
from workloads.client.head import kept_out_of
from workloads.client.kubectl import Kubectl
from workloads.client.stack import forwarded, read_outputs, refuse_jobs
from workloads.exits import WorkloadError
from workloads.options import StackOptions

KEPT_OUT_S = 5.0


class Connection(AbstractContextManager["Connection"]):
    """A stack's outputs at once; `api` and `kubectl` open on first use and close at the end of the context.

    WorkloadError if the stack has no outputs.
    """

    def __init__(self, options: StackOptions) -> None:
        self.outputs = read_outputs(options)
        self._open = ExitStack()
        self._kept_out: tuple[float, dict[str, str]] = (-math.inf, {})

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def api(self) -> JobsApi:
        """REST interface of the stack's Ray, through its own port-forward where the outputs have no address."""
        api = JobsApi.of(self.outputs, self.forward)
        api.kept_out = self.kept_out
        return api

    def kept_out(self) -> dict[str, str]:
        """Return the reason of each node that `ray.check` keeps out, by node; empty without Kubernetes.

        Empty also where the account may not list pods: `rdma-ray doctor` reports that. One answer is for some seconds,
        because a replayed log may have many lines about a wait.
        """
        asked, answer = self._kept_out
        if self.outputs.on_kubernetes and time.monotonic() - asked > KEPT_OUT_S:
            answer = {}
            with suppress(WorkloadError):
                answer = kept_out_of(self.kubectl)
            self._kept_out = time.monotonic(), answer
        return answer

    @cached_property
    def forward(self) -> Forward | None:
        """Port-forward to the head; None if `ray.jobs` of the outputs is an address to connect to."""
        here = forwarded(self.outputs, self.outputs.ray.jobs, DASHBOARD_PORT)
        return self._open.enter_context(Forward(self.kubectl, self.outputs)) if here else None

    @property
    def serving(self) -> Forward | None:
        """Port-forward to Ray Serve; None if `ray.serve` of the outputs is an address to connect to.

        WorkloadError if the stack serves nothing.
        """
        ray = self.outputs.ray
        if ray.serve is None:
            raise WorkloadError(
                f"{ray.cluster!r} answers no requests: the stack's ray.mode is {ray.mode}\n"
                "for a service: set ray.mode to service and the section service (docs/serving.md), and `make up`"
            )
        if not forwarded(self.outputs, ray.serve, SERVE_PORT):
            return None
        return self._open.enter_context(Forward(self.kubectl, self.outputs, SERVE_PORT))

    @property
    def serve_token(self) -> SecretStr:
        """Token of the service, which its requests need. WorkloadError if the stack is older than these tokens."""
        if (token := self.outputs.ray.serve_token) is None:
            raise WorkloadError(
                f"the service {self.outputs.ray.cluster!r} still takes Ray's token, with which a client could run code:"
                " `make up` gives it a token for requests (docs/serving.md)"
            )
        return token

    @cached_property
    def kubectl(self) -> Kubectl:
        """kubectl with the stack's kubeconfig or context, and its namespace.

        WorkloadError if the stack has no Kubernetes.
        """
        access = self.outputs.kubeconfig or self.outputs.context
        if access is None:
            raise WorkloadError(f"a stack of target {self.outputs.target} has no Kubernetes")
        return self._open.enter_context(Kubectl(access, self.outputs.namespace or "default"))

    def accepting_jobs(self) -> JobsApi:
        """Return `api` if the stack's Ray accepts jobs. WorkloadError with the alternatives if it does not."""
        refuse_jobs(self.outputs)
        return self.api
