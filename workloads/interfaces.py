"""The network interface that a node's address lives on. gloo and NCCL take names, Ray gives addresses."""

from __future__ import annotations

import ipaddress

import psutil


def interface_of(address: str) -> str | None:
    """The name of the interface that carries `address`, or None where no interface has it.

    Linux answers on all of 127.0.0.0/8 although `lo` lists 127.0.0.1 only: any such address belongs to the loopback.
    """
    names = {entry.address: name for name, entries in psutil.net_if_addrs().items() for entry in entries}
    if address in names:
        return names[address]
    return names.get("127.0.0.1") if ipaddress.ip_address(address).is_loopback else None


def numeric(address: str) -> tuple[int, int]:
    """A sort key that puts 10.0.0.9 before 10.0.0.10."""
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)
