"""What a stack's `ray.mode` means to whoever asks its Ray: in two of the three it runs one entry point of its own."""

from __future__ import annotations

from infra.outputs import Outputs
from workloads.exits import WorkloadError

KINDS = {"job": ("rayjob", "docs/queues.md"), "indexed-job": ("job", "docs/indexed-job.md")}
"""What a stack makes in place of a RayCluster, as kubectl calls it, and the page about it."""


def refuse_jobs(outputs: Outputs) -> None:
    """Raise WorkloadError where the stack's Ray takes no jobs.

    Its nodes are its entry point's until that has ended, and then they are gone: a job would wait for GPUs for ever.
    """
    if outputs.ray.mode not in KINDS:
        return
    _, page = KINDS[outputs.ray.mode]
    raise WorkloadError(
        f"{outputs.ray.cluster!r} takes no jobs: the stack's ray.mode is {outputs.ray.mode}, so its Ray runs"
        f" ray.entrypoint and ends with it ({page})\n"
        "for a Ray that takes jobs: set ray.mode to cluster, leave ray.entrypoint out, and `make up`\n"
        "for a benchmark of this stack's nodes: make it the entry point, as Pulumi.gke-dws.yaml does, or run"
        " nccl-tests by `rdma-ray bench job Pulumi.STACK.yaml`"
    )


def unanswered(outputs: Outputs) -> str:
    """Where to look when nothing answers at Ray's address."""
    if outputs.ray.mode not in KINDS:
        return (
            f"Is the cluster {outputs.ray.cluster!r} up? See `make up`; on a cloud the port-forward to the head must be"
            " open, and with a queue there is a head only from its admission on (docs/queues.md)"
        )
    kind, page = KINDS[outputs.ray.mode]
    return (
        f"The stack's ray.mode is {outputs.ray.mode}: there is a head only while ray.entrypoint runs, and the"
        f" port-forward to it must be open ({page}). How it stands, or has ended:"
        f" kubectl -n {outputs.namespace} get {kind} {outputs.ray.cluster}"
    )
