"""Program that runs a cluster with one node and one pod until the process is ended.

python -m tests.pods.one_cluster FOLDER
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from tools.kubernetes.api import Json
from tools.kubernetes.node import Cluster, NodeShape

IMAGE = "rdma-ray.local/sleeps:1"


def main(folder: Path) -> None:
    """Print UP when the pod runs."""
    shape = NodeShape(host_files={"/home/kubernetes/bin/gib": None})
    with Cluster(folder, nodes={"only": shape}, stubs={IMAGE: ()}) as cluster:
        api = cluster.plane.api
        container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}
        metadata = {"name": "sleeps", "namespace": "default"}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})

        def runs() -> Json | None:
            pod = api.get("v1", "Pod", "sleeps", "default")
            return pod if pod and pod["status"]["phase"] == "Running" else None

        api.until("the pod to run", runs, 90)
        print("UP", flush=True)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(Path(sys.argv[1]))
