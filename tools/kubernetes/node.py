"""A real node: kubelet, kube-proxy and containerd in a machine of namespaces, with an address of its own.

Kubelet and kube-proxy as documented in https://kubernetes.io/docs/reference/command-line-tools-reference/ and
…/config-api/kubelet-config.v1beta1/ (read 2026-11-21), at version 1.36.1. The machine's CPUs and memory are this one's,
for every node anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.kubernetes import containers
from tools.kubernetes.api import Api, Json
from tools.kubernetes.images import Store
from tools.kubernetes.images_archive import Image
from tools.kubernetes.node_machine import Machine, bare_environment
from tools.kubernetes.node_network import Network

_READY_S = 90.0

# What the kubelet insists on, and writes if it finds something else: it reads these instead (Kubernetes 1.36.1,
# pkg/kubelet/cm/container_manager_linux.go). The machine's own values stay, for everybody.
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
    """What a node is beside a kubelet: labels, taints, and resources that the cloud's plugins would report.

    extended: amounts by name, such as {"nvidia.com/gpu": 8}. host_files: path on the node -> text or, for None, a
    folder; what the cloud's own daemons would have put there.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Json] = ()
    extended: Mapping[str, int] = field(default_factory=dict)
    host_files: Mapping[str, str | None] = field(default_factory=dict)


class Node:
    """One node of a cluster; `start` returns when it is Ready. What it keeps lies in `folder`, and goes with it."""

    def __init__(self, name: str, index: int, shape: NodeShape, folder: Path, logs: Path, network: Network) -> None:
        self.name = name
        self.index = index
        self.address = network.address(index)
        self._shape = shape
        self.folder = folder
        self._logs = logs
        self._network = network
        self._machine: Machine | None = None

    @property
    def machine(self) -> Machine:
        """The machine that it runs on. Raises RuntimeError before `start`."""
        if self._machine is None:
            raise RuntimeError(f"node {self.name} is not started")
        return self._machine

    def start(self, programs: Mapping[str, Path], store: Store, images: Sequence[Image], kubeconfig: Path) -> None:
        """Start the machine and its programs, and give containerd its images."""
        folder = self.folder
        folder.mkdir(parents=True)
        mounts = [["tmpfs", "/run"], *self._mounts(), *store.begin(folder / "containerd")]
        identity = folder.parent.name
        self._machine = Machine(self.name, self._logs, identity=identity, mounts=mounts, remove=[folder], cgroups=True)
        self._network.join(self.machine, self.index)
        config = containers.configuration(folder, cni=containers.found(), subnet=self._network.subnet(self.index))
        own = bare_environment()
        self.machine.start("containerd", ["containerd", f"--config={config}"], own)
        containers.wait_until_ready(folder, self.machine.check)
        containers.import_images(folder, images, without=store.digests)
        self.machine.start("kubelet", [programs["kubelet"], *self._kubelet(kubeconfig)], own)
        self.machine.start("kube-proxy", [programs["kube-proxy"], *self._proxy(kubeconfig)], own)

    def wait_until_ready(self, api: Api) -> None:
        """Wait until the node is Ready, and let it report its extended resources."""

        def ready() -> Json | None:
            self.machine.check()
            node = api.get("v1", "Node", self.name)
            conditions = node["status"].get("conditions", []) if node else []
            return node if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) else None

        api.until(f"node {self.name} to be Ready", ready, _READY_S)
        if self._shape.extended:
            amounts = {name: str(amount) for name, amount in self._shape.extended.items()}
            status = {"status": {"capacity": amounts, "allocatable": amounts}}
            api.patch("v1", "Node", self.name, None, status, type="merge", subresource="status")

    def check(self) -> None:
        """Raise ProgramEnded if one of its programs has ended by itself; one that is about to start is well."""
        if self._machine is not None:
            self._machine.check()

    def release(self) -> None:
        """Let the node end, without waiting for it. May be called twice."""
        if self._machine is not None:
            self._machine.release()

    def stop(self) -> None:
        """End the node like a machine that loses its power: pods and all. May be called twice."""
        if self._machine is not None:
            self._machine.stop()

    def _mounts(self) -> list[list[str]]:
        folder, mounts = self.folder, []
        for place in ("/var/log", "/var/lib"):
            # What kubelet, containerd and the CNI plugins keep in fixed places.
            own = folder / place.strip("/").replace("/", "-")
            own.mkdir()
            mounts.append(["bind", str(own), place])
        for name, value in _TUNABLES.items():
            source = folder / name.replace("/", "-")
            source.write_text(value + "\n")
            mounts.append(["value", f"/proc/sys/{name}", str(source)])
        for top in sorted({Path(path).parts[1] for path in self._shape.host_files}):
            scratch = folder / f"host-{top}"
            mounts.append(["overlay", f"/{top}", str(scratch / "upper"), str(scratch / "work")])
            for path, text in self._shape.host_files.items():
                if Path(path).parts[1] == top:
                    _write(scratch / "upper" / Path(*Path(path).parts[2:]), text)
        return mounts

    def _kubelet(self, kubeconfig: Path) -> list[str]:
        folder = self.folder
        resolv = folder / "resolv.conf"
        resolv.write_text("")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            # Nobody else reaches the address but this machine's own users.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "containerRuntimeEndpoint": f"unix://{containers.socket(folder)}",
            "clusterDNS": [self._network.dns],
            "clusterDomain": "cluster.local",
            "resolvConf": str(resolv),
            "podLogsDir": "/var/log/pods",
            "volumePluginDir": str(folder / "volume-plugins"),
            "oomScoreAdj": 0,
            "registerWithTaints": list(self._shape.taints),
            "nodeStatusUpdateFrequency": "5s",
            "protectKernelDefaults": True,
            "maxPods": 60,
        }
        file = folder / "kubelet.json"
        file.write_text(json.dumps(config, indent=1))
        labels = ",".join(f"{name}={value}" for name, value in self._shape.labels.items())
        return [
            f"--config={file}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            # The machine's own /var/lib, which is this folder's; here, since the kubelet makes sockets with long names.
            "--root-dir=/var/lib/kubelet",
            f"--cert-dir={folder / 'certificates'}",
            *([f"--node-labels={labels}"] if labels else []),
        ]

    def _proxy(self, kubeconfig: Path) -> list[str]:
        return [
            "--proxy-mode=nftables",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--cluster-cidr={self._network.pods}",
            # The machine's limits stay as they are.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
            "--oom-score-adj=0",
            "--nodeport-addresses=primary",
        ]


def _write(path: Path, text: str | None) -> None:
    (path if text is None else path.parent).mkdir(parents=True, exist_ok=True)
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
