"""From options and a stack's outputs to a Spec: defaults, and every refusal that needs no cluster."""

from __future__ import annotations

import re

from infra.outputs import Outputs
from workloads.client.submit import new_id
from workloads.exits import WorkloadError
from workloads.train.spec import Spec


def request(
    outputs: Outputs,
    *,
    epochs: int,
    workers: int | None,
    name: str | None,
    resume: str | None,
    checkpoint_dir: str | None,
    min_accuracy: float,
    wait_s: float,
) -> Spec:
    """The run that the options ask for on this stack; WorkloadError names what does not fit."""
    if name and resume:
        raise WorkloadError("--name begins a run and --resume goes on with one: give one of the two")
    run = resume or name or new_id("digits")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", run):
        raise WorkloadError(f"run name {run!r}: it becomes a folder; use letters, digits, dots, dashes, underscores")
    slots = outputs.nodes.slots_per_node
    if workers is not None and workers > outputs.nodes.max * slots:
        raise WorkloadError(f"--workers {workers}: the stack has {outputs.nodes.max} nodes with {slots} slots each")
    if checkpoint_dir is None and outputs.storage is None:
        raise WorkloadError("the stack has no storage that all nodes see: name one, path or URI, by --checkpoint-dir")
    return Spec(
        name=run,
        storage=checkpoint_dir or f"{outputs.storage.path if outputs.storage else ''}/train",
        resume=resume is not None,
        epochs=epochs,
        workers=workers or outputs.nodes.default_gang * slots,
        use_gpu=outputs.nodes.gpus_per_node > 0,
        min_accuracy=min_accuracy,
        wait_s=wait_s,
        elastic=outputs.nodes.elastic,
    )


def environment(spec: Spec, loopback: str | None) -> dict[str, str]:
    """The job's variables. `loopback` is the interface of a cluster that lives on one machine, else None."""
    return {
        # Ray gives workers 60 s; machines that scale from zero need minutes, and so does a first import of torch.
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(spec.wait_s),
        # Ray asks its workers every 2 s, and each epoch's checkpoint waits for that.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # gloo would look the host name up and find an address that other ranks cannot use.
        # And nobody takes such a machine's nodes away: the watcher would be one more process to start.
        **({"GLOO_SOCKET_IFNAME": loopback, "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"} if loopback else {}),
    }
