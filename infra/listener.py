"""Whose process is at the other end of a connection to this machine, asked before anything secret goes through it.

A port belongs to the process that binds it first. When a Ray head is gone, any user of its machine can get its port,
and with it the token and the secrets of the next request. Linux shows the owner of each socket (proc(5),
/proc/net/tcp, read 2026-11).
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import pwd
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTEN = 10
"""State of a socket (linux: include/net/tcp_states.h)."""
LARGEST = 2**26  # bytes of an answer

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Endpoint = tuple[Address, int]


class ListenerError(ConnectionError):
    """Another user listens at an address, or the system does not show who does. Nothing was sent."""


@dataclass(frozen=True)
class Socket:
    """A line of /proc/net/tcp. A connection that no process has accepted has no inode, and 0 or its listener's uid."""

    local: Endpoint
    remote: Endpoint
    state: int
    uid: int
    inode: int


def check(connection: socket.socket, *, known: bool = False) -> None:
    """Raise if the other end of a new connection is a process of another user of this machine, except root.

    The process that accepted the connection decides. As long as none has, its listener is open, and decides: which one
    that is follows from the order in which the kernel looks for it. Another machine cannot be checked.

    Raises:
        ListenerError: It belongs to another user, or /proc does not show whose it is.
        ConnectionAbortedError: There is no other end any more.
    """
    there, here = _endpoint(connection.getpeername()), _endpoint(connection.getsockname())
    if not there[0].is_loopback and there[0] != here[0]:
        return
    try:
        # The kernel lists listeners first: if an end is not accepted below, its listener is among them.
        sockets = list(_sockets(there[1]))
    except (OSError, ValueError) as error:
        if known:
            return
        why = f"this system does not show whose process listens there: {error}"
        raise ListenerError(f"nothing was sent to {_text(there)}: {why}") from None
    ends = [each for each in sockets if (each.local, each.remote) == (there, here)]
    owners = {each.uid for each in ends if each.inode} or {each.uid for each in _listeners(sockets, there)}
    if not ends or not owners:
        raise ConnectionAbortedError(f"the listener at {_text(there)} is gone")
    if others := sorted(owners - {0, os.geteuid()}):
        who = f"another user listens there, {', '.join(map(_name, others))}"
        raise ListenerError(f"nothing was sent to {_text(there)}: {who}")


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a checked connection. Raises as `check` does, and OSError if nothing listens."""
    connection = socket.create_connection((host, port), timeout=timeout_s)
    try:
        check(connection)
    except OSError:
        connection.close()
        raise
    return connection


def get(url: str, token: str | None, timeout_s: float, *, known: bool = False) -> tuple[int, bytes]:
    """Return the status and the content of a GET request that passes no proxy and follows no redirect; see `check`.

    Raises:
        ListenerError: Another user listens at the address; the token was not sent.
        OSError: No answer.
    """
    place = urlsplit(url)
    path = place.path + (f"?{place.query}" if place.query else "")
    assert place.scheme == "http"
    assert place.hostname is not None
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=timeout_s)) as connection:
        connection.connect()
        check(connection.sock, known=known)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.read(LARGEST)
        except http.client.HTTPException as error:
            raise ConnectionError(f"{type(error).__name__} {error}") from None


def _listeners(sockets: list[Socket], there: Endpoint) -> list[Socket]:
    """Return the sockets that take connections to an address: those of the address itself, or else of all addresses.

    A listener on all IPv6 addresses takes no connection by IPv4 if another user has the port by IPv4: the system allows
    both only if the first one is for IPv6 alone (ipv6(7), IPV6_V6ONLY, read 2026-11).
    """
    everywhere = [ipaddress.IPv4Address(0)] if there[0].version == 4 else []
    for address in (there[0], *everywhere, ipaddress.IPv6Address(0)):
        if found := [each for each in sockets if each.state == LISTEN and each.local[0] == address]:
            return found
    return []


def _sockets(port: int) -> Iterator[Socket]:
    """Return the sockets at a port of this machine."""
    for table in TABLES:
        if table == TABLES[0] or table.exists():  # without IPv6 there is no second one
            for line in table.read_text().splitlines()[1:]:
                _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
                if local.endswith(f":{port:04X}"):
                    yield Socket(_parsed(local), _parsed(remote), int(state, 16), int(uid), int(inode))


def _parsed(text: str) -> Endpoint:
    """Return the endpoint of `0100007F:1F90`: words of 32 bits in the machine's byte order."""
    address, port = text.split(":")
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return _plain(ipaddress.ip_address(packed)), int(port, 16)


def _endpoint(name: tuple[str, int]) -> Endpoint:
    return _plain(ipaddress.ip_address(name[0].partition("%")[0])), name[1]


def _plain(address: Address) -> Address:
    """Return an IPv4 address that is written as an IPv6 address as what it is."""
    return getattr(address, "ipv4_mapped", None) or address


def _text(there: Endpoint) -> str:
    return f"[{there[0]}]:{there[1]}" if there[0].version == 6 else f"{there[0]}:{there[1]}"


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
