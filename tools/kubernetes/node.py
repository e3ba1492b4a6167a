"""Real nodes on this machine, and a cluster of them with network, control plane and DNS.

    with Cluster(folder, nodes={"cpu-0": NodeShape(), "gpu-0": NodeShape(extended={"nvidia.com/gpu": 8})},
                 real_images=["rayproject/ray:2.60.0"]) as cluster:
        cluster.plane.api.apply(...)

Needs root on Linux, for namespaces. All programs are real: etcd, API server, controller manager, scheduler, kubelet,
kube-proxy, containerd, runc and CoreDNS. The nodes share this machine's CPUs, memory and kernel, and each reports all
of them. Images come from this environment (`images`). NetworkPolicies are not enforced.

Version 1.36.1 (https://kubernetes.io/docs/reference/command-line-tools-reference/, read 2026-11-21).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.kubernetes import builds, containers, controller_pods, images
from tools.kubernetes.api import Api, Json
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.image_archive import File, Image
from tools.kubernetes.images import Store
from tools.kubernetes.node_machine import Machine, bare_environment, identity_of
from tools.kubernetes.node_network import Network
from tools.kubernetes.node_probe import ready_to_run

_READY_S = 90.0
_PROGRAMS = ("kubelet", "kube-proxy", "coredns")
# Kernel settings that the kubelet requires. It reads these copies, so it does not change the machine's (Kubernetes
# 1.36.1, pkg/kubelet/cm/container_manager_linux.go).
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """Labels and taints of a node, and the additions of a cloud's plugins and daemons.

    Attributes:
        extended: Extended resources by name, such as {"nvidia.com/gpu": 8}.
        host_files: Path on the node -> text, or None for a folder.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Json] = ()
    extended: Mapping[str, int] = field(default_factory=dict)
    host_files: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def takes_any_pod(self) -> bool:
        """Whether the node has no taint that repels pods."""
        return all(taint["effect"] == "PreferNoSchedule" for taint in self.taints)


class Node:
    """Node: kubelet, kube-proxy and containerd in a machine of namespaces, with files in `folder`."""

    def __init__(self, name: str, index: int, shape: NodeShape, folder: Path, logs: Path, network: Network) -> None:
        self.name = name
        self.index = index
        self.shape = shape
        self.address = network.address(index)
        self.folder = folder
        self._logs = logs
        self._network = network
        self._machine: Machine | None = None

    @property
    def machine(self) -> Machine:
        """The node's machine, from `start` on."""
        assert self._machine is not None
        return self._machine

    def start(self, programs: Mapping[str, Path], store: Store, images: Sequence[Image], kubeconfig: Path) -> None:
        """Start the machine and its programs, and import the images."""
        folder = self.folder
        folder.mkdir(parents=True)
        mounts = [["tmpfs", "/run"], *self._mounts(), *store.begin(folder / "containerd")]
        identity = folder.parent.name
        self._machine = Machine(self.name, self._logs, identity=identity, mounts=mounts, remove=[folder], cgroups=True)
        self._network.join(self.machine, self.index)
        config = containers.configuration(folder, cni=containers.found(), subnet=self._network.subnet(self.index))
        environment = bare_environment()
        self.machine.start("containerd", ["containerd", f"--config={config}"], environment)
        containers.wait_until_ready(folder, self.machine.check)
        containers.import_images(folder, images, without=store.digests)
        self.machine.start("kubelet", [programs["kubelet"], *self._kubelet(kubeconfig)], environment)
        proxy = containers.flags("kube-proxy", name=self.name, kubeconfig=kubeconfig, pods=self._network.pods)
        self.machine.start("kube-proxy", [programs["kube-proxy"], *proxy], environment)

    def wait_until_ready(self, api: Api) -> None:
        """Wait until the node is Ready, and report its extended resources."""

        def ready() -> Json | None:
            self.machine.check()
            node = api.get("v1", "Node", self.name)
            conditions = node["status"].get("conditions", []) if node else []
            return node if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) else None

        api.until(f"node {self.name} to be Ready", ready, _READY_S)
        if self.shape.extended:
            amounts = {name: str(amount) for name, amount in self.shape.extended.items()}
            status = {"status": {"capacity": amounts, "allocatable": amounts}}
            api.patch("v1", "Node", self.name, None, status, type="merge", subresource="status")

    def check(self) -> None:
        """Raise ProgramEnded if one of its programs has ended; return if the node has not started."""
        if self._machine is not None:
            self._machine.check()

    def release(self) -> None:
        """Stop the node without waiting for its end. May be called twice."""
        if self._machine is not None:
            self._machine.release()

    def stop(self) -> None:
        """Stop the node with its pods, as a power failure would. May be called twice."""
        if self._machine is not None:
            self._machine.stop()

    def _mounts(self) -> list[list[str]]:
        mounts = []
        # Kubelet, containerd and the CNI plugins use fixed paths.
        for place in ("/var/log", "/var/lib"):
            own = self.folder / place.strip("/").replace("/", "-")
            own.mkdir()
            mounts.append(["bind", str(own), place])
        for name, value in _TUNABLES.items():
            source = self.folder / name.replace("/", "-")
            source.write_text(value + "\n")
            mounts.append(["value", f"/proc/sys/{name}", str(source)])
        for top in sorted({Path(path).parts[1] for path in self.shape.host_files}):
            scratch = self.folder / f"host-{top}"
            mounts.append(["overlay", f"/{top}", str(scratch / "upper"), str(scratch / "work")])
            for path, text in self.shape.host_files.items():
                if Path(path).parts[1] == top:
                    _write(scratch / "upper" / Path(*Path(path).parts[2:]), text)
        return mounts

    def _kubelet(self, kubeconfig: Path) -> list[str]:
        (self.folder / "resolv.conf").write_text("")
        file = self.folder / "kubelet.yaml"
        values = {"address": self.address, "dns": self._network.dns, "taints": json.dumps(list(self.shape.taints))}
        socket = containers.socket(self.folder)
        file.write_text(containers.config("kubelet.yaml", folder=self.folder, socket=socket, **values))
        labels = ",".join(f"{name}={value}" for name, value in self.shape.labels.items())
        own = {"name": self.name, "address": self.address, "kubeconfig": kubeconfig, "folder": self.folder}
        return [*containers.flags("kubelet", **own), *([f"--node-labels={labels}"] if labels else [])]


class Cluster:
    """Control plane with real nodes, as a context manager. It sets `plane` and `network`.

    Args:
        folder: Folder of its files. At the end, everything in it but the subfolder `logs` is deleted.
        nodes: Name -> shape of the first nodes.
        real_images: Names of the image of this environment.
        sleeping: Names of an image that sleeps.
        acting: Image name -> replacements of the files that a manifest's commands call.
        say: Receives progress.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Mapping[str, NodeShape],
        real_images: Sequence[str] = (),
        sleeping: Sequence[str] = (),
        acting: Mapping[str, Sequence[File]] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        ready_to_run()
        self.folder = folder.resolve()
        self.nodes: dict[str, Node] = {}
        self.identity = identity_of(self.folder)
        self._shapes = dict(nodes)
        self._image_names = (list(real_images), list(sleeping), dict(acting or {}))
        self._say = say
        self._kept = self.folder / self.identity
        containers.check_socket_length(self._kept / "n00")
        self._cleanup = contextlib.ExitStack()
        self._controllers: list[Image] = []
        self._changing = threading.Lock()

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self, name: str, shape: NodeShape) -> Node:
        """Start one more node, whose kubelet registers a moment later. Thread-safe."""
        with self._changing:
            taken = {node.index for node in self.nodes.values()}
            index = next(number for number in range(len(taken) + 1) if number not in taken)
            node = Node(name, index, shape, self._kept / f"n{index}", self.folder / "logs", self.network)
            self.nodes[name] = node
            controllers = list(self._controllers) if shape.takes_any_pod else []
        node.start(self._programs, self._store, [*self._images, *controllers], self.plane.kubeconfig)
        return node

    def remove(self, name: str) -> None:
        """Stop a node without draining it, as when a cloud reclaims a machine, and delete its Node object."""
        with self._changing:
            node = self.nodes.pop(name)
            node.stop()
            self.network.leave(node.index)
        self.plane.api.delete("v1", "Node", name)

    def start_kuberay(self, values: Json | None = None) -> None:
        """Run KubeRay's operator in a pod; see `controller_pods.start_kuberay`."""
        began = time.monotonic()
        controller_pods.start_kuberay(self.plane.api, values, lambda name: self._load(name, "ray-operator"))
        self._say(f"KubeRay's operator runs in a pod, after {time.monotonic() - began:.1f} s")

    def stop_kuberay(self) -> None:
        """Uninstall KubeRay; see `controller_pods.stop_kuberay`."""
        controller_pods.stop_kuberay(self.plane.api)

    def start_kueue(self, values: Json | None = None) -> None:
        """Run Kueue in a pod; see `controller_pods.start_kueue`."""
        began = time.monotonic()
        controller_pods.start_kueue(self.plane.api, values, lambda name: self._load(name, "kueue"))
        self._say(f"Kueue runs in a pod, after {time.monotonic() - began:.1f} s")

    def stop_kueue(self) -> None:
        """Uninstall Kueue; see `controller_pods.stop_kueue`."""
        controller_pods.stop_kueue(self.plane.api)

    def check(self) -> None:
        """Raise ProgramEnded if a program of the cluster has ended unexpectedly."""
        self.plane.check()
        self.network.machine.check()
        for node in list(self.nodes.values()):
            node.check()

    def stop(self) -> None:
        """Stop everything, pods first, and delete all files except logs. May be called twice."""
        with self._cleanup:
            for node in self.nodes.values():
                node.release()
            for node in self.nodes.values():
                node.stop()

    def _start(self) -> None:
        self._programs = builds.programs(*_PROGRAMS, say=self._say)
        self._store = images.store(self._say)
        _, sleeping, acting = self._image_names
        for name in (*sleeping, *acting):
            self._say(f"simulated image: {name} {'sleeps' if name in sleeping else 'has files of this project'}")
        self._images = list(images.run_images(self._store, *self._image_names))
        # Files of a killed owner.
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir(parents=True)
        self._cleanup.callback(self._remove_files)
        network = self.network = Network(self._kept, self.folder / "logs", self.identity)
        self._cleanup.callback(network.stop)
        flags = {
            "kube-apiserver": [
                "--kubelet-preferred-address-types=InternalIP",
                # Call webhooks by pod address: the API server's machine runs no kube-proxy for Services.
                "--enable-aggregator-routing=true",
                f"--service-cluster-ip-range={network.services}",
            ]
        }
        plane = self.plane = ControlPlane(self.folder, address=network.here, flags=flags, say=self._say)
        self._cleanup.enter_context(plane)
        network.start_dns(self._programs["coredns"], plane.work, plane.url, plane.kubeconfig)
        for node in [self.begin(name, shape) for name, shape in self._shapes.items()]:
            node.wait_until_ready(plane.api)

    def _load(self, name: str, program: str) -> None:
        """Create a controller's image, and load it on all nodes that may run it, including those that join later."""
        with self._changing:
            if any(name in image.names for image in self._controllers):
                return
            image = controller_pods.image(name, builds.programs(program, say=self._say)[program])
            self._controllers.append(image)
            nodes = [node for node in self.nodes.values() if node.shape.takes_any_pod]
        for node in nodes:
            containers.wait_until_ready(node.folder, node.check)
            containers.import_images(node.folder, [image])

    def _remove_files(self) -> None:
        # Each node's folder was deleted with the node.
        (self._kept / "resolv.conf").unlink(missing_ok=True)
        self._kept.rmdir()


def _write(path: Path, text: str | None) -> None:
    (path if text is None else path.parent).mkdir(parents=True, exist_ok=True)
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
