"""Drills on a real Ray head: one job of 60 seconds, whose followers each lose the head in another way."""

from __future__ import annotations

import http.client
import itertools
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.workloads.client.faulty_proxy import Fault, Proxy
from tests.workloads.conftest import Cluster
from workloads.client.api import JobsApi, exit_code
from workloads.client.follow import follow
from workloads.client.submit import submit
from workloads.results.events import new_id

LINES, CODE = 1200, 7
COUNT = f"import sys, time\nfor n in range({LINES}): print('line', n, flush=True); time.sleep(0.05)\nsys.exit({CODE})"
DROPS, STOPPED_S = 10, 30


def through(cluster: Cluster, proxy: Proxy) -> JobsApi:
    return replace(JobsApi.of(cluster.outputs), address=proxy.address)


def numbers(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.fullmatch(r"line (\d+)", line))]


def job_server(cluster: Cluster) -> psutil.Process:
    """Return the dashboard's process that serves /api/jobs. Its title has overwritten its environment."""
    ours = cluster.clone.processes()
    found = (one for one in psutil.process_iter(["name"]) if one.info["name"].startswith("ray-dashboard-J"))
    return next(one for one in found if one.parent() in ours)


def busy(faults: Iterator[Fault], until: float) -> Fault:
    return next(faults) if time.monotonic() < until else None


def test_followers_of_a_job_get_every_line_once_whatever_fails(cluster: Cluster, tmp_path: Path) -> None:
    """The answers of the submission are lost; then one follower loses its connection ten times, one gets 429, 500, 503
    and truncated answers for ten seconds, one is stopped for 30 seconds, and the job server is killed."""
    job_id, command = new_id("drill"), [sys.executable, "-c", COUNT]
    losses: Iterator[Fault] = iter(["lose", 500, "lose"])
    with Proxy(cluster.outputs.ray.jobs, lambda method, _: next(losses, None) if method == "POST" else None) as proxy:
        submit(through(cluster, proxy), job_id, command, {"env_vars": {"A": "b"}}, {"workload": "drill"})
        assert next(losses, None) == 500, "Ray was asked once: the lost answer was found by the job's ID"
    began = time.monotonic()
    faults: Iterator[Fault] = itertools.cycle([429, "cut", 500, 503, "lose"])
    seen: dict[str, list[str]] = {"dropped": [], "busy": []}
    with (
        Proxy(cluster.outputs.ray.jobs) as dropped,
        Proxy(cluster.outputs.ray.jobs, lambda *_: busy(faults, began + 10)) as failing,
        ThreadPoolExecutor() as threads,
        (tmp_path / "stopped").open("wb") as log,
    ):
        followers = [
            threads.submit(follow, through(cluster, proxy), job_id, seen[name].append)
            for name, proxy in (("dropped", dropped), ("busy", failing))
        ]
        stopped = subprocess.Popen(
            [cluster.command, "logs", job_id], env=cluster.environment(), cwd=cluster.folder, stdout=log, stderr=log
        )
        for signal_, at in ((signal.SIGSTOP, 8), (signal.SIGCONT, 8 + STOPPED_S)):
            threading.Timer(at, stopped.send_signal, [signal_]).start()
        for drop in range(DROPS):
            time.sleep(4.5)
            dropped.down()
            if drop == DROPS // 2:
                job_server(cluster).kill()
            time.sleep(0.5)
            dropped.up()
        ended = [follower.result(timeout=120) for follower in followers]
        assert stopped.wait(timeout=120) == CODE
    assert [exit_code(job) for job in ended] == [CODE, CODE]
    seen["stopped"] = (tmp_path / "stopped").read_text().splitlines()
    for name, lines in seen.items():
        assert numbers(lines) == list(range(LINES)), name
    assert [job.id for job in JobsApi.of(cluster.outputs).jobs()].count(job_id) == 1


PATHS = (
    "GET /api/version",
    "GET /api/jobs/",
    "POST /api/jobs/",
    "GET /api/jobs/x",
    "DELETE /api/jobs/x",
    "POST /api/jobs/x/stop",
    "GET /api/jobs/x/logs",
    "GET /api/jobs/x/logs/tail",
    "GET /api/packages/gcs/x.zip",
    "PUT /api/packages/gcs/x.zip",
    "GET /api/cluster_status?format=1",
    "GET /api/v0/nodes",
    "GET /api/v0/actors",
    "GET /api/v0/logs/file?node_id=x&submission_id=x",
    "GET /nodes?view=summary",
    "GET /api/prometheus/sd",
)
OPEN = ("GET /", "GET /api/authentication_mode", "GET /api/gcs_healthz")


def status(cluster: Cluster, request: str, token: str | None) -> int:
    head = http.client.HTTPConnection(cluster.outputs.ray.jobs.removeprefix("http://"), timeout=30)
    method, path = request.split()
    head.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    answer = head.getresponse().status
    head.close()
    return answer


@pytest.mark.parametrize(("token", "expected"), [(None, 401), ("wrong" * 8, 403)])
def test_every_path_needs_the_token(cluster: Cluster, token: str | None, expected: int) -> None:
    """Except those that say nothing about the cluster: Ray's page, and whether it is healthy and asks for a token."""
    assert {request: status(cluster, request, token) for request in PATHS} == dict.fromkeys(PATHS, expected)
    assert {request: status(cluster, request, token) for request in OPEN} == dict.fromkeys(OPEN, 200)
