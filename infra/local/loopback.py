"""Addresses and free ports for Ray nodes on this machine, and HTTP requests to a Ray head."""

from __future__ import annotations

import json
import random
import socket
import sys
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version

from infra.listener import ListenerError, connect, get

# Below the ephemeral ports of Linux and macOS (32768 and 49152 upwards), so that Ray's own connections cannot take a
# port between the moment it is found free and the moment Ray binds it.
_PORTS = range(20_000, 30_000)


def node_address(position: int) -> str:
    """Return the address of a node: 0 is the head, 1 the first worker, and so on.

    On Linux every address in 127.0.0.0/8 is this machine's, so each node gets its own and Ray sees several hosts.
    127.0.0.1 is not used: Ray replaces it by the machine's external address. Elsewhere only 127.0.0.1 exists.
    """
    return f"127.0.0.{2 + position}" if sys.platform == "linux" else "127.0.0.1"


def free_ports(count: int, *, preferred: int | None = None) -> list[int]:
    """Return `count` different TCP ports that nothing listens on; the first is `preferred` if that one is free."""
    candidates = random.sample(_PORTS, len(_PORTS))
    if preferred is not None:
        candidates.insert(0, preferred)
    ports: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(ports) == count:
                return ports
            # Held open until all are found. Without SO_REUSEADDR, and on all interfaces: Ray binds both ways.
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind(("", port))
            except OSError:
                continue
            ports.append(port)
    raise OSError(f"no {count} free TCP ports between {_PORTS.start} and {_PORTS.stop} on this machine")


def listens(address: str, port: int) -> bool:
    """Return whether a TCP port accepts connections. ListenerError if it is another user's."""
    try:
        connect(address, port, timeout_s=2).close()
    except ListenerError:
        raise
    except OSError:
        return False
    return True


def http_status(url: str, *, token: str | None = None) -> int | None:
    """Return the HTTP status of a GET request; None without a response. ListenerError if another user listens."""
    try:
        return get(url, token, timeout_s=5)[0]
    except ListenerError:
        raise
    except OSError:
        return None


def requires_token(jobs_url: str, token: str) -> bool:
    """Return whether the Jobs API accepts requests with the token and rejects requests without."""
    url = f"{jobs_url}/api/jobs/"
    return http_status(url, token=token) == 200 and http_status(url) == 401


def alive_nodes(jobs_url: str, token: str) -> dict[str, str]:
    """Return the ids of Ray's live nodes by node name; empty while the head does not respond. ListenerError if another
    user listens at its address."""
    try:
        _, answer = get(f"{jobs_url}/api/v0/nodes?detail=true", token, timeout_s=10)
        rows = json.loads(answer)["data"]["result"]["result"]
    except ListenerError:
        raise
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {row["node_name"]: row["node_id"] for row in rows if row["state"] == "ALIVE"}


def ray_version() -> str | None:
    """Return the version of Ray in this interpreter, which starts the nodes; None if Ray is not installed."""
    try:
        return version("ray")
    except PackageNotFoundError:
        return None
