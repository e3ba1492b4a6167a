"""A Ray driver with --evidence: run the command as a child, then report how the data of its actors traveled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from workloads.gang.actor_evidence import ActorEvidence
from workloads.gang.masked import JOB_CONFIG, STOPPING, job_config
from workloads.gang.options import RunOptions
from workloads.results.events import emit
from workloads.run.driver import run_command
from workloads.run.result import RunNode, RunResult


def run(options: RunOptions, secrets: Mapping[str, str]) -> int:
    """Run the command, emit its result, and return its exit code."""
    started = time.time()
    actors = ActorEvidence(tuple(secrets.values()))
    # `ray.init` passes the variables of the job to every node. Those of the driver are for frameworks which pass their
    # own, but leave what they find (verl), or which pass all of them (NeMo-RL).
    variables = dict(options.environment) | actors.begin(os.environ | options.environment)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # for the time after the command, which gets them itself
    environment = variables | {JOB_CONFIG: job_config(variables)}
    code = run_command(
        options.command, environment, dict(secrets), folder=options.folder or None, of_ray=options.of_ray
    )
    evidence, nodes = actors.end()
    result = RunResult(
        started=started,
        finished=time.time(),
        exit_code=code,
        reason="the command succeeded" if code == 0 else f"the command failed with exit code {code}",
        mode=options.mode,
        nodes=[RunNode(**node) for node in nodes],
        exit_codes=[],
        restarts=0,
        seconds={},
        evidence=evidence,
        transport=options.transport,
    )
    emit("result", result=result.model_dump(mode="json", by_alias=True))
    return code
