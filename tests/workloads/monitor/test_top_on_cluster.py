"""`rdma-ray top` on real Ray nodes: one snapshot while a job runs, and nothing left when it ends."""

from __future__ import annotations

import json
import sys

from tests.clone import wait_until
from tests.workloads.conftest import Cluster, write_outputs
from workloads.client.api import JobsApi
from workloads.client.submit import submit
from workloads.exits import Exit
from workloads.monitor.snapshot import Snapshot
from workloads.results.events import new_id

JOB = """
import ray, time
ray.init()

@ray.remote(num_cpus=1)
class Holder:
    def ready(self): pass

holder = Holder.remote()
ray.get(holder.ready.remote())
group = ray.util.placement_group([{"GPU": 8}], name="impossible")
print("holds", flush=True)
time.sleep(600)
"""


def test_top_shows_nodes_job_actor_and_why_a_demand_waits(cluster: Cluster) -> None:
    api = JobsApi.of(cluster.outputs)
    job = new_id("run")
    submit(api, job, [sys.executable, "-c", JOB], None, {"workload": "run"})
    try:
        wait_until(lambda: "holds" in api.logs(job), lambda: api.logs(job), 60)
        done = cluster.rdma_ray("top", "--once", "--json")
        assert done.returncode == Exit.OK, done.stderr
        assert cluster.token not in done.stdout + done.stderr
        found = Snapshot.model_validate_json(done.stdout)
        assert json.loads(done.stdout)["schema"] == "rdma-ray/top/1"
        assert [node.role for node in found.nodes] == ["head", "worker", "worker"]
        assert sorted(node.cpus.used for node in found.nodes) == [0, 0, 1]
        for node in found.nodes:
            assert node.reading is not None
            assert node.reading.seconds is not None
            assert node.reading.memory_total is not None
            assert (node.reading.gpus, node.gpus.total) == ([], 0)
        assert [row.id for row in found.jobs if row.status == "RUNNING"] == [job]
        # Other tests of this cluster leave dead actors, groups, and Ray Train's own actor, which lives.
        assert {actors.name: actors.states for actors in found.actors}["Holder"] == {"ALIVE": 1}
        assert [group.name for group in found.groups if group.state == "PENDING"] == ["impossible"]
        [demand] = found.demands
        assert demand.why == "infeasible: no node has 8 GPU; the most on any node: 0 GPU"
        assert found.notes == []
    finally:
        api.stop(job)
    wait_until(
        lambda: all(row.terminal for row in api.jobs() if row.metadata.get("workload") == "monitor"), api.jobs, 60
    )
    assert not [*cluster.logs.rglob("rdma-ray-top-*")]


def test_wrong_token_and_a_pipe_are_errors_before_the_screen(cluster: Cluster) -> None:
    done = cluster.rdma_ray("top")
    assert (done.returncode, done.stdout) == (Exit.ERROR, "")
    assert "--once" in done.stderr
    wrong = cluster.outputs.model_dump(by_alias=True)
    wrong["ray"]["token"] = "another"
    file = write_outputs(cluster.outputs.model_validate(wrong), cluster.folder / "wrong.json")
    done = cluster.rdma_ray("top", "--once", "--outputs", str(file))
    assert done.returncode == Exit.ERROR
    assert "the token does not match this cluster" in done.stderr
