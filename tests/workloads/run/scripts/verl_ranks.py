"""The worker group of verl, unmodified, on CPUs: `verl_ranks.py FOLDER`, with verl and what it imports in the folder.

Prints (rank, world size, node) of each rank after a broadcast of weights that each one has checked.
"""

import sys
from typing import Any

import ray

sys.path.insert(0, sys.argv[1])
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env


class Policy(Worker):  # type: ignore[misc]  # verl has no types
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def update(self, step: int) -> tuple[int, int, str]:
        import torch
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo")
        right = torch.arange(1000.0) * step
        weights = right.clone() if dist.get_rank() == 0 else torch.zeros(1000)
        dist.broadcast(weights, 0)
        if not torch.equal(weights, right):
            raise ArithmeticError("wrong weights")
        node: Any = ray.util.get_node_ip_address  # untyped in Ray
        return dist.get_rank(), dist.get_world_size(), node()


environment: dict[str, Any] = get_ppo_ray_runtime_env()
environment["env_vars"]["PYTHONPATH"] = sys.argv[1]
ray.init(runtime_env=environment)
pool = RayResourcePool([2, 2], use_gpu=False, max_colocate_count=1)
group = RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(Policy)), device_name="cpu")
for step in (1, 2):
    print("ranks", sorted(group.update(step)), flush=True)
