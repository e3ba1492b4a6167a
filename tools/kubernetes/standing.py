"""A real Kubernetes on this machine, for trying `kubectl` and the tests' way with a user's cluster, until Ctrl-C.

    python -m tools.kubernetes.standing                    # three nodes and KubeRay; prints its KUBECONFIG
    python -m tools.kubernetes.standing --nodes 1 --kueue  # another size, and Kueue

Every node has the image of Ray under the names that the stacks use. Needs what `node_cluster` needs: root on Linux.
Nothing is left when it ends.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.catalog.pins import AWS_RAY_TRAIN, RAY_IMAGE
from tools.kubernetes import builds
from tools.kubernetes.builds import BuildError
from tools.kubernetes.containers import Missing
from tools.kubernetes.node import NodeShape
from tools.kubernetes.node_cluster import Cluster
from tools.kubernetes.node_network import MOST_MACHINES
from tools.kubernetes.node_probe import NOT_READY

RAY_IMAGES = (RAY_IMAGE, AWS_RAY_TRAIN)
"""The images of the stack files."""
# A tenth of a CPU, the chart's own, lets it start for 20 seconds.
_VALUES = {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "1Gi"}}}
# A node has a /home of its own, so that what is written there does not land on this machine.
_HOME = {"/home/node": None}
_LOOK_S = 1.0


def main(arguments: list[str]) -> None:
    """Stand until interrupted or told to end."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kubernetes.standing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", type=int, default=3, help="how many (3)")
    parser.add_argument("--kueue", action="store_true", help="run Kueue, too")
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.nodes <= MOST_MACHINES:
        parser.error(f"--nodes {chosen.nodes}: from 1 to {MOST_MACHINES}")
    signal.signal(signal.SIGTERM, _end)
    kubectl = builds.programs("kubectl", say=_say)["kubectl"]
    with tempfile.TemporaryDirectory(prefix="rdma-ray-standing-") as folder:
        nodes = {f"node-{number}": NodeShape(host_files=_HOME) for number in range(chosen.nodes)}
        with Cluster(Path(folder), nodes=nodes, real_images=RAY_IMAGES, say=_say) as cluster:
            cluster.start_kuberay(_VALUES)
            if chosen.kueue:
                cluster.start_kueue()
            _say(f"Kubernetes is up with {chosen.nodes} nodes. In another terminal:\n")
            _say(f"    export KUBECONFIG={cluster.plane.kubeconfig}\n    {kubectl} get pods -A\n\nCtrl-C ends it.")
            while True:
                cluster.check()
                time.sleep(_LOOK_S)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    # As Ctrl-C does, so that everything is taken down.
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        print("ended; nothing is left", flush=True)
    except (Missing, BuildError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(NOT_READY)
