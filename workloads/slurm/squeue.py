"""Slurm commands: submit a job, and describe what Slurm reports about it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from workloads.exits import Exit, WorkloadError

ANSWER_S = 60
REASONS = {
    "None": "Slurm has not considered it yet",
    "Priority": "jobs with higher priority come first",
    "Resources": "too few nodes are free",
    "Dependency": "it depends on a job that has not ended",
    "BeginTime": "its start is later, or a node failed to start it: see slurmd's log",
    "Licenses": "a license is not available",
    "PartitionDown": "the partition is down",
    "PartitionNodeLimit": "--nodes is beyond the partition's limit",
    "PartitionTimeLimit": "--time is beyond the partition's limit",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Reservation": "its reservation has not started",
    "JobHeldUser": "it is held: `scontrol release` frees it",
    "JobHeldAdmin": "an administrator holds it",
    "QOSMaxJobsPerUserLimit": "the limit of --qos on running jobs is reached",
    "AssocGrpGRES": "the limit of --account on GPUs is reached",
}
"""Reasons why a job waits (squeue(1), "job reason codes")."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE")
_FAULTS = {
    "TIMEOUT": "reached its time limit (--time)",
    "OUT_OF_MEMORY": "used more memory than it has (--memory)",
    "PREEMPTED": "was preempted by another job",
    "DEADLINE": "reached its deadline",
}
_ID = re.compile(r"[1-9]\d{0,9}")


@dataclass(frozen=True)
class SlurmJob:
    """A job as slurmctld reports it. `code` and `signal` are those of the batch script, once it has ended."""

    id: str
    state: str
    reason: str
    nodes: str
    uid: int
    log: Path | None
    """File with the output of its batch script; None for an allocation of salloc, which has no script."""
    code: int
    signal: int

    @property
    def over(self) -> bool:
        return self.state in (*ENDED, "BOOT_FAIL", "REVOKED")

    @property
    def words(self) -> str:
        """The state as text, with the reason why a waiting job waits."""
        match self.state:
            case "PENDING":
                return f"waits: {REASONS.get(self.reason, self.reason)}"
            case "RUNNING":
                return f"runs on {self.nodes}"
            case "CONFIGURING":
                return f"waits until {self.nodes} have booted"
            case "NODE_FAIL":
                down = _down(self.nodes)
                return f"ended, because a node failed: {down or f'one of {self.nodes}'}"
            case "FAILED":
                return f"failed with exit code {self.exit_code}"
            case state:
                return _FAULTS.get(state) or f"is {state.lower()}"

    @property
    def exit_code(self) -> int:
        """Exit code for the client's process: the command's own, else 1, or 130 for a canceled job."""
        match self.state:
            case "COMPLETED":
                return Exit.OK
            case "CANCELLED":
                return Exit.STOPPED
            case "FAILED":
                return self.code or 128 + self.signal
        return Exit.ERROR


def check_id(text: str) -> str:
    """Return a job's ID. WorkloadError if the text is not one."""
    if not _ID.fullmatch(text):
        raise WorkloadError(f"{text!r} is not the ID of a Slurm job: write its number, as `squeue --me` shows it")
    return text


def submit(text: str) -> str:
    """Submit an sbatch file from this folder, and return the job's ID. WorkloadError with sbatch's reason."""
    said = _run(["sbatch", "--parsable"], text)
    # JOBID, or JOBID;CLUSTER. A site's plugins may print lines before it.
    return check_id(said.strip().rpartition("\n")[2].partition(";")[0])


def job(job_id: str) -> SlurmJob:
    """Return a job. WorkloadError if Slurm no longer knows it: Slurm forgets jobs, usually after 5 minutes."""
    said = _run(["scontrol", "--oneliner", "show", "job", job_id])
    fields = dict(re.findall(r"(?:^| )([A-Z]\w*)=(.*?)(?= [A-Z][\w/:]*=|\s*$)", said.strip()))
    try:
        code, _, number = fields["ExitCode"].partition(":")
        return SlurmJob(
            id=job_id,
            state=fields["JobState"],
            reason=fields["Reason"],
            nodes=fields.get("NodeList", "").replace("(null)", ""),
            uid=int(fields["UserId"].rpartition("(")[2].rstrip(")")),
            log=Path(fields["StdOut"]) if "StdOut" in fields else None,
            code=int(code),
            signal=int(number or 0),
        )
    except (KeyError, ValueError) as error:
        raise WorkloadError(f"scontrol's answer on job {job_id} cannot be read ({error}): {said[:200]}") from None


def hosts(nodes: str) -> tuple[str, ...]:
    """Return the names of a list of nodes, such as `n[0-1]`."""
    return tuple(_run(["scontrol", "show", "hostnames", nodes]).split())


def gpus_of_tasks(job_id: str) -> int:
    """Return the GPUs per node of a job that requested them per task; 0 for any other job.

    A step inherits the request, so with one task per node it would get the GPUs of one task. Any other request gives
    it all of the job's (Slurm 22.05, tried 2026-11-26). Of nodes with different numbers, the smallest.
    """
    said = _run(["scontrol", "--oneliner", "--details", "show", "job", job_id])
    if not re.search(r" TresPerTask=\S*gpu", said):
        return 0
    nodes = re.findall(r" GRES=(\S*)", said)
    return min((sum(map(int, re.findall(r"gpu:(?:[^,:(]+:)?(\d+)", each))) for each in nodes), default=0)


def _down(nodes: str) -> str:
    """Return the nodes of a list that Slurm reports as not usable; empty if unknown."""
    states = "--states=down,drain,drained,fail,no_respond"
    try:
        said = _run(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", states, "--format=%N"])
    except WorkloadError:
        return ""
    return ", ".join(dict.fromkeys(said.split()))


def _run(command: list[str], text: str | None = None) -> str:
    if shutil.which(command[0]) is None:
        raise WorkloadError(
            f"no {command[0]} on PATH: run this on a login node of the Slurm cluster (--dry-run prints the sbatch file)"
        )
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"{command[0]} does not answer within {ANSWER_S} s: see `scontrol ping`") from None
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise WorkloadError(f"{command[0]} refused: {said}")
    return done.stdout
