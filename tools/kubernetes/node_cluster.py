"""A real cluster of several nodes on this machine: network, control plane, DNS, nodes; all of it gone afterwards.

    with Cluster(folder, nodes={"cpu-0": NodeShape(), "gpu-0": NodeShape(extended={"nvidia.com/gpu": 8})},
                 real_images=["rayproject/ray:2.60.0"]) as cluster:
        cluster.plane.api.apply(...)

Needs root on Linux, for namespaces. What is real: etcd, API server, controller manager, scheduler, kubelet, kube-proxy,
containerd, runc, CoreDNS. What is not: the nodes share this machine's CPUs, memory and kernel; images come from this
environment (`images`); NetworkPolicy is stored and not enforced.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tools.kubernetes import builds, containers, images
from tools.kubernetes.containers import Missing
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.images_archive import Image
from tools.kubernetes.node import Node, NodeShape
from tools.kubernetes.node_machine import identity_of
from tools.kubernetes.node_network import Network

_PROGRAMS = ("kubelet", "kube-proxy", "coredns")


def ready_to_run() -> None:
    """Raise Missing, with what to do instead, where a cluster of real pods cannot run."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing(
            "Real pods need root on Linux (namespaces, mounts, a network). Without it, give an existing cluster: "
            "`KUBECONFIG=… make test-pods`; `make test-kubernetes` needs neither."
        )
    containers.found()


class Cluster:
    """A control plane with real nodes; `plane`, `nodes` and `network` are there inside the `with`."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Mapping[str, NodeShape],
        real_images: Sequence[str] = (),
        stand_ins: Sequence[str] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        ready_to_run()
        self.folder = folder.resolve()
        self.nodes: dict[str, Node] = {}
        self._shapes = dict(nodes)
        self._real = list(real_images)
        self._stand_ins = list(stand_ins)
        self._say = say
        self.identity = identity_of(self.folder)
        self._kept = self.folder / self.identity
        self._network: Network | None = None
        self._plane: ControlPlane | None = None
        self._images: list[Image] = []

    @property
    def plane(self) -> ControlPlane:
        """The control plane. Raises RuntimeError outside the `with`."""
        if self._plane is None:
            raise RuntimeError("the cluster is not started; use it as a context manager")
        return self._plane

    @property
    def network(self) -> Network:
        """The network. Raises RuntimeError outside the `with`."""
        if self._network is None:
            raise RuntimeError("the cluster is not started; use it as a context manager")
        return self._network

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add(self, name: str, shape: NodeShape) -> Node:
        """Start one more node and wait until it is Ready."""
        node = self._begin(name, shape)
        node.wait_until_ready(self.plane.api)
        return node

    def remove(self, name: str) -> None:
        """Switch a node off, as a cloud takes a machine back: no pod is asked first, and its Node object goes."""
        node = self.nodes.pop(name)
        node.stop()
        self.network.leave(node.index)
        self.plane.api.delete("v1", "Node", name)

    def check(self) -> None:
        """Raise ProgramEnded if a program of the cluster has ended by itself."""
        self.plane.check()
        self.network.machine.check()
        for node in self.nodes.values():
            node.check()

    def stop(self) -> None:
        """End everything, pods first, and remove what it kept but for the logs. May be called twice."""
        try:
            for node in self.nodes.values():
                node.release()
            for node in self.nodes.values():
                node.stop()
        finally:
            try:
                if self._plane is not None:
                    self._plane.stop()
            finally:
                if self._network is not None:
                    self._network.stop()
                if self._kept.is_dir():
                    # Each node's folder went with the node.
                    (self._kept / "resolv.conf").unlink(missing_ok=True)
                    self._kept.rmdir()

    def _start(self) -> None:
        programs = builds.programs(*_PROGRAMS, say=self._say)
        store = images.store(self._say)
        for name in self._stand_ins:
            self._say(f"stand-in: {name} only sleeps")
        self._images = list(images.run_images(store, self._real, self._stand_ins))
        self._store, self._programs = store, programs
        # What a killed owner left there is of no use.
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir(parents=True)
        logs = self.folder / "logs"
        self._network = Network(self._kept, logs, self.identity)
        flags = {
            "kube-apiserver": [
                "--kubelet-preferred-address-types=InternalIP",
                f"--service-cluster-ip-range={self.network.services}",
            ]
        }
        # The operator asks for Ray's dashboards by the names of their Services.
        before = {"ray-operator": self.network.machine.entering("mount")}
        self._plane = ControlPlane(self.folder, address=self.network.here, flags=flags, before=before, say=self._say)
        self._plane.__enter__()
        self.network.start_dns(programs["coredns"], self._plane.work, self._plane.url, self._plane.kubeconfig)
        starting = [self._begin(name, shape) for name, shape in self._shapes.items()]
        for node in starting:
            node.wait_until_ready(self._plane.api)

    def _begin(self, name: str, shape: NodeShape) -> Node:
        taken = {node.index for node in self.nodes.values()}
        index = next(number for number in range(len(taken) + 1) if number not in taken)
        node = Node(name, index, shape, self._kept / name, self.folder / "logs", self.network)
        self.nodes[name] = node
        node.start(self._programs, self._store, self._images, self.plane.kubeconfig)
        return node
