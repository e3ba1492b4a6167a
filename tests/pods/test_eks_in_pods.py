"""The eks stack's RayCluster with its shared folder, in real pods; real parts and stand-ins as for the gke stack.

Besides: a folder of this machine is the Lustre file system, whose root belongs to root, as there.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.pods.jobs import running
from tests.pods.scene import Scene
from tests.pods.stack_on import StackOn, Timeline
from tools.kubernetes.scaling import Scale

SHARED = textwrap.dedent(
    """
    import os, ray
    ray.init()
    @ray.remote(num_gpus=8, num_cpus=0, scheduling_strategy="SPREAD")
    def write(rank):
        with open(f"/bucket/{rank}", "w") as file:
            file.write(ray.util.get_node_ip_address())
    ray.get([write.remote(rank) for rank in range(2)])
    print("FOUND", *(open(f"/bucket/{rank}").read() for rank in range(2)))
    """
)
"""Two workers write into the shared folder, and the head's driver reads it."""


def test_workers_and_head_share_a_folder(scene: Scene, tmp_path: Path) -> None:
    """The head's init container opens the folder for the images' own user; two workers raised from zero write into it,
    and the driver on the head reads what they wrote."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    scale = Scale(shared=shared, seconds={"idleTimeoutSeconds": 20})
    stack, timeline = StackOn(scene, "eks", scale, changes={"storage": {"bucket": "mine"}}), Timeline()
    stack.apply()
    try:
        stack.api.until("the head to be ready", stack.head, 180)
        timeline.done("head ready")
        with stack.forwarded() as port:
            printed = stack.ray(port, "job", "submit", "--", *running(SHARED))
        timeline.done("job ended")
        [line] = [line for line in printed.splitlines() if line.startswith("FOUND")]
        assert len(set(line.split()[1:])) == 2
    finally:
        print(stack.describe())
        stack.delete()
