"""Run a real Kubernetes with KubeRay on this machine until Ctrl-C, for `kubectl` and for the tests of users' clusters.

    python -m tools.kubernetes.standing                    # three nodes; prints KUBECONFIG
    python -m tools.kubernetes.standing --nodes 1 --kueue  # one node, and Kueue

Every node has Ray's image under the names that the stacks use. The kubeconfig's context is `rdma-ray`, and there is an
empty namespace `ray`, as in Pulumi.kubernetes.yaml. Needs root on Linux (`node`).
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from infra.catalog.names import NAMESPACE
from infra.catalog.pins import AWS_RAY_TRAIN, RAY_IMAGE
from tools.kubernetes import builds
from tools.kubernetes.builds import BuildError
from tools.kubernetes.containers import Missing
from tools.kubernetes.node import Cluster, NodeShape
from tools.kubernetes.node_network import MAX_MACHINES
from tools.kubernetes.node_probe import NOT_READY

# The images of the stack files.
RAY_IMAGES = (RAY_IMAGE, AWS_RAY_TRAIN)
# With the chart's limit, 0.1 CPU, the operator takes 20 seconds to start. It requests no CPU: head and workers of
# Pulumi.kubernetes.yaml request both CPUs of a node.
_VALUES = {"resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "500m", "memory": "1Gi"}}}
# A separate /home, so that pods do not write into the host's.
_HOME = {"/home/node": None}
_say = partial(print, flush=True)


def main(arguments: list[str]) -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kubernetes.standing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", type=int, default=3, help="number of nodes (3)")
    parser.add_argument("--kueue", action="store_true", help="also run Kueue")
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.nodes <= MAX_MACHINES:
        parser.error(f"--nodes {chosen.nodes}: from 1 to {MAX_MACHINES}")
    # Handle SIGTERM like Ctrl-C, so that everything is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kubectl = builds.programs("kubectl", say=_say)["kubectl"]
    with tempfile.TemporaryDirectory(prefix="rdma-ray-standing-") as folder:
        nodes = {f"node-{number}": NodeShape(host_files=_HOME) for number in range(chosen.nodes)}
        with Cluster(Path(folder), nodes=nodes, real_images=RAY_IMAGES, say=_say) as cluster:
            cluster.operators.start_kuberay(_VALUES)
            # That of Pulumi.kubernetes.yaml, as its context is.
            cluster.plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            if chosen.kueue:
                cluster.operators.start_kueue()
            _say(f"Kubernetes is up with {chosen.nodes} nodes. In another terminal:\n")
            _say(f"    export KUBECONFIG={cluster.plane.kubeconfig}\n    {kubectl} get pods -A\n\nCtrl-C ends it.")
            while True:
                cluster.check()
                time.sleep(1.0)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        _say("ended; nothing is left")
    except (Missing, BuildError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(NOT_READY)
