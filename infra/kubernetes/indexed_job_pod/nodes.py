"""Wait until Ray reports nodes as alive. Run as a separate process: `python -m indexed_job_pod.nodes ADDRESS NAME…`.

`ray.init` replaces signal handlers, and a driver that stays would be a second job.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

NODES_ALIVE_S = 300.0
LOOK_S = 0.5


def await_nodes(address: str, names: list[str]) -> int:
    """Wait until Ray reports the nodes with these names as alive; return 1 if they are not alive in time."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    # Ray has no types for it: a dict per node that ever joined, including dead ones.
    listed: Callable[[], list[dict[str, Any]]] = ray.nodes
    deadline = time.monotonic() + NODES_ALIVE_S
    while missing := set(names) - {node["NodeName"] for node in listed() if node["Alive"]}:
        if time.monotonic() > deadline:
            print(f"not alive: {', '.join(sorted(missing))}", flush=True)
            return 1
        time.sleep(LOOK_S)
    return 0


if __name__ == "__main__":
    sys.exit(await_nodes(sys.argv[1], sys.argv[2:]))
