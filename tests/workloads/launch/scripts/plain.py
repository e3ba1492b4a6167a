"""A script without torch that knows its place by variables. Its argument says what it does."""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

rank, restart = int(os.environ["RANK"]), int(os.environ["RDMA_RAY_RESTART"])
print(f"rank {rank} of {os.environ['WORLD_SIZE']} on node {os.environ['NODE_RANK']} in attempt {restart}")


def save(*_: object) -> None:
    print("saved a checkpoint")
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
match sys.argv[1]:
    case "raise" if rank == 3:
        try:
            raise ValueError("the loss is nan")
        except ValueError:
            traceback.print_exc()
        os._exit(7)
    case "lose" if restart == 0:
        if rank == 2:
            guard = os.getppid()
            agent = int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(agent, signal.SIGKILL)
        time.sleep(600)
    case "raise" | "sleep":
        time.sleep(600)
