"""Inventory of host resources that a cluster of real nodes could leave behind, to compare before and after."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tools.kubernetes.node_machine import PREFIX, identity_of
from tools.kubernetes.node_network import LINK

# Kernel settings that kubelet and kube-proxy would write.
_SETTINGS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/netfilter/nf_conntrack_max"),
)


def traces(folder: Path) -> frozenset[str]:
    """Return the host resources that a cluster in `folder` could have created, one line each.

    These are links, routes, mounts, named network namespaces, nftables tables, cgroups, processes, files except logs,
    and kernel settings, without those of clusters in other folders.
    """
    mark = identity_of(folder)
    files = [path for path in folder.glob("*") if path.name != "logs"]
    files += [Path("/var/lib") / name for name in ("cni", "kubelet", "containerd")]
    files += [Path("/run") / name for name in ("cni", "netns", "containerd")]
    return frozenset(
        {
            *_lines("link", ["ip", "-oneline", "link", "show"], keep=f": {LINK}{mark}"),
            *_lines("route", ["ip", "route", "show", "table", "all"], keep=f"dev {LINK}{mark}"),
            *_lines("named network namespace", ["ip", "netns", "list"]),
            *_lines("nftables", ["nft", "list", "tables"]),
            *(f"mount: {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines()),
            *(f"cgroup: {path}" for path in Path("/sys/fs/cgroup").rglob(f"{PREFIX}-{mark}-*") if path.is_dir()),
            *(f"file: {path}" for path in files if path.exists()),
            *(f"setting: {name} = {(Path('/proc/sys') / name).read_text().strip()}" for name in _SETTINGS),
            *_processes(folder, mark),
        }
    )


def new_traces(folder: Path) -> Callable[[], list[str]]:
    """Return a function that returns the traces of a cluster in `folder` that appear after this call."""
    before = traces(folder)
    return lambda: sorted(traces(folder) - before)


def _processes(folder: Path, mark: str) -> set[str]:
    processes = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            groups = (process / "cgroup").read_text()
        except OSError:
            # It has ended.
            continue
        if f"/{PREFIX}-{mark}-" in groups or f"{PREFIX}-{mark}-" in command or f"{folder}/" in command:
            processes.add(f"process {process.name}: {command[:160]}")
    return processes


def _lines(what: str, command: list[str], keep: str = "") -> set[str]:
    printed = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    return {f"{what}: {line.strip()}" for line in printed.splitlines() if keep in line}
