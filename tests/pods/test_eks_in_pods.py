"""The eks stack's RayCluster with its shared folder, in real pods; real and simulated parts as for the gke stack.

In addition, a folder of this machine replaces the Lustre file system, whose root belongs to root, too.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from rehearsal.cluster.scaling import Scale
from tests.pods.deployed_stack import DeployedStack
from tests.pods.jobs import PLACED
from tests.pods.pod_cluster import PodCluster

SHARED = PLACED + textwrap.dedent(
    """
    @ray.remote(num_gpus=8, num_cpus=0)
    def write(rank):
        with open(f"/bucket/{rank}", "w") as file:
            file.write(ray.util.get_node_ip_address())
    on_each(write)
    print("FOUND", *(open(f"/bucket/{rank}").read() for rank in range(2)))
    """
)
"""A gang of two nodes with eight GPUs writes into the shared folder, and the head's driver reads it."""


def test_gang_shares_folder_with_head(pod_cluster: PodCluster, tmp_path: Path) -> None:
    """The head's init container sets the permissions of the folder for the images' own user; a gang, for which two
    workers are added from zero, writes into it, and the driver on the head reads it."""
    pod_cluster.shares()
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    scale = Scale(shared=shared, seconds={"idleTimeoutSeconds": 20})
    stack = DeployedStack(pod_cluster, "eks", scale, {"storage": {"bucket": "mine"}})
    stack.apply()
    try:
        stack.api.until("the head to be ready", stack.head, 300)
        assert stack.workers() == []
        with stack.forwarded() as port:
            stack.submit(port, "gang", SHARED, {})
            printed = stack.until_succeeded(port, "gang")
        [line] = [line for line in printed.splitlines() if line.startswith("FOUND")]
        assert stack.nodes_at(line.split()[1:]) == stack.gpu_nodes()
    finally:
        print(stack.describe())
        stack.delete()
