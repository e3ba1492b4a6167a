"""From options and a stack's outputs to a Spec: defaults, and every refusal that needs no cluster."""

from __future__ import annotations

import re
from typing import Any

from infra.outputs import Outputs
from workloads.client.submit import new_id
from workloads.exits import WorkloadError
from workloads.train.options import DigitsOptions
from workloads.train.spec import Plan, Spec

DIGITS_BATCH = 64


def request(outputs: Outputs, options: DigitsOptions) -> Spec:
    """Return the run that the options request on this stack. WorkloadError names what does not fit."""
    return specification(
        outputs,
        task="digits",
        config={},
        plan=Plan(batch=DIGITS_BATCH, epochs=options.epochs, max_run_s=options.max_run_s, fault=options.inject_fault),
        workers=options.workers,
        name=options.name,
        resume=options.resume,
        checkpoint_dir=options.checkpoint_dir,
        wait_s=options.wait,
        min_accuracy=options.min_accuracy,
    )


def gang(outputs: Outputs, workers: int | None) -> int:
    """How many workers: those that are asked for, or one for every GPU or CPU slot of the default gang."""
    slots = outputs.nodes.slots_per_node
    if workers is not None and workers > outputs.nodes.max * slots:
        raise WorkloadError(f"--workers {workers}: the stack has {outputs.nodes.max} nodes with {slots} slots each")
    return workers or outputs.nodes.default_gang * slots


def specification(
    outputs: Outputs,
    *,
    task: str,
    config: dict[str, Any],
    plan: Plan,
    workers: int | None,
    name: str | None,
    resume: str | None,
    checkpoint_dir: str | None,
    wait_s: float,
    min_accuracy: float | None = None,
    max_failures: int = 3,
    extra: dict[str, Any] | None = None,
) -> Spec:
    """A run of any task on this stack; WorkloadError names what does not fit."""
    if name and resume:
        raise WorkloadError("--name begins a run and --resume goes on with one: give one of the two")
    run = resume or name or new_id(task)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", run):
        raise WorkloadError(f"run name {run!r}: it becomes a folder; use letters, digits, dots, dashes, underscores")
    count = gang(outputs, workers)
    if plan.batch < count:
        raise WorkloadError(f"a batch of {plan.batch} images over all workers is too small for {count} workers")
    if checkpoint_dir is None and outputs.storage is None:
        raise WorkloadError("the stack has no storage that all nodes see: name one, path or URI, by --checkpoint-dir")
    return Spec(
        task=task,
        config=config,
        plan=plan,
        name=run,
        storage=checkpoint_dir or f"{outputs.storage.path if outputs.storage else ''}/train",
        resume=resume is not None,
        workers=count,
        use_gpu=outputs.nodes.gpus_per_node > 0,
        wait_s=wait_s,
        elastic=outputs.nodes.elastic,
        min_accuracy=min_accuracy,
        max_failures=max_failures,
        extra=extra or {},
    )


def environment(spec: Spec, loopback: str | None) -> dict[str, str]:
    """The job's variables. `loopback` is the interface of a cluster that lives on one machine, else None."""
    return {
        # Ray gives workers 60 s; machines that scale from zero need minutes, and so does a first import of torch.
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(spec.wait_s),
        # Ray asks its workers every 2 s, and each report waits for that.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # It tells of ranks that wait for each other, and ends nothing: a slow checkpoint is no hang.
        **(
            {"RAY_TRAIN_ENABLE_NCCL_HANG_DETECTOR": "1", "RAY_TRAIN_NCCL_RAS_ACTION": "observe"} if spec.use_gpu else {}
        ),
        # gloo would look the host name up and find an address that other ranks cannot use.
        # And nobody takes such a machine's nodes away: the watcher would be one more process to start.
        **({"GLOO_SOCKET_IFNAME": loopback, "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"} if loopback else {}),
    }
