"""The eks stack's RayCluster with its shared folder, in real pods; real and simulated parts as for the gke stack.

In addition, a folder of this machine replaces the Lustre file system, whose root belongs to root, too.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from rehearsal.cluster.scaling import Scale
from tests.pods.as_user import answer
from tests.pods.deployed_stack import DeployedStack, Timeline
from tests.pods.pod_cluster import PodCluster

SHARED = textwrap.dedent(
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
    ray.init()
    group = placement_group([{"GPU": 8}] * 2, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    @ray.remote(num_gpus=8, num_cpus=0)
    def write(rank):
        with open(f"/bucket/{rank}", "w") as file:
            file.write(ray.util.get_node_ip_address())
    ray.get([write.options(scheduling_strategy=Within(group, rank)).remote(rank) for rank in range(2)])
    print("FOUND", *(open(f"/bucket/{rank}").read() for rank in range(2)))
    """
)
"""A gang of two nodes with eight GPUs writes into the shared folder, and the head's driver reads it."""


def test_gang_shares_folder_with_head(pod_cluster: PodCluster, tmp_path: Path) -> None:
    """As for the gke stack: a strict-spread group scales up two workers from zero by Ray's own autoscaler. The head's
    init container sets the permissions of the folder for the images' own user; the workers write into it, and the
    driver on the head reads it; without the token the dashboard answers 401."""
    pod_cluster.shares()
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    scale = Scale(shared=shared, seconds={"idleTimeoutSeconds": 20})
    stack, timeline = DeployedStack(pod_cluster, "eks", scale, changes={"storage": {"bucket": "mine"}}), Timeline()
    stack.apply()
    try:
        stack.api.until("the head to be ready", stack.head, 300)
        timeline.done("head ready")
        assert stack.workers() == []
        with stack.forwarded() as port:
            assert answer(port, stack.token) == 200
            assert answer(port, None) == 401
            stack.submit(port, "gang", SHARED, {})
            assert stack.until_over(port, "gang", within_s=600) == "succeeded", stack.jobs(port).logs("gang")
            printed = stack.jobs(port).logs("gang")
        timeline.done("job ended")
        [line] = [line for line in printed.splitlines() if line.startswith("FOUND")]
        pods = [pod for pod in stack.workers() if pod["status"].get("podIP") in line.split()[1:]]
        assert {pod["spec"]["nodeName"] for pod in pods} == {pod_cluster.nodes["gpu-0"], pod_cluster.nodes["gpu-1"]}
    finally:
        print(stack.describe())
        stack.delete()
