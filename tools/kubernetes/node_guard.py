"""Keeps one machine of namespaces alive as long as it is wanted, and leaves nothing of it behind.

Run as root, as `python -I node_guard.py SPEC` with SPEC in JSON. Two processes come of it:

- the guard, outside. It starts the other one in new namespaces (mounts, network, processes, host name, IPC, cgroups)
  and, when that has ended, removes its cgroups and files. Whatever ended the owner, this happens.
- the machine's first process, inside, with standard input and output inherited. It makes the machine's mounts, starts
  programs when a line on standard input asks for one, and ends when that pipe closes, however the owner ended. The
  kernel then ends every other process inside, and mounts, network interfaces and nftables rules go with the namespaces.

One JSON object per line. In: {"start": NAME, "argv": […], "env": {…}, "log": PATH}, {"stop": NAME}.
Out: {"ready": true}, {"ended": NAME, "status": N}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_CGROUPS = Path("/sys/fs/cgroup")
_GONE_S = 20.0
_STOP_S = 10.0
# In cgroup v2, the group of the machine's first processes.
_FIRST = "first"
# A machine ends by the end of its owner alone.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)


def outside(spec: dict[str, Any]) -> int:
    """Start the inside, wait until it has ended, remove what it used."""
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
        # Held by the inside alone from here on, so that its own end is what the owner sees.
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
    """Make the machine's mounts, then start and end programs as told until standard input closes."""
    if spec["cgroups"]:
        _mount_groups()
    for kind, *places in spec["mounts"]:
        _mount(kind, *places)
    # Container runtimes hand mounts on from the host to containers; these ones end here.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    subprocess.run(["hostname", spec["hostname"]], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    programs: dict[int, str] = {}
    _tell({"ready": True})
    unread = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            for pid, status in _reaped():
                # What a program left behind comes to the machine's first process too; nobody asked about it.
                if pid in programs:
                    _tell({"ended": programs.pop(pid), "status": status})
        if 0 in readable:
            read = os.read(0, 65536)
            if not read:
                return 0
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                _obey(json.loads(line), programs)


def _obey(order: dict[str, Any], programs: dict[int, str]) -> None:
    if "start" in order:
        with open(order["log"], "ab") as log:  # noqa: PTH123
            try:
                # Not by `subprocess`, which waits for its children by itself, so that an end would go unnoticed.
                pid = os.posix_spawnp(
                    order["argv"][0],
                    order["argv"],
                    order["env"],
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        *((os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)),
                    ],
                    setsid=True,
                    setsigmask=[],
                    # What is ignored here would be in the program too, and in every pod that comes of it.
                    setsigdef=[*_IGNORED, signal.SIGPIPE],
                )
            except OSError as problem:
                log.write(f"{problem}\n".encode())
                _tell({"ended": order["start"], "status": 127})
                return
        programs[pid] = order["start"]
        return
    for pid, name in programs.items():
        if name == order["stop"]:
            os.kill(pid, signal.SIGKILL if order.get("kill") else signal.SIGTERM)


def _reaped() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((ended[0], os.waitstatus_to_exitcode(ended[1])))
    return found


def _tell(word: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, (json.dumps(word) + "\n").encode())


def _mount(kind: str, *places: str) -> None:
    """("tmpfs", where), ("bind", what, where), ("overlay", where, upper, work), ("value", where, text)"""
    if kind == "tmpfs":
        arguments = ["-t", "tmpfs", "tmpfs", places[0]]
    elif kind == "bind":
        arguments = ["--bind", places[0], places[1]]
    elif kind == "overlay":
        where, upper, work = places
        Path(upper).mkdir(parents=True, exist_ok=True)
        Path(work).mkdir(parents=True, exist_ok=True)
        arguments = ["-t", "overlay", "overlay", "-o", f"lowerdir={where},upperdir={upper},workdir={work}", where]
    else:
        where, source = places
        arguments = ["--bind", source, where]
    subprocess.run(["mount", *arguments], check=True)


def _hierarchies() -> list[tuple[str, str, str]]:
    """(folder under /sys/fs/cgroup, mount options, own path) of each hierarchy; ("", "", path) is cgroup v2 alone."""
    found = []
    unified = (_CGROUPS / "cgroup.controllers").exists()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            found.append(("" if unified else "unified", "", path))
        elif controllers.startswith("name="):
            found.append((controllers.removeprefix("name="), f"none,{controllers}", path))
        else:
            found.append((controllers, controllers, path))
    return [each for each in found if (_CGROUPS / each[0]).is_dir()]


def _own_groups(name: str) -> list[Path]:
    groups = []
    for folder, _, path in _hierarchies():
        # Below our own group, so that its limits hold here too. In cgroup v2 a group with processes hands no
        # controllers down, so there it is a group of the root.
        parent = "" if folder == "" else path.strip("/")
        groups.append(_CGROUPS / folder / parent / name)
    return groups


def _make_group(group: Path) -> None:
    group.mkdir(exist_ok=True)
    for setting in ("cpuset.cpus", "cpuset.mems"):
        # A cpuset begins empty, and takes no process then (cgroups-v1/cpusets).
        with contextlib.suppress(FileNotFoundError):
            (group / setting).write_text((group.parent / setting).read_text())
    if group.parent == _CGROUPS and (group / "cgroup.controllers").exists():
        (group / _FIRST).mkdir(exist_ok=True)


def _enter(groups: list[Path]) -> None:
    # Before the new namespaces, so that each group is the root of what the inside sees.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    os.setsid()
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _mount_groups() -> None:
    seen = _hierarchies()
    if [folder for folder, _, _ in seen] == [""]:
        _mount_unified()
        return
    _mount("tmpfs", str(_CGROUPS))
    for folder, options, _ in seen:
        place = _CGROUPS / folder
        place.mkdir()
        kind = ["-t", "cgroup", "-o", options] if options else ["-t", "cgroup2"]
        subprocess.run(["mount", *kind, "cgroup", str(place)], check=True)


def _mount_unified() -> None:
    subprocess.run(["mount", "-t", "cgroup2", "cgroup", str(_CGROUPS)], check=True)
    # A group hands controllers down only when no process is in it: this one moves, and the guard moves `unshare`.
    (_CGROUPS / _FIRST / "cgroup.procs").write_text("0")
    handed = " ".join(f"+{each}" for each in (_CGROUPS / "cgroup.controllers").read_text().split())
    deadline = time.monotonic() + _STOP_S
    while True:
        try:
            (_CGROUPS / "cgroup.subtree_control").write_text(handed)
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
            # The kernel empties a group a moment after its last process.
            time.sleep(0.05)


if __name__ == "__main__":
    within = sys.argv[1] == "--inside"
    sys.exit(inside(json.loads(sys.argv[2])) if within else outside(json.loads(sys.argv[1])))
