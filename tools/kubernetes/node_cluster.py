"""A real cluster of several nodes on this machine: network, control plane, DNS, nodes; all of it gone afterwards.

    with Cluster(folder, nodes={"cpu-0": NodeShape(), "gpu-0": NodeShape(extended={"nvidia.com/gpu": 8})},
                 real_images=["rayproject/ray:2.60.0"]) as cluster:
        cluster.plane.api.apply(...)

Needs root on Linux, for namespaces. What is real: etcd, API server, controller manager, scheduler, kubelet, kube-proxy,
containerd, runc, CoreDNS. What is not: the nodes share this machine's CPUs, memory and kernel; images come from this
environment (`images`); NetworkPolicy is stored and not enforced.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tools.kubernetes import builds, containers, controller_pods, images
from tools.kubernetes.api import Json
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.images_archive import Image
from tools.kubernetes.images_files import File
from tools.kubernetes.node import Node, NodeShape
from tools.kubernetes.node_machine import identity_of
from tools.kubernetes.node_network import Network
from tools.kubernetes.node_probe import ready_to_run

_PROGRAMS = ("kubelet", "kube-proxy", "coredns")


class Cluster:
    """A control plane with real nodes; `plane`, `nodes` and `network` are there inside the `with`."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Mapping[str, NodeShape],
        real_images: Sequence[str] = (),
        stand_ins: Sequence[str] = (),
        acting: Mapping[str, Sequence[File]] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        ready_to_run()
        self.folder = folder.resolve()
        self.nodes: dict[str, Node] = {}
        self._shapes = dict(nodes)
        self._real = list(real_images)
        self._stand_ins = list(stand_ins)
        self._acting = dict(acting or {})
        self._say = say
        self.identity = identity_of(self.folder)
        self._kept = self.folder / self.identity
        containers.must_hold_sockets(self._kept / "n00")
        self._network: Network | None = None
        self._plane: ControlPlane | None = None
        self._images: list[Image] = []
        self._controllers: list[Image] = []
        self._changing = threading.Lock()

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
        node = self.begin(name, shape)
        node.wait_until_ready(self.plane.api)
        return node

    def begin(self, name: str, shape: NodeShape) -> Node:
        """Start one more node, whose kubelet signs in a moment later; may be called by several threads."""
        with self._changing:
            taken = {node.index for node in self.nodes.values()}
            index = next(number for number in range(len(taken) + 1) if number not in taken)
            self._shapes[name] = shape
            node = Node(name, index, shape, self._kept / f"n{index}", self.folder / "logs", self.network)
            self.nodes[name] = node
            own = list(self._controllers) if _takes_any_pod(shape) else []
        node.start(self._programs, self._store, [*self._images, *own], self.plane.kubeconfig)
        return node

    def remove(self, name: str) -> None:
        """Switch a node off, as a cloud takes a machine back: no pod is asked first, and its Node object goes."""
        with self._changing:
            node = self.nodes.pop(name)
            node.stop()
            self.network.leave(node.index)
        self.plane.api.delete("v1", "Node", name)

    def start_kuberay(self, values: Json | None = None) -> None:
        """Run KubeRay's operator in a pod, from the values of its chart; returns when it is ready."""
        began = time.monotonic()
        controller_pods.start_kuberay(self.plane.api, values, lambda name: self._give(name, "ray-operator"))
        self._say(f"KubeRay's operator runs in a pod, after {time.monotonic() - began:.1f} s")

    def stop_kuberay(self) -> None:
        """Take the operator away as `helm uninstall` does; its CRDs stay."""
        controller_pods.stop_kuberay(self.plane.api)

    def start_kueue(self, values: Json | None = None) -> None:
        """Run Kueue in a pod, from the values of its chart; returns when its webhooks answer."""
        began = time.monotonic()
        controller_pods.start_kueue(self.plane.api, values, lambda name: self._give(name, "kueue"))
        self._say(f"Kueue runs in a pod, after {time.monotonic() - began:.1f} s")

    def stop_kueue(self) -> None:
        """Take Kueue away as `helm uninstall` does, with its CRDs and every object of these kinds."""
        controller_pods.stop_kueue(self.plane.api)

    def check(self) -> None:
        """Raise ProgramEnded if a program of the cluster has ended by itself."""
        self.plane.check()
        self.network.machine.check()
        for node in list(self.nodes.values()):
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
        for name in self._acting:
            self._say(f"stand-in: {name} has files of ours in place of its own")
        self._images = list(images.run_images(store, self._real, self._stand_ins, self._acting))
        self._store, self._programs = store, programs
        # What a killed owner left there is of no use.
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir(parents=True)
        logs = self.folder / "logs"
        self._network = Network(self._kept, logs, self.identity)
        flags = {
            "kube-apiserver": [
                "--kubelet-preferred-address-types=InternalIP",
                # Webhooks are called at the address of a Service's pod: no kube-proxy runs beside the API server.
                "--enable-aggregator-routing=true",
                f"--service-cluster-ip-range={self.network.services}",
            ]
        }
        self._plane = ControlPlane(self.folder, address=self.network.here, flags=flags, say=self._say)
        self._plane.__enter__()
        self.network.start_dns(programs["coredns"], self._plane.work, self._plane.url, self._plane.kubeconfig)
        starting = [self.begin(name, shape) for name, shape in list(self._shapes.items())]
        for node in starting:
            node.wait_until_ready(self._plane.api)

    def _give(self, name: str, program: str) -> None:
        """Make a controller's image, and give it to the nodes that may run it, those of later included."""
        with self._changing:
            if any(name in image.names for image in self._controllers):
                return
            image = controller_pods.image(name, builds.programs(program, say=self._say)[program])
            self._controllers.append(image)
            there = [node for node in self.nodes.values() if _takes_any_pod(self._shapes[node.name])]
        for node in there:
            containers.wait_until_ready(node.folder, node.check)
            containers.import_images(node.folder, [image])


def _takes_any_pod(shape: NodeShape) -> bool:
    return not any(taint["effect"] != "PreferNoSchedule" for taint in shape.taints)
