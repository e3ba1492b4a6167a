"""The allocation in which `rdma-ray slurm run` is called: of `salloc`, of a batch script, or around an `srun`.

The Ray cluster is a step of it, so no job is submitted. SLURM_JOB_ID names the job (salloc(1), sbatch(1), srun(1),
"output environment variables"); its state and its nodes are slurmctld's, since a shell outlives its allocation.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from workloads.exits import WorkloadError
from workloads.gang.guard import DEATH_SIGNAL, PRCTL
from workloads.gang.masked import child
from workloads.slurm import squeue
from workloads.slurm.options import STEP, SlurmOptions

RUNS = ("RUNNING", "CONFIGURING")  # for nodes that still boot, srun waits
SPECIAL_STEPS = 0xFFFF_0000
"""IDs from here on are of a batch script and of salloc's shell on a node (slurm.h, SLURM_BATCH_SCRIPT and
SLURM_INTERACTIVE_STEP, 22.05), which hold no CPUs that another step would wait for."""
ANOTHER = "to submit another job, use `env -u SLURM_JOB_ID rdma-ray slurm run …`"
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Allocation:
    """A job of this user that runs.

    Attributes:
        hosts: Its nodes, or those of them that the cluster uses.
        shared: Whether this process is in a step, with which the cluster's step shares CPUs and GPUs.
        gpus: GPUs per node that the cluster's step has to request; 0 if it has all of the job's without.
    """

    id: str
    hosts: tuple[str, ...]
    shared: bool
    gpus: int


def current(given: SlurmOptions, detach: bool, environment: Mapping[str, str] = os.environ) -> Allocation | None:
    """Return the allocation of this process; None if it is not in one.

    Raises:
        WorkloadError: It has ended, or does not support the options. No other job is submitted then.
    """
    if not (job_id := environment.get("SLURM_JOB_ID")):
        return None
    if "RDMA_RAY_STACK" in environment:
        raise WorkloadError(
            f"a Ray cluster already runs this command, in job {job_id}: use rdma-ray's other commands without"
            f" `slurm run`; {ANOTHER}"
        )
    if refused := [*_of_a_job(given), *(["--detach"] if detach else [])]:
        raise WorkloadError(
            f"{' '.join(refused)}: this shell is in the allocation of job {job_id} (SLURM_JOB_ID), which cannot change"
            f" any more: run without {'it' if len(refused) == 1 else 'them'}; {ANOTHER}"
        )
    try:
        job = squeue.job(squeue.check_id(job_id))
    except WorkloadError as error:
        raise WorkloadError(f"SLURM_JOB_ID={job_id}: {error}; {ANOTHER}") from None
    if job.state not in RUNS or job.uid != os.geteuid():
        why = f"job {job_id} {job.words}" if job.state not in RUNS else f"job {job_id} belongs to user {job.uid}"
        raise WorkloadError(f"this shell is in an allocation that cannot be used (SLURM_JOB_ID): {why}; {ANOTHER}")
    step = environment.get("SLURM_STEP_ID", "")
    shared = step.isdecimal() and int(step) < SPECIAL_STEPS
    if shared and (task := environment.get("SLURM_PROCID", "0")) != "0":
        raise WorkloadError(f"this is task {task} of step {job_id}.{step}: one cluster is enough, that of its task 0")
    hosts = squeue.hosts(job.nodes)
    if "nodes" in given.model_fields_set and given.nodes > len(hosts):
        raise WorkloadError(f"--nodes {given.nodes}: job {job_id} has {len(hosts)} ({job.nodes}); {ANOTHER}")
    chosen = hosts[: given.nodes] if "nodes" in given.model_fields_set else hosts
    return Allocation(job_id, chosen, shared, squeue.gpus_of_tasks(job_id))


def run(text: str) -> int:
    """Run a script of `script.step_script` here, and return its exit code.

    It runs in a separate session, so it gets one signal of those from a terminal, this process, and its SIGKILL.
    """
    signals = [each for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
    end = partial(PRCTL, DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)  # with this process
    own = {"stdin": subprocess.DEVNULL, "start_new_session": True, "preexec_fn": end}
    with child(["bash", "-c", text], signals, subprocess.Popen.send_signal, **own) as process:
        code = process.wait()
    return code if code >= 0 else 128 - code


def others(allocation: Allocation, storage: Path) -> list[Path]:
    """Return the outputs of other clusters in this allocation. A step waits until the steps before it have ended."""
    return sorted(storage.glob(f"job-{allocation.id}-*/outputs.json"))


def _of_a_job(given: SlurmOptions) -> list[str]:
    """Return the options that only a new job can have, as they were written."""
    options = []
    for name in SlurmOptions.model_fields:
        if name in given.model_fields_set and name not in STEP:
            value = getattr(given, name)
            each = value if isinstance(value, tuple) else (value,)
            option = f"--{name.replace('_', '-')}"
            options += [option if one is True else f"{option} {one}" for one in each]
    return options
