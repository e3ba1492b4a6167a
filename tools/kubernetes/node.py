"""Real nodes on this machine, and a cluster of them with network, control plane and DNS.

    with Cluster(folder, nodes={"cpu-0": NodeShape(), "gpu-0": NodeShape(extended={"nvidia.com/gpu": 8})},
                 real_images=["rayproject/ray:2.60.0"]) as cluster:
        cluster.plane.api.apply(...)

Needs root on Linux. All programs are real: kubelet, kube-proxy, containerd, runc, CoreDNS and the control plane's.
Nodes share this machine's CPUs, memory and kernel, and each reports all of them. NetworkPolicies are not enforced.

Version 1.36.1 (https://kubernetes.io/docs/reference/command-line-tools-reference/, read 2026-11-21).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.kubernetes import builds, containers, images
from tools.kubernetes.api import Api, Json
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.controller_pods import PodOperators, controller_image
from tools.kubernetes.image_archive import File, Image
from tools.kubernetes.images import Store
from tools.kubernetes.node_machine import Machine, bind, identity_of, overlay
from tools.kubernetes.node_network import Network
from tools.kubernetes.node_probe import ready_to_run

_READY_S = 90.0
_PROGRAMS = ("kubelet", "kube-proxy", "coredns")
# Kernel settings that the kubelet requires, as copies (Kubernetes 1.36.1, pkg/kubelet/cm/container_manager_linux.go).
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


class KubeletNode(Machine):
    """Node: a machine with kubelet, kube-proxy and containerd, and files in `folder`."""

    def __init__(
        self, name: str, index: int, shape: NodeShape, folder: Path, logs: Path, network: Network, store: Store
    ) -> None:
        self.index = index
        self.shape = shape
        self.address = network.address(index)
        self.folder = folder
        self._network = network
        folder.mkdir(parents=True)
        mounts = [*self._mounts(), *store.begin(folder / "containerd")]
        identity = folder.parent.name
        super().__init__(name, logs, identity=identity, mounts=mounts, remove=[folder], cgroups=True)

    def begin(
        self, programs: Mapping[str, Path], images: Sequence[Image], without: frozenset[str], kubeconfig: Path
    ) -> None:
        """Start the programs, and import the images except the layers in `without`."""
        self._network.join(self, self.index)
        containers.start(self, self.folder, self._network.subnet(self.index))
        containers.import_images(self, images, without=without)
        self.start("kubelet", [programs["kubelet"], *self._kubelet(kubeconfig)])
        proxy = containers.flags("kube-proxy", name=self.name, kubeconfig=kubeconfig, pods=self._network.pods)
        self.start("kube-proxy", [programs["kube-proxy"], *proxy])

    def wait_until_ready(self, api: Api) -> None:
        """Wait until the node is Ready, and report its extended resources."""

        def ready() -> Json | None:
            self.check()
            node = api.get("v1", "Node", self.name)
            conditions = node["status"].get("conditions", []) if node else []
            return node if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) else None

        api.until(f"node {self.name} to be Ready", ready, _READY_S)
        if self.shape.extended:
            amounts = {name: str(amount) for name, amount in self.shape.extended.items()}
            status = {"status": {"capacity": amounts, "allocatable": amounts}}
            api.patch("v1", "Node", self.name, None, status, type="merge", subresource="status")

    def _mounts(self) -> list[list[str]]:
        mounts = []
        # Kubelet, containerd and the CNI plugins use fixed paths.
        for place in ("/var/log", "/var/lib"):
            host_path = self.folder / place.strip("/").replace("/", "-")
            host_path.mkdir()
            mounts.append(bind(host_path, place))
        for name, value in _TUNABLES.items():
            source = self.folder / name.replace("/", "-")
            source.write_text(value + "\n")
            mounts.append(bind(source, f"/proc/sys/{name}"))
        for top in sorted({Path(path).parts[1] for path in self.shape.host_files}):
            scratch = self.folder / f"host-{top}"
            mounts.append(overlay(f"/{top}", scratch))
            for path, text in self.shape.host_files.items():
                if Path(path).parts[1] == top:
                    _write(scratch / "upper" / Path(*Path(path).parts[2:]), text)
        return mounts

    def _kubelet(self, kubeconfig: Path) -> list[str]:
        (self.folder / "resolv.conf").write_text("")
        file = self.folder / "kubelet.yaml"
        values = {"address": self.address, "dns": self._network.dns, "taints": json.dumps(list(self.shape.taints))}
        file.write_text(containers.config("kubelet.yaml", folder=self.folder, socket=containers.SOCKET, **values))
        labels = ",".join(f"{name}={value}" for name, value in self.shape.labels.items())
        own = {"name": self.name, "address": self.address, "kubeconfig": kubeconfig, "folder": self.folder}
        return [*containers.flags("kubelet", **own), *([f"--node-labels={labels}"] if labels else [])]


class Cluster:
    """Control plane with real nodes, as a context manager. It sets `plane`, `network` and `operators`.

    Args:
        folder: Folder of its files. At the end, everything in it but the subfolder `logs` is deleted.
        nodes: Name -> shape of the first nodes.
        real_images: Names of the image of this environment.
        stubs: Name of an image that sleeps -> replacements of the files that a manifest's commands call.
        say: Receives progress.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Mapping[str, NodeShape],
        real_images: Sequence[str] = (),
        stubs: Mapping[str, Sequence[File]] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        ready_to_run()
        self.folder = folder.resolve()
        self.nodes: dict[str, KubeletNode] = {}
        self._shapes = dict(nodes)
        self._real_images = real_images
        self._stubs = stubs or {}
        self._say = say
        self._kept = self.folder / identity_of(self.folder)
        self._cleanup = contextlib.ExitStack()
        # Protects `nodes` and `_images`.
        self._changing = threading.Lock()

    def __enter__(self) -> Cluster:
        with self._cleanup:
            self._start()
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything, pods first, and delete all files except logs."""
        self._cleanup.close()

    def begin(self, name: str, shape: NodeShape) -> KubeletNode:
        """Start one more node, whose kubelet registers a moment later. Thread-safe."""
        with self._changing:
            taken = {node.index for node in self.nodes.values()}
            index = next(number for number in range(len(taken) + 1) if number not in taken)
            folder, logs = self._kept / f"n{index}", self.folder / "logs"
            node = self.nodes[name] = KubeletNode(name, index, shape, folder, logs, self.network, self._store)
            images = [*self._images]
        stored = frozenset(layer.digest for layer in self._store.layers)
        node.begin(self._programs, images, stored, self.plane.kubeconfig)
        return node

    def remove(self, name: str) -> None:
        """Stop a node as when a cloud reclaims its machine, and delete its Node object."""
        with self._changing:
            self.nodes.pop(name).stop()
        self.plane.api.delete("v1", "Node", name)

    def check(self) -> None:
        """Raise ProgramEnded if a program of the cluster has ended unexpectedly."""
        for programs in (self.plane, self.network.machine, *self.nodes.values()):
            programs.check()

    def _start(self) -> None:
        self._programs = builds.programs(*_PROGRAMS, say=self._say)
        self._store = images.store(self._say)
        for name, files in self._stubs.items():
            self._say(f"simulated image: {name} {'has files of this project' if files else 'sleeps'}")
        self._images = list(images.run_images(self._store, self._real_images, self._stubs))
        # Files of a killed owner.
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir(parents=True)
        self._cleanup.callback(self._remove_files)
        network = self.network = Network(self._kept, self.folder / "logs", self._kept.name)
        self._cleanup.callback(network.stop)
        flags = [
            "--kubelet-preferred-address-types=InternalIP",
            # Call webhooks by pod address: no kube-proxy runs here.
            "--enable-aggregator-routing=true",
            f"--service-cluster-ip-range={network.services}",
        ]
        plane = self.plane = ControlPlane(self.folder, address=network.here, server_flags=flags, say=self._say)
        self._cleanup.enter_context(plane)
        self.operators = PodOperators(plane.api, self._load, self._say)
        network.start_dns(self._programs["coredns"], plane.work, plane.url, plane.kubeconfig)
        self._cleanup.callback(self._stop_nodes)
        for node in [self.begin(name, shape) for name, shape in self._shapes.items()]:
            node.wait_until_ready(plane.api)

    def _load(self, name: str, program: str) -> None:
        """Create a controller's image, and load it on all nodes, also on later ones."""
        with self._changing:
            if any(name in image.names for image in self._images):
                return
            image = controller_image(name, builds.programs(program, say=self._say)[program])
            self._images.append(image)
            nodes = [*self.nodes.values()]
        for node in nodes:
            containers.wait_until_ready(node)
            containers.import_images(node, [image])

    def _stop_nodes(self) -> None:
        for node in self.nodes.values():
            node.release()
        for node in self.nodes.values():
            node.stop()

    def _remove_files(self) -> None:
        # Each node's folder was deleted with the node.
        (self._kept / "resolv.conf").unlink(missing_ok=True)
        self._kept.rmdir()


def _write(path: Path, text: str | None) -> None:
    (path if text is None else path.parent).mkdir(parents=True, exist_ok=True)
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
