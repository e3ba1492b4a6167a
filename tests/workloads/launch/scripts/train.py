"""A Ray Train script, which runs on the head as any driver does."""

import os

import ray.train
from ray.train import ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def loop() -> int:
    context = ray.train.get_context()
    return context.get_world_size()


result = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
print(f"{result.return_value} workers, the secret has {len(os.environ['WANDB_API_KEY'])} characters")
