"""Network interface of a node's address. gloo and NCCL take names, Ray returns addresses."""

from __future__ import annotations

import ipaddress

import psutil


def interface_of(address: str) -> str | None:
    """Return the name of the interface with `address`, or None.

    Any address of 127.0.0.0/8 is the loopback's, although `lo` lists 127.0.0.1 only.
    """
    names = {entry.address: name for name, entries in psutil.net_if_addrs().items() for entry in entries}
    if address in names:
        return names[address]
    return names.get("127.0.0.1") if ipaddress.ip_address(address).is_loopback else None
