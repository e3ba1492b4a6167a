"""The script of a cluster: `#SBATCH` lines for an allocation, the request as variables, and the body of `job.sh`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.catalog.machines import CATALOG
from infra.outputs import fabric_outputs
from workloads.nccl.judge.expectation import Expectation
from workloads.options import ROOT
from workloads.slurm.options import SlurmOptions

BODY = Path(__file__).with_name("job.sh")
LOG = "rdma-ray-%j.log"
"""File with the job's output, in the folder of its submission, which exists; `%j` is Slurm's job ID."""


def completed(options: SlurmOptions) -> SlurmOptions:
    """Return the options with the GPUs of the machine type. WorkloadError for a type that cannot be judged."""
    if options.machine is None:
        return options
    found = Expectation(machine=options.machine, nodes=options.nodes).row
    return options.model_copy(update={"gpus_per_node": options.gpus_per_node or found.gpus})


def script(options: SlurmOptions, command: Sequence[str]) -> str:
    """Return the whole sbatch file.

    Args:
        command: Entry point, which runs on the first node when the cluster is ready; the cluster ends with it. Without
            one, the cluster is up until the time limit or `scancel`.
    """
    own = ["run='' hosts=$SLURM_JOB_NODELIST size=$SLURM_JOB_NUM_NODES overlap='' gpus=0"]
    return "\n".join(["#!/bin/bash", *_header(options), "", *own, *_variables(options, command), "", _body()])


def step_script(options: SlurmOptions, command: Sequence[str], hosts: Sequence[str], *, shared: bool, gpus: int) -> str:
    """Return the script that starts the cluster as a step of the allocation in which it runs.

    Args:
        command: See `script`.
        hosts: Nodes of the allocation.
        shared: Whether the step shares their CPUs and GPUs with the steps that run.
        gpus: GPUs of each node to request; 0 for those that the step has by default.
    """
    own = [
        "# An allocation has several runs of this script, each with its folder and its step.",
        "run=$(od -An -tx4 -N4 /dev/urandom | tr -d ' \\n')",
        f"hosts={shlex.quote(','.join(hosts))} size={len(hosts)}",
        f"overlap={'yes' if shared else shlex.quote('')} gpus={gpus}",
    ]
    return "\n".join(["#!/bin/bash", *own, *_variables(options, command), "", _body()])


def _body() -> str:
    return BODY.read_text(encoding="utf-8")


def _variables(options: SlurmOptions, command: Sequence[str]) -> list[str]:
    values = {
        "storage": options.storage,
        "package": str(ROOT),
        "python": options.python or ("python" if options.image else sys.executable),
        "image": options.image or "",
        "wait_s": str(options.wait_s),
        "machine": options.machine or "",
        "fabric": json.dumps(known_fabric(options.machine)),
    }
    lists = {"mounts": options.mount, "command": command}
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    return lines + [f"{name}=({shlex.join(words)})" for name, words in lists.items()]


def known_fabric(machine: str | None) -> dict[str, Any]:
    """Return the network between machines of a type, which nodes get as JSON: they have no catalog. Empty for None."""
    if not machine:
        return {}
    row = CATALOG[machine]
    return fabric_outputs(row.transport, row).model_dump(by_alias=True)


def _header(options: SlurmOptions) -> list[str]:
    values = {
        "job-name": options.name,
        "nodes": options.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": options.cpus_per_node,
        "gpus-per-node": options.gpus_per_node,
        "mem": options.memory,
        "time": options.time,
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "output": LOG,
    }
    given = [f"{name}={value}" for name, value in values.items() if value is not None]
    # A requeued job would start its command a second time.
    flags = [*(["exclusive"] if options.exclusive else []), "no-requeue", *options.sbatch]
    return [f"#SBATCH --{line}" for line in [*given, *flags]]
