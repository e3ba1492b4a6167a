"""The user's own code on real Ray nodes: torchrun, one process per rank, and a driver on the head."""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.job_submission import JobSubmissionClient

from tests.workloads.conftest import Cluster
from workloads.client.api import Api, follow
from workloads.client.run import JOB_ENVIRONMENT, PACKAGE, new_id
from workloads.exits import Exit
from workloads.launch.lines import RankLine
from workloads.launch.options import RunOptions
from workloads.launch.secrets import name as secrets_name
from workloads.results import Event, parse

SCRIPTS = Path(__file__).with_name("scripts")
SECRET = "s3cret-0f-the-user"


@dataclass
class Job:
    """A job of the user's code: what its log says, and how it ended."""

    api: Api
    id: str
    lines: list[str] = field(default_factory=list)
    code: int | None = None
    seconds: float = 0.0

    def follow(self) -> Job:
        began = time.monotonic()
        self.code = follow(self.api, self.id, self.lines.append).exit_code
        self.seconds = time.monotonic() - began
        return self

    def of(self, rank: int) -> list[str]:
        found = [RankLine.parse(line) for line in self.lines]
        return [line.text for line in found if line is not None and line.rank == rank]

    def events(self, kind: str) -> list[Event]:
        found = [parse(line) for line in self.lines]
        return [event for event in found if event is not None and event["kind"] == kind]

    @property
    def result(self) -> dict[str, Any]:
        [event] = self.events("result")
        return dict(event["result"])


def start(cluster: Cluster, mode: str, *command: str, secret: bytes | None = None, **options: Any) -> Job:
    """Submit the driver as the client does: the user's folder is the working directory, the package is a module."""
    api = Api.of(cluster.outputs)
    client = JobSubmissionClient(api.address, headers=api.headers)
    job = Job(api, new_id("run"))
    request = RunOptions(mode=mode, command=command, **options)
    if secret is not None:
        put = client._do_request("PUT", f"/api/packages/gcs/{secrets_name(job.id)}", data=secret)
        assert put.status_code == 200
    client.submit_job(
        entrypoint=shlex.join([sys.executable, "-P", "-m", "workloads.launch.driver", request.model_dump_json()]),
        submission_id=job.id,
        runtime_env={
            "working_dir": str(SCRIPTS),
            "py_modules": [str(PACKAGE)],
            "env_vars": JOB_ENVIRONMENT | {"RAY_JOB_STOP_WAIT_TIME_S": str(request.grace_s + 15)},
        },
    )
    return job


def survivors(word: str) -> list[psutil.Process]:
    """Return the processes that run this script of ours."""
    found = []
    for process in psutil.process_iter():
        try:
            if "user.py" in " ".join(process.cmdline()) and word in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_torchrun_runs_on_two_nodes(cluster: Cluster) -> None:
    job = start(cluster, "torchrun", "torchrun", "user.py", "toy", nodes=2, per_node=2, wait_s=60).follow()
    assert job.code == 0, job.lines
    lines = [job.of(rank)[-1] for rank in range(4)]
    assert len({line.split()[1] for line in lines}) == 1
    assert [line.split(maxsplit=2)[2] for line in lines] == [f"local {local} of 4" for local in (0, 1, 0, 1)]
    assert [node["ranks"] for node in job.result["nodes"]] == [[0, 1], [2, 3]]
    assert job.result["exit_codes"] == [0, 0, 0, 0]


def test_first_failure_ends_all_and_restarts_are_counted(cluster: Cluster) -> None:
    options = {"nodes": 2, "per_node": 2, "grace_s": 20, "max_restarts": 1, "wait_s": 60}
    job = start(cluster, "ranks", "python", "user.py", "raise", **options).follow()
    assert job.code == 7
    for rank in (0, 1, 2):
        assert job.of(rank) == [
            text
            for restart in (0, 1)
            for text in (f"rank {rank} of 4 on node {rank // 2} in attempt {restart}", "saved a checkpoint")
        ]
    failures = job.events("failure")
    assert [(one["rank"], one["code"]) for one in failures] == [(3, 7), (3, 7)]
    assert failures[-1]["text"].splitlines()[0] == "Traceback (most recent call last):"
    assert failures[-1]["text"].splitlines()[-1] == "ValueError: the loss is nan"
    ending = [event["kind"] for event in map(parse, job.lines) if event is not None][-2:]
    assert ending == ["failure", "result"]
    assert RankLine.parse(job.lines[-3]) is not None, "a rank wrote after the failure was shown"
    assert (job.result["restarts"], job.result["exit_codes"]) == (1, [0, 0, 0, 7])


def test_lost_agent_takes_its_ranks_along_and_the_gang_starts_again(cluster: Cluster) -> None:
    options = {"nodes": 2, "per_node": 2, "grace_s": 5, "max_restarts": 1, "wait_s": 60}
    job = start(cluster, "ranks", "python", "user.py", "lose", **options).follow()
    assert (job.code, job.result["restarts"]) == (0, 1), job.lines
    [failure] = job.events("failure")
    assert "the agent on" in failure["text"]
    assert job.of(2)[-1] == "rank 2 of 4 on node 1 in attempt 1"
    assert survivors("lose") == []


def test_stop_reaches_the_ranks(cluster: Cluster) -> None:
    job = start(cluster, "ranks", "python", "user.py", "sleep", nodes=2, per_node=2, grace_s=20, wait_s=60)
    deadline = time.monotonic() + 60
    while job.api.logs(job.id).count("in attempt 0") < 4:
        assert time.monotonic() < deadline, job.api.logs(job.id)
        time.sleep(0.2)
    stopped = job.api.stop(job.id)
    assert stopped.status == "STOPPED"
    job.follow()
    assert [job.of(rank)[-1] for rank in range(4)] == ["saved a checkpoint"] * 4
    assert survivors("sleep") == []
    assert job.result["exit_code"] == Exit.STOPPED


def test_impossible_placement_fails_within_seconds(cluster: Cluster) -> None:
    job = start(cluster, "ranks", "true", nodes=2, per_node=3).follow()
    assert (job.code, job.seconds < 20) == (Exit.ERROR, True)
    reason = job.result["reason"]
    assert "the run needs 2 nodes with 3 free CPU each" in reason
    assert f"{cluster.outputs.ray.client.split('/')[2].split(':')[0]}: 0 of 0 CPU free" in reason


def test_ray_train_script_runs_as_it_is_and_gets_its_secret_once(cluster: Cluster) -> None:
    names, values = ("WANDB_API_KEY",), json.dumps({"WANDB_API_KEY": SECRET}).encode()
    job = start(cluster, "driver", "python", "user.py", "train", secrets=names, secret=values).follow()
    assert job.code == 0, job.lines
    assert job.lines[-1] == f"2 workers, the secret has {len(SECRET)} characters"
    assert SECRET not in json.dumps(job.api.call(f"/api/jobs/{job.id}")) + "".join(job.lines)
    again = start(cluster, "driver", "true", secrets=names).follow()
    assert again.code == Exit.ERROR
    assert "are not in the cluster" in again.lines[-1]


@pytest.fixture(autouse=True)
def _nothing_is_left(cluster: Cluster) -> Any:
    """No actor of a run holds the nodes of the next one."""
    yield
    api = Api.of(cluster.outputs)
    deadline = time.monotonic() + 30
    while [one for one in _agents(api) if one["state"] != "DEAD"]:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def _agents(api: Api) -> list[dict[str, Any]]:
    actors = api.call("/api/v0/actors")["data"]["result"]["result"]
    return [actor for actor in actors if actor["class_name"] == "Agent"]
