"""Run a machine of namespaces until its owner ends, and clean up after it.

Run as root, as `python -I node_guard.py SPEC` with SPEC in JSON. It becomes two processes:

- The guard, outside. It starts the other process in new namespaces (mounts, network, processes, host name, IPC,
  cgroups) and deletes its cgroups and files when it has ended.
- The machine's first process, inside. It creates the machine's mounts and becomes the supervisor of its programs
  (`tools.process`). When it ends, the kernel ends every process and removes mounts, links and nftables rules.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# -I excludes the project from the path, and the machine's mounts may hide its folder later.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.process import supervise
from workloads.gang.guard import die_with_parent

_CGROUPS = Path("/sys/fs/cgroup")
# The group of the machine's first processes in cgroup v2.
_FIRST = "first"
_GONE_S = 20.0
_DELEGATE_S = 10.0


def outside(spec: dict[str, Any]) -> int:
    """Start the inner process, wait for its end, and clean up."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = _own_groups(spec["name"]) if spec["cgroups"] else []
    try:
        for group in groups:
            _make_group(group)
        kinds = ["--mount", "--net", "--pid", "--uts", "--ipc", *(["--cgroup"] if groups else [])]
        inside_command = [sys.executable, "-I", __file__, "--inside", json.dumps(spec)]
        process = subprocess.Popen(
            ["unshare", *kinds, "--fork", "--kill-child", "--mount-proc", "--propagation=private", *inside_command],
            preexec_fn=lambda: _enter(groups),
        )
        signal.signal(signal.SIGTERM, lambda *_: process.kill())
        for group in groups:
            if (group / _FIRST).is_dir():
                (group / _FIRST / "cgroup.procs").write_text(str(process.pid))
        # Only the inner process keeps them open, so that the owner notices its end.
        os.close(0)
        os.close(1)
        status = process.wait()
    finally:
        for group in reversed(groups):
            _remove_group(group)
        for path in spec["remove"]:
            shutil.rmtree(path, ignore_errors=True)
    return status if status >= 0 else 128 - status


def inside(spec: dict[str, Any]) -> int:
    """Create the machine's mounts, then supervise its programs."""
    if spec["cgroups"]:
        _mount_groups()
    for command in (
        *(["mount", *arguments] for arguments in spec["mounts"]),
        # Shared, because container runtimes propagate mounts to containers.
        ["mount", "--make-rshared", "/"],
        ["hostname", spec["hostname"]],
        ["ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(command, check=True)
    return supervise(grace_s=0.0)


def _hierarchies() -> list[tuple[str, str, str]]:
    """Return (folder, mount options, own path) of each; ("", "", path) is cgroup v2 alone."""
    hierarchies = []
    unified = (_CGROUPS / "cgroup.controllers").exists()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            hierarchies.append(("" if unified else "unified", "", path))
        elif controllers.startswith("name="):
            hierarchies.append((controllers.removeprefix("name="), f"none,{controllers}", path))
        else:
            hierarchies.append((controllers, controllers, path))
    return [each for each in hierarchies if (_CGROUPS / each[0]).is_dir()]


def _own_groups(name: str) -> list[Path]:
    # Below our own group, so that its limits apply. In cgroup v2 below the root: a group with processes cannot
    # delegate controllers.
    return [_CGROUPS / folder / (path.strip("/") if folder else "") / name for folder, _, path in _hierarchies()]


def _make_group(group: Path) -> None:
    group.mkdir(exist_ok=True)
    for setting in ("cpuset.cpus", "cpuset.mems"):
        # A new cpuset is empty and accepts no process (cgroups-v1/cpusets).
        with contextlib.suppress(FileNotFoundError):
            (group / setting).write_text((group.parent / setting).read_text())
    if group.parent == _CGROUPS and (group / "cgroup.controllers").exists():
        (group / _FIRST).mkdir(exist_ok=True)


def _enter(groups: list[Path]) -> None:
    # Before the new namespaces, so that each group is the root inside.
    die_with_parent()
    os.setsid()
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _mount_groups() -> None:
    hierarchies = _hierarchies()
    if [folder for folder, _, _ in hierarchies] == [""]:
        _mount_unified()
        return
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(_CGROUPS)], check=True)
    for folder, options, _ in hierarchies:
        place = _CGROUPS / folder
        place.mkdir()
        kind = ["-t", "cgroup", "-o", options] if options else ["-t", "cgroup2"]
        subprocess.run(["mount", *kind, "cgroup", str(place)], check=True)


def _mount_unified() -> None:
    subprocess.run(["mount", "-t", "cgroup2", "cgroup", str(_CGROUPS)], check=True)
    # A group with processes cannot delegate controllers: this process moves, and the guard moves `unshare`.
    (_CGROUPS / _FIRST / "cgroup.procs").write_text("0")
    controllers = " ".join(f"+{each}" for each in (_CGROUPS / "cgroup.controllers").read_text().split())
    deadline = time.monotonic() + _DELEGATE_S
    while True:
        try:
            (_CGROUPS / "cgroup.subtree_control").write_text(controllers)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _remove_group(group: Path) -> None:
    deadline = time.monotonic() + _GONE_S
    while group.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        if group.exists():
            # A group is empty only a moment after its last process has ended.
            time.sleep(0.05)


if __name__ == "__main__":
    within = sys.argv[1] == "--inside"
    sys.exit(inside(json.loads(sys.argv[2])) if within else outside(json.loads(sys.argv[1])))
