"""containerd for one machine: its configuration, and the images that it is given.

Settings: containerd 1.6, docs/cri/config.md and docs/man/containerd-config.toml.5.md (read 2026-11).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.kubernetes.images_archive import Image, write_archive

PACKAGES = "containerd runc containernetworking-plugins nftables conntrack iproute2"
PAUSE = "rdma-ray.local/pause:1"
_SPACE = "k8s.io"
_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_READY_S = 30.0
_LONGEST = 107


class Missing(RuntimeError):  # noqa: N818
    """This machine lacks something that real pods need; the message says what, and what to do instead."""


def found() -> Path:
    """The folder of the CNI plugins, when everything is there. Raises Missing."""
    programs = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "nft", "conntrack", "ip", "unshare", "nsenter")
    lacking = [name for name in programs if shutil.which(name) is None]
    folder = next((each for each in _PLUGINS if (each / "ptp").exists() and (each / "host-local").exists()), None)
    if folder is None:
        lacking.append("the CNI plugins ptp and host-local")
    if lacking:
        raise Missing(
            f"Real pods need {', '.join(lacking)}: `apt-get install -y {PACKAGES}` (Debian, Ubuntu), or give "
            "an existing cluster: `KUBECONFIG=… make test-pods`."
        )
    assert folder is not None
    return folder


def configuration(folder: Path, *, cni: Path, subnet: str) -> Path:
    """Write containerd's configuration, and that of the pod network, below `folder`; returns the file.

    `subnet` is the range of the machine's pods. Each pod is a point-to-point link to the machine, so that all of its
    traffic is routed there and Services work between pods of one machine, too.
    """
    network = folder / "cni"
    network.mkdir(parents=True, exist_ok=True)
    plugins = [
        {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": str(folder / "addresses"),
                "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
    ]
    (network / "10-pods.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}, indent=1)
    )
    file = folder / "containerd.toml"
    file.write_text(
        f"""version = 2
root = "{folder / "containerd"}"
state = "/run/containerd-state"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{socket(folder)}"
[debug]
  level = "info"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE runc cannot lower a sandbox's score, and ends.
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{network}"
"""
    )
    return file


def socket(folder: Path) -> Path:
    """containerd's socket. A socket's path may have 107 bytes, so it lies at the top."""
    return folder / "c.sock"


def must_hold_sockets(folder: Path) -> None:
    """Raise Missing where containerd's socket in a folder like this would have too long an address (unix(7): 107)."""
    if (length := len(str(socket(folder)))) > _LONGEST:
        raise Missing(
            f"Sockets of real nodes would have paths of {length} bytes, and {_LONGEST} are allowed: "
            f"use a folder with a shorter path than {folder}."
        )


def wait_until_ready(folder: Path, check: Callable[[], None]) -> None:
    """Wait until containerd answers; `check` raises when it has ended instead."""
    deadline = time.monotonic() + _READY_S
    while True:
        check()
        done = _ctr(folder, "version")
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"containerd does not answer after {_READY_S:.0f} s: {done.stderr.decode()[-500:]}")
        time.sleep(0.05)


def import_images(folder: Path, images: Iterable[Image], *, without: frozenset[str] = frozenset()) -> None:
    """Give containerd these images; layers in `without` it has already."""
    command = ["ctr", f"--address={socket(folder)}", f"--namespace={_SPACE}", "images", "import", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as stream:
            write_archive(stream, images, without=without)
    except BrokenPipeError:
        # It says below why it ended.
        pass
    except BaseException:
        process.kill()
        process.wait()
        raise
    said = process.stdout.read().decode(errors="replace")
    if process.wait():
        raise RuntimeError(f"containerd did not take an image: {said.strip()[-1500:]}")


def images(folder: Path) -> list[str]:
    """The names of the images that containerd has."""
    return _ctr(folder, "images", "list", "--quiet").stdout.decode().split()


def _ctr(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["ctr", f"--address={socket(folder)}", "--timeout=5s", f"--namespace={_SPACE}", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60)
