"""Check whether this machine can run real pods.

    python -m tools.kubernetes.node_probe   # exits with 0, or prints the missing parts and exits with 70

A container may run as root without the permission to mount, to create networks or to write cgroups. The check
creates a machine like a node's, in a second; a kubelet would fail after minutes.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.kubernetes import containers
from tools.kubernetes.containers import INSTEAD, Missing
from tools.kubernetes.node_machine import Machine, identity_of, overlay
from tools.process import ProgramEnded

NOT_READY = 70
# Features of kube-proxy's rules (Kubernetes 1.36.1, pkg/proxy/nftables/proxier.go).
_RULES = """table ip probe {
  chain before { type nat hook prerouting priority dstnat; fib daddr type local numgen random mod 2 vmap {0: accept}; }
  chain to { type nat hook output priority -100; ip daddr 192.0.2.1 dnat to 192.0.2.2; ct state established accept; }
  chain after { type nat hook postrouting priority srcnat; masquerade; }
}"""
_USES = {
    "a bridge": ["ip", "link", "add", "bridge", "type", "bridge"],
    "a pair of links": ["ip", "link", "add", "one", "type", "veth", "peer", "name", "other"],
    "nftables with the features that kube-proxy uses": ["nft", "-f", "{folder}/rules"],
    "forwarding in a network namespace": ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
}


def ready_to_run() -> None:
    """Raise Missing, with the alternative, if a cluster of real pods cannot run here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing(
            f"Real pods need root on Linux (namespaces, mounts, a network). Without it, {INSTEAD}; "
            "`make test-kubernetes` needs neither."
        )
    containers.found()
    probe()


@functools.cache
def probe(machine_of: Callable[..., Machine] = Machine) -> None:
    """Create and remove a machine like a node's and parts of its network. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix="rdma-ray-probe-") as name:
        folder = Path(name)
        (folder / "layer").mkdir()
        (folder / "rules").write_text(_RULES)
        # As containerd for each container.
        mounts = [overlay(folder / "layer", folder)]
        try:
            machine = machine_of("probe", folder / "logs", identity=identity_of(folder), mounts=mounts, cgroups=True)
        except ProgramEnded as problem:
            raise _missing("namespaces, mounts and cgroups for a machine", problem) from problem
        with machine:
            for what, command in _USES.items():
                try:
                    machine.run([word.format(folder=folder) for word in command])
                except RuntimeError as problem:
                    raise _missing(what, problem) from problem


def _missing(what: str, problem: RuntimeError) -> RuntimeError:
    # Only the last line of a traceback, which is not indented, and no line that announces another.
    lines = re.findall(r"^(?! |Traceback).*[^:\n]$", str(problem), re.MULTILINE)
    if not lines:
        # No permission is missing: it took too long.
        return problem
    return Missing(
        f"Root cannot create {what} here, which real pods need ({'; '.join(lines)}). A container needs "
        f"`--privileged` and a TMPDIR that is not on an overlay; otherwise use a virtual machine, or {INSTEAD}."
    )


if __name__ == "__main__":
    try:
        ready_to_run()
    except Missing as missing:
        print(missing, flush=True)
        sys.exit(NOT_READY)
