"""containerd of one node: its configuration and images."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from tools.kubernetes.image_archive import Image, write_archive

if TYPE_CHECKING:
    # It needs psutil, which `tools.ci` does not have in a clean checkout.
    from tools.kubernetes.node_machine import Machine

PACKAGES = "containerd runc containernetworking-plugins nftables conntrack iproute2"
INSTEAD = "use an existing cluster: `KUBECONFIG=… make test-pods`"
PAUSE = "rdma-ray.local/pause:1"
SOCKET = "/run/containerd.sock"
"""containerd's socket on the node, which has its own /run."""

_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "nft", "conntrack", "ip", "unshare", "nsenter")
_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_READY_S = 30.0


class Missing(RuntimeError):  # noqa: N818
    """This machine does not meet a requirement of real pods. The message contains the alternative."""


def found() -> Path:
    """Return the folder of the CNI plugins; raise Missing if a program or plugin is missing."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    folder = next((each for each in _PLUGINS if (each / "ptp").exists() and (each / "host-local").exists()), None)
    if folder is None or missing:
        missing += [] if folder else ["the CNI plugins ptp and host-local"]
        raise Missing(
            f"Real pods need {', '.join(missing)}: `apt-get install -y {PACKAGES}` (Debian, Ubuntu), or {INSTEAD}."
        )
    return folder


def start(machine: Machine, folder: Path, subnet: str) -> None:
    """Start containerd on a machine, with its configuration and that of the pod network below `folder`.

    `subnet` is the range of the node's pods. Each pod has a point-to-point link to its node, which routes all of its
    traffic, so Services also work between pods of one node.
    """
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    values = {"folder": folder, "socket": SOCKET, "pause": PAUSE, "cni": found(), "subnet": subnet}
    (folder / "cni" / "10-pods.conflist").write_text(config("10-pods.conflist", **values))
    (folder / "containerd.toml").write_text(config("containerd.toml", **values))
    machine.start("containerd", ["containerd", f"--config={folder / 'containerd.toml'}"])
    wait_until_ready(machine)


def config(name: str, /, **values: object) -> str:
    """Return a file of the folder `config` with its placeholders ($name) replaced."""
    return Template((Path(__file__).with_name("config") / name).read_text()).substitute(values)


def flags(program: str, /, **values: object) -> list[str]:
    """Return the flags in `config`/PROGRAM.flags with their placeholders replaced."""
    return [line for line in config(f"{program}.flags", **values).splitlines() if not line.startswith("#")]


def wait_until_ready(machine: Machine) -> None:
    """Wait until containerd answers."""
    deadline = time.monotonic() + _READY_S
    while (done := subprocess.run(_ctr(machine, "version"), capture_output=True, timeout=60)).returncode:
        machine.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"containerd does not answer after {_READY_S:.0f} s: {done.stderr.decode()[-500:]}")
        time.sleep(0.05)


def import_images(machine: Machine, images: Iterable[Image], *, without: frozenset[str] = frozenset()) -> None:
    """Import images into containerd, except the layers in `without`, which it has."""
    command, pipe = _ctr(machine, "images", "import", "-"), subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # If ctr ends early, its output has the reason.
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            write_archive(stream, images, without=without)
        output = process.stdout.read().decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"containerd refused an image: {output.strip()[-1500:]}")


def _ctr(machine: Machine, *arguments: str) -> list[str]:
    return machine.inside(["ctr", f"--address={SOCKET}", "--namespace=k8s.io", *arguments], spaces=["mount"])
