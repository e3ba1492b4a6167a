"""The sbatch file of an allocation: `#SBATCH` lines, the request as variables, and the body of `job.sh`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

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
    values = {
        "storage": options.storage,
        "package": str(ROOT),
        "python": options.python or ("python" if options.image else sys.executable),
        "image": options.image or "",
        "wait_s": str(options.wait_s),
        "machine": options.machine or "",
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    lines += [f"{name}=({shlex.join(words)})" for name, words in (("mounts", options.mount), ("command", command))]
    return "\n".join(["#!/bin/bash", *_header(options), "", *lines, "", BODY.read_text(encoding="utf-8")])


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
