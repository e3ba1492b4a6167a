"""Network of a cluster of machines: a bridge in a network namespace, and a link from the host.

Addresses are in 10.N.0.0/16 with an N that the host does not use: 10.N.0.1 is the host (with the API server), 10.N.0.2
the bridge (DNS), 10.N.0.10 and up the machines, 10.N.64.0/20 Services, 10.N.128.0/24 the first machine's pods. Nothing
is forwarded to or from outside. Links, addresses and routes are removed with the namespaces.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path

from tools.kubernetes.containers import config
from tools.kubernetes.node_machine import Machine, bind, run

LINK = "rr"
"""Prefix of the links' names on this machine; a link's name has 15 characters at most."""

MAX_MACHINES = 64
_CANDIDATES = range(200, 250)
_FORWARD = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]


class Network:
    """Network, created by the constructor and removed by `stop`."""

    def __init__(self, folder: Path, logs: Path, identity: str) -> None:
        prefix = f"10.{_free_second_number()}"
        self._prefix = prefix
        self._link = f"{LINK}{identity}"
        self.here, self.dns = f"{prefix}.0.1", f"{prefix}.0.2"
        self.services, self.pods = f"{prefix}.64.0/20", f"{prefix}.128.0/17"
        # Programs with the machine's mounts resolve only names of the cluster.
        names = folder / "resolv.conf"
        names.write_text(f"nameserver {self.dns}\noptions ndots:1\n")
        mount = bind(names, Path("/etc/resolv.conf").resolve())
        self.machine = Machine("network", logs, identity=identity, mounts=[mount])
        try:
            self._create()
        except BaseException:
            self.machine.stop()
            raise

    def address(self, index: int) -> str:
        """Return the address of the machine with this index, from 0."""
        return f"{self._prefix}.0.{10 + index}"

    def subnet(self, index: int) -> str:
        """Return the address range of that machine's pods."""
        return f"{self._prefix}.{128 + index}.0/24"

    def join(self, machine: Machine, index: int) -> None:
        """Give a machine its address and routes to all pods, through the bridge."""
        if index >= MAX_MACHINES:
            raise ValueError(f"a network has {MAX_MACHINES} machines at most")
        bridge, own = self.machine, f"node{index}"
        bridge.run(["ip", "link", "add", own, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)])
        bridge.run(["ip", "link", "set", own, "master", "bridge", "up"])
        bridge.run(["ip", "route", "replace", self.subnet(index), "via", self.address(index)])
        machine.run(["ip", "address", "add", f"{self.address(index)}/24", "dev", "eth0"])
        machine.run(["ip", "link", "set", "eth0", "up"])
        machine.run(["ip", "route", "add", "default", "via", self.here])
        machine.run(["ip", "route", "add", self.pods, "via", self.dns])
        # Pods have their own routes. Packets for a deleted one must not return.
        machine.run(["ip", "route", "add", "unreachable", self.subnet(index)])
        machine.run(_FORWARD)

    def stop(self) -> None:
        """Remove the network. May be called twice."""
        # The kernel removes it with the namespaces, but a moment later.
        subprocess.run(["ip", "link", "delete", self._link], capture_output=True)
        self.machine.stop()

    def start_dns(self, program: Path, folder: Path, url: str, kubeconfig: Path) -> None:
        """Start CoreDNS at `dns`, for the cluster's names only."""
        corefile = folder / "Corefile"
        corefile.write_text(config("Corefile", dns=self.dns, url=url, kubeconfig=kubeconfig))
        self.machine.start("coredns", [program, "-conf", corefile])

    def _create(self) -> None:
        bridge = self.machine
        run(["ip", "link", "add", self._link, "type", "veth", "peer", "name", "here", "netns", str(bridge.pid)])
        run(["ip", "address", "add", f"{self.here}/24", "dev", self._link])
        run(["ip", "link", "set", self._link, "up"])
        run(["ip", "route", "add", self.pods, "via", self.dns])
        bridge.run(["ip", "link", "add", "bridge", "type", "bridge"])
        bridge.run(["ip", "link", "set", "here", "master", "bridge", "up"])
        bridge.run(["ip", "address", "add", f"{self.dns}/24", "dev", "bridge"])
        bridge.run(["ip", "link", "set", "bridge", "up"])
        bridge.run(_FORWARD)


def _free_second_number() -> int:
    """Return an N such that no address or route of the host is in 10.N.0.0/16."""
    taken = []
    for what in ("address", "route"):
        for each in json.loads(run(["ip", "-json", "-4", what, "show"])):
            taken += [f"{own['local']}/{own['prefixlen']}" for own in each.get("addr_info", ())]
            if each.get("dst", "default") != "default":
                taken.append(each["dst"])
    networks = [ipaddress.ip_network(each, strict=False) for each in taken]
    for number in _CANDIDATES:
        candidate = ipaddress.ip_network(f"10.{number}.0.0/16")
        if not any(candidate.overlaps(network) for network in networks):
            return number
    raise RuntimeError("no range 10.200.0.0/16 to 10.249.0.0/16 is free on this machine: its routes cover them all")
