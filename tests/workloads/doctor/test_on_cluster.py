"""`doctor` and `inspect` on real Ray."""

from __future__ import annotations

import json
import sys
import tarfile
from functools import partial

from tests.clone import wait_until
from tests.workloads.conftest import Cluster
from workloads.client.api import JobsApi
from workloads.client.submit import submit
from workloads.results.events import new_id

WAITING = "import ray; from ray.util import placement_group as g; ray.init(); ray.get(g([{'CPU': 64}]).ready())"


def test_doctor_is_silent_and_names_the_job_that_waits(cluster: Cluster) -> None:
    done = cluster.rdma_ray("doctor", "--json", "doctor.json")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    found = json.loads((cluster.folder / "doctor.json").read_text())
    assert {"ray", "token", "ray-nodes", "requests", "image", "packages", "clock-skew"} <= {*found["passed"]}
    assert found["skipped"] == {}
    assert {each.status for each in JobsApi.of(cluster.outputs).jobs() if each.id.startswith("doctor-")} == {
        "SUCCEEDED"
    }

    api, job = JobsApi.of(cluster.outputs), new_id("mine")
    submit(api, job, [sys.executable, "-c", WAITING])
    try:
        groups = partial(api.call, "/api/v0/placement_groups")
        wait_until(
            lambda: any(group["state"] == "PENDING" for group in groups()["data"]["result"]["result"]),
            lambda: api.logs(job),
            60,
        )
        done = cluster.rdma_ray("inspect", "--out", "bundle.tar.gz")
        assert (done.stdout, done.returncode) == ("bundle.tar.gz\n", 0), done.stderr
        done = cluster.rdma_ray("doctor")
    finally:
        api.stop(job)
    assert done.returncode == 2, done.stderr
    first, seen, cure = done.stdout.splitlines()
    assert first.startswith("ERROR  placement group ")
    assert f"of job {job}: it can never fit: no node has 64 CPU; the most on a node: " in first
    assert (seen.split()[1], cure.split()[0]) == ("INFEASIBLE", "cure:")
    with tarfile.open(cluster.folder / "bundle.tar.gz") as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert first in texts["README.txt"]
    assert f"jobs/{job}.log" in texts
    assert not any(name.startswith("jobs/doctor-") for name in texts)
    assert cluster.token not in "".join(texts.values())
