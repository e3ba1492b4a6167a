"""Whether this machine lets real pods run: a machine of namespaces is made as a node's is, used a little, and ended.

A container may run as root and lack the right to mount, to make networks or to write cgroups. That shows here within
a second, in words, and not minutes later in a kubelet's log.

    python -m tools.kubernetes.node_probe   # says what is missing, exit status 70; or nothing, 0
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.kubernetes import containers
from tools.kubernetes.containers import Missing
from tools.kubernetes.node_machine import Machine, identity_of
from tools.kubernetes.programs import ProgramEnded

NOT_READY = 70
_INSTEAD = "give an existing cluster: `KUBECONFIG=… make test-pods`"
# What kube-proxy's rules and the pods' masquerading are made of (Kubernetes 1.36.1, pkg/proxy/nftables/proxier.go).
_RULES = """table ip probe {
  chain before { type nat hook prerouting priority dstnat; fib daddr type local numgen random mod 2 vmap {0: accept}; }
  chain to { type nat hook output priority -100; ip daddr 192.0.2.1 dnat to 192.0.2.2; ct state established accept; }
  chain after { type nat hook postrouting priority srcnat; masquerade; }
}"""


def ready_to_run() -> None:
    """Raise Missing, with what to do instead, where a cluster of real pods cannot run."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing(
            f"Real pods need root on Linux (namespaces, mounts, a network). Without it, {_INSTEAD}; "
            "`make test-kubernetes` needs neither."
        )
    containers.found()
    probe()


@functools.cache
def probe(machine_of: Callable[..., Machine] = Machine) -> None:
    """Make a machine as a node's and what its network is made of; all of it is gone afterwards. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix="rdma-ray-probe-") as name:
        folder = Path(name)
        for place in ("scratch", "layer"):
            (folder / place).mkdir()
        (folder / "rules").write_text(_RULES)
        mounts = [
            ["tmpfs", str(folder / "scratch")],
            # As containerd does for each container.
            ["overlay", str(folder / "layer"), str(folder / "upper"), str(folder / "work")],
        ]
        try:
            machine = machine_of("probe", folder / "logs", identity=identity_of(folder), mounts=mounts, cgroups=True)
        except ProgramEnded as problem:
            raise _missing("namespaces, mounts and cgroups of a machine's own", problem) from problem
        try:
            for what, command in _USES.items():
                try:
                    machine.run([word.format(folder=folder) for word in command])
                except RuntimeError as problem:
                    raise _missing(what, problem) from problem
        finally:
            machine.stop()


_USES = {
    "a bridge": ["ip", "link", "add", "bridge", "type", "bridge"],
    "a pair of links": ["ip", "link", "add", "one", "type", "veth", "peer", "name", "other"],
    "nftables with what kube-proxy uses": ["nft", "-f", "{folder}/rules"],
    "forwarding of a network's own": ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
}


def _missing(what: str, problem: RuntimeError) -> RuntimeError:
    said = str(problem)
    # Of a traceback only its last line, which is not indented; of others not what comes before the reason.
    told = [line for line in said.splitlines() if line and not line.startswith((" ", "Traceback")) and line[-1] != ":"]
    if not told:
        # Nothing was refused: it took too long, which is no lack.
        return problem
    return Missing(
        f"Root cannot have {what} here, which real pods need ({'; '.join(told)}). In a container it takes "
        f"`--privileged`, and a TMPDIR that is no overlay; else run on a virtual machine, or {_INSTEAD}."
    )


if __name__ == "__main__":
    try:
        ready_to_run()
    except Missing as missing:
        print(missing, flush=True)
        sys.exit(NOT_READY)
