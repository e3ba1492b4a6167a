"""Connection of a command to its stack: the outputs, Ray's REST interface, and kubectl where there is a Kubernetes."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from functools import cached_property

from workloads.client.api import Api
from workloads.client.forward import Forward
from workloads.client.kubectl import Kubectl
from workloads.client.stack import forwarded, read_outputs, refuse_jobs
from workloads.exits import WorkloadError
from workloads.options import StackOptions


class Connection(AbstractContextManager["Connection"]):
    """A stack's outputs at once; `api` and `kubectl` open on first use and close at the end of the context.

    WorkloadError if the stack has no outputs.
    """

    def __init__(self, options: StackOptions) -> None:
        self.outputs = read_outputs(options)
        self._open = ExitStack()

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def api(self) -> Api:
        """REST interface of the stack's Ray, through a port-forward of its own where the outputs have no address."""
        return Api.of(self.outputs, self.forward)

    @cached_property
    def forward(self) -> Forward | None:
        """Port-forward to the head; None if `ray.jobs` of the outputs is an address to connect to."""
        return self._open.enter_context(Forward(self.kubectl, self.outputs)) if forwarded(self.outputs) else None

    @cached_property
    def kubectl(self) -> Kubectl:
        """kubectl with the stack's kubeconfig and namespace. WorkloadError if the stack has no Kubernetes."""
        if self.outputs.kubeconfig is None:
            raise WorkloadError(f"a stack of target {self.outputs.target} has no Kubernetes")
        return self._open.enter_context(Kubectl(self.outputs.kubeconfig, self.outputs.namespace or "default"))

    def accepting_jobs(self) -> Api:
        """Return `api` if the stack's Ray accepts jobs. WorkloadError with the alternatives if it does not."""
        refuse_jobs(self.outputs)
        return self.api
