"""Code of a user, for every mode of `rdma-ray run`. The first argument says what it does."""

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def train() -> None:
    """Use Ray Train, as a driver on the head."""
    import ray.train
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop() -> int:
        return int(ray.train.get_context().get_world_size())

    result: Any = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
    print(f"{result.return_value} workers, the secret has {len(os.environ['WANDB_API_KEY'])} characters")


def plain(what: str, folder: str = "") -> None:
    """Know the place by variables, without torch. To raise, wait in a folder until the other ranks handle SIGTERM."""

    def save(*_: object) -> None:
        print("saved a checkpoint")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    rank, restart = int(os.environ["RANK"]), int(os.environ["RDMA_RAY_RESTART"])
    print(f"rank {rank} of {os.environ['WORLD_SIZE']} on node {os.environ['NODE_RANK']} in attempt {restart}")
    match what:
        case "raise" if rank < 3:
            Path(folder, f"{restart}-{rank}").touch()
        case "raise":
            while len([*Path(folder).glob(f"{restart}-*")]) < 3:
                time.sleep(0.1)
            try:
                raise ValueError("the loss is nan")
            except ValueError:
                traceback.print_exc()
            os._exit(7)
        case "lose" if restart:
            return
        case "lose" if rank == 2:
            guard = os.getppid()
            agent = int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(agent, signal.SIGKILL)
    time.sleep(600)


if __name__ == "__main__":
    train() if sys.argv[1] == "train" else plain(*sys.argv[1:])
