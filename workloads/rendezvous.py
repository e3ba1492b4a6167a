"""Rendezvous of a process group: rank 0 opens a store on its node's address, and the other ranks connect to it.

Imports torch on use: agents of `rdma-ray run` select an interface without it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, yet not among torch's typed exports

_published: int | None = None
"""File of `publish_rank`."""


def open_store(address: str, timeout_s: float) -> TCPStore:
    """Open a store on a free port of this address only."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((address, 0))
    # The store takes over the open socket, so no other process can take the port in between.
    return TCPStore(
        address,
        listener.getsockname()[1],
        is_master=True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def connect(address: str, port: int, timeout_s: float) -> TCPStore:
    """Connect to the store that rank 0 has opened."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def publish_rank(rank: int, world: int, address: str, port: int) -> None:
    """Let `rdma-ray shell` find this process as a rank, and its variables: Ray overwrites those in /proc.

    The file is in memory, ends with the process, and only the user's processes open it (memfd_create(2), read 2026-11).
    """
    global _published
    if not hasattr(os, "memfd_create"):
        return
    place = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": address, "MASTER_PORT": port}
    variables = {**os.environ, **{name: str(value) for name, value in place.items()}}
    if _published is not None:
        os.close(_published)
    _published = os.memfd_create("rdma-ray-rank")
    with open(_published, "w", encoding="ascii", closefd=False) as file:
        json.dump({"pid": os.getpid(), "variables": variables}, file)


def own_address() -> str:
    """Return the address of this process's node in Ray's cluster."""
    import ray

    address: Callable[[], str] = ray.util.get_node_ip_address  # untyped in Ray
    return address()


def select_interface(address: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make gloo and NCCL use the interface of a node's address, unless the image or the user sets one."""
    if interface := interface_of(address):
        # A host name that resolves to 127.0.0.1 would break gloo across nodes.
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", interface)


def interface_of(address: str) -> str | None:
    """Return the name of the interface with `address`, or None.

    Any address of 127.0.0.0/8 is the loopback's, although `lo` lists 127.0.0.1 only.
    """
    names = {entry.address: name for name, entries in psutil.net_if_addrs().items() for entry in entries}
    if address in names:
        return names[address]
    return names.get("127.0.0.1") if ipaddress.ip_address(address).is_loopback else None
