"""Real nodes of depth `pods`: kubelet and containerd, each on a machine of Linux namespaces.

The cloud controllers create the Node object, with the names, labels and taints of the simulated cloud; the kubelet
adopts it and reports this machine's CPUs and memory. Device counts are written by the cloud controllers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from infra.catalog.fabrics import HOST_GIB, HOST_NVIDIA
from infra.catalog.pins import GIB_IMAGE, PAUSE_IMAGE
from infra.settings import Settings
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.engine.kind import Json
from tools.kubernetes.image_archive import File
from tools.kubernetes.node import Cluster, NodeShape

MOST = 6
"""Maximum number of real nodes: the largest stack file has four GPU nodes and two others. Each takes about 200 MB."""

_SCRIPT = "# A stub: NCCL's settings would be here.\nexport RDMA_RAY_STAND_IN=gib\n"
_INSTALL = "#!/bin/sh\nset -eu\nmkdir -p /var/lib/gib/lib64 /usr/local/nvidia/lib64\n"


def stubs(settings: Settings) -> dict[str, tuple[File, ...]]:
    """Return the images of a stack's objects that are not available here -> the files that replace their commands.

    GKE's gIB installer copies a script of this project.
    """
    if settings.target != "gke":
        return {}
    files = (
        File("/scripts/container_entry.sh", text=_INSTALL, executable=True),
        File("/var/lib/gib/scripts/set_nccl_env.sh", text=_SCRIPT, executable=True),
        File("/var/lib/gib/lib64/STAND-IN", text="no library\n"),
    )
    return {PAUSE_IMAGE: (), GIB_IMAGE: files}


def shape(pool: Pool) -> NodeShape:
    """Return the disk contents of a pool's node: on GKE's GPU machines the driver's folder, without a driver.

    It keeps what the gIB installer writes below /home on the node. Labels, taints and devices are in the Node object,
    not in the kubelet's configuration.
    """
    own = pool.cloud == "gke" and pool.gpus
    return NodeShape(host_files={f"{HOST_NVIDIA}/lib64": None, HOST_GIB: None} if own else {})


class RealNodes:
    """Nodes of a `cluster`, started and stopped in background threads; at most `most` at a time."""

    def __init__(self, cluster: Cluster, *, most: int = MOST) -> None:
        self._cluster = cluster
        self._most = most
        self._there: set[str] = set()
        self._works: dict[str, Future[None]] = {}
        self._threads = ThreadPoolExecutor(max_workers=most, thread_name_prefix="node")

    def room(self) -> int:
        """Return how many more nodes this machine can run."""
        return self._most - len(self._there)

    def start(self, pool: Pool, body: Json) -> Json:
        """Create the object without a status, and start the machine whose kubelet will report one."""
        name = str(body["metadata"]["name"])
        made = self._cluster.plane.api.create({key: value for key, value in body.items() if key != "status"})
        self._there.add(name)
        self._work(name, lambda: self._cluster.begin(name, shape(pool)))
        return made

    def stop(self, name: str) -> None:
        """Stop the machine, after its start has finished."""
        if name in self._there:
            self._there.remove(name)
            self._work(name, lambda: self._cluster.remove(name))

    def check(self) -> None:
        """Raise the error of a node, or `ProgramEnded` if a program of the cluster has ended."""
        for work in list(self._works.values()):
            if work.done() and not work.cancelled() and (problem := work.exception()) is not None:
                raise problem
        self._cluster.check()

    def close(self) -> None:
        """No longer start or stop nodes; return when all threads have finished."""
        self._threads.shutdown(cancel_futures=True)

    def _work(self, name: str, work: Callable[[], object]) -> None:
        before = self._works.get(name)

        def do() -> None:
            if before is not None:
                before.result()
            work()

        self._works[name] = self._threads.submit(do)
