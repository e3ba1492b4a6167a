"""Loopback addresses and free ports for the Ray nodes of this machine."""

from __future__ import annotations

import random
import socket
import sys
from contextlib import ExitStack

# Below the range from which Linux and macOS hand out the ports of outgoing connections (32768 and 49152 upwards), so
# that Ray's own connections cannot take a port between the moment it is found free and the moment Ray binds it.
_PORTS = range(20_000, 30_000)
DASHBOARD_PORT = 8265


def node_address(position: int) -> str:
    """The address of a node: 0 is the head, 1 the first worker, and so on.

    On Linux every address in 127.0.0.0/8 is this machine's, so each node gets one of its own and Ray sees several
    hosts. 127.0.0.1 is left out: Ray replaces it by the machine's outward address. Elsewhere only 127.0.0.1 exists.
    """
    if not 0 <= position < 250:
        raise ValueError(f"position {position}: this machine's stack has at most 249 worker nodes")
    return f"127.0.0.{2 + position}" if sys.platform == "linux" else "127.0.0.1"


def free_ports(count: int, *, preferred: int | None = None) -> list[int]:
    """`count` different TCP ports that nothing listens on now; the first is `preferred` if that one is free."""
    candidates = random.sample(_PORTS, len(_PORTS))
    if preferred is not None:
        candidates.insert(0, preferred)
    found: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(found) == count:
                return found
            # Held open until all are found. Without SO_REUSEADDR, and on all interfaces: Ray binds both ways.
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind(("", port))
            except OSError:
                continue
            found.append(port)
    raise OSError(f"no {count} free TCP ports between {_PORTS.start} and {_PORTS.stop} on this machine")
