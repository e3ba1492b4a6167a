"""The network of a cluster of machines on this one: a bridge in namespaces of its own, and one link to it from here.

Addresses are 10.N.0.0/16 with an N that nothing on this machine uses: 10.N.0.1 is this machine (the API server listens
there), 10.N.0.2 the bridge (DNS), 10.N.0.10 and so on the machines, 10.N.64.0/20 Services, 10.N.128.0/24 the first
machine's pods. Nothing is forwarded from or to the outside. Link, addresses and routes go with the namespaces.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import threading
from pathlib import Path

from tools.kubernetes.node_machine import Machine, bare_environment

LINK = "rr"
"""What the names of our links on this machine begin with; a link's name has 15 characters at most."""

_CANDIDATES = range(200, 250)
MOST_MACHINES = 64


class Network:
    """One network, called by `identity`, with a file in `folder`; made at once, and gone after `stop`."""

    def __init__(self, folder: Path, logs: Path, identity: str) -> None:
        self._second = _free_second_number()
        self._link = f"{LINK}{identity}"
        # Of two machines that come at once, each has to see the other.
        self._changing = threading.Lock()
        self.here = f"10.{self._second}.0.1"
        self.dns = f"10.{self._second}.0.2"
        self.services = f"10.{self._second}.64.0/20"
        self.pods = f"10.{self._second}.128.0/17"
        # What runs with the machine's mounts resolves the cluster's names, and no others.
        names = folder / "resolv.conf"
        names.write_text(f"nameserver {self.dns}\noptions ndots:1\n")
        mounts = [["tmpfs", "/run"], ["value", str(Path("/etc/resolv.conf").resolve()), str(names)]]
        self.machine = Machine("network", logs, identity=identity, mounts=mounts)
        try:
            self._build()
        except BaseException:
            self.machine.stop()
            raise

    def address(self, index: int) -> str:
        """Of the machine with this index, from 0."""
        return f"10.{self._second}.0.{10 + index}"

    def subnet(self, index: int) -> str:
        """The range of that machine's pods."""
        return f"10.{self._second}.{128 + index}.0/24"

    def join(self, machine: Machine, index: int) -> None:
        """Give a machine its address, and everybody the way to its pods."""
        if index >= MOST_MACHINES:
            raise ValueError(f"a network takes {MOST_MACHINES} machines at most")
        ours, own = self.machine, f"node{index}"
        ours.run(["ip", "link", "add", own, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)])
        ours.run(["ip", "link", "set", own, "master", "bridge", "up"])
        machine.run(["ip", "address", "add", f"{self.address(index)}/24", "dev", "eth0"])
        machine.run(["ip", "link", "set", "eth0", "up"])
        machine.run(["ip", "route", "add", "default", "via", self.here])
        machine.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
        way = [self.subnet(index), "via", self.address(index)]
        _run(["ip", "route", "add", *way])
        ours.run(["ip", "route", "add", *way])
        with self._changing:
            for other, their in self._machines.items():
                their.run(["ip", "route", "add", *way])
                machine.run(["ip", "route", "add", self.subnet(other), "via", self.address(other)])
            self._machines[index] = machine

    def leave(self, index: int) -> None:
        """Forget a machine that is gone: its link went with it, and its routes here lead nowhere."""
        way = [self.subnet(index), "via", self.address(index)]
        with self._changing:
            self._machines.pop(index, None)
            for where in (self.machine, *self._machines.values()):
                where.run(["sh", "-c", f"ip route del {' '.join(way)} 2>/dev/null || true"])
            subprocess.run(["ip", "route", "del", *way], capture_output=True)

    def stop(self) -> None:
        """End the network. May be called twice."""
        # It goes with the namespaces, but the kernel takes a moment for those.
        subprocess.run(["ip", "link", "delete", self._link], capture_output=True)
        self.machine.stop()

    def start_dns(self, program: Path, folder: Path, url: str, kubeconfig: Path) -> None:
        """Start CoreDNS at `dns`, for the names of the cluster alone."""
        corefile = folder / "Corefile"
        corefile.write_text(
            f""".:53 {{
  bind {self.dns}
  errors
  ready {self.dns}:8181
  kubernetes cluster.local in-addr.arpa {{
    endpoint {url}
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
"""
        )
        self.machine.start("coredns", [program, "-conf", corefile], bare_environment())

    def _build(self) -> None:
        self._machines: dict[int, Machine] = {}
        ours = self.machine
        _run(["ip", "link", "add", self._link, "type", "veth", "peer", "name", "here", "netns", str(ours.pid)])
        _run(["ip", "address", "add", f"{self.here}/24", "dev", self._link])
        _run(["ip", "link", "set", self._link, "up"])
        ours.run(["ip", "link", "add", "bridge", "type", "bridge"])
        ours.run(["ip", "link", "set", "here", "master", "bridge", "up"])
        ours.run(["ip", "address", "add", f"{self.dns}/24", "dev", "bridge"])
        ours.run(["ip", "link", "set", "bridge", "up"])


def _free_second_number() -> int:
    """An N such that no address and no route of this machine lies in 10.N.0.0/16."""
    taken = []
    for what in ("address", "route"):
        for each in json.loads(_run(["ip", "-json", "-4", what, "show"])):
            taken += [f"{own['local']}/{own['prefixlen']}" for own in each.get("addr_info", ())]
            if each.get("dst", "default") != "default":
                taken.append(each["dst"])
    networks = [ipaddress.ip_network(each, strict=False) for each in taken]
    for number in _CANDIDATES:
        candidate = ipaddress.ip_network(f"10.{number}.0.0/16")
        if not any(candidate.overlaps(network) for network in networks):
            return number
    raise RuntimeError("no range 10.200.0.0/16 to 10.249.0.0/16 is free on this machine: its routes cover them all")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
