"""Guard of every test: this process opens no connection beyond this machine.

An audit hook sees each `connect` and `sendto` of Python's sockets, whoever calls them. Unix sockets pass. Child
processes have no guard, and neither have libraries with sockets of their own, such as gloo and Ray's core, which the
tests bind to loopback addresses.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EVENTS = ("socket.connect", "socket.sendto")


class BeyondLoopbackError(AssertionError):
    """A test used a socket to another machine. The message names the test and the address."""


class Guard:
    """Refuses sockets while a test runs. `refused` are the messages, also of those that the tested code swallowed."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._test: str | None = None
        self._hooked = False

    @contextmanager
    def watching(self, test: str) -> Iterator[None]:
        """Refuse sockets in the name of this test."""
        if not self._hooked:
            # An audit hook cannot be removed: there is one for the whole process.
            sys.addaudithook(self._hook)
            self._hooked = True
        self._test = test
        self.refused.clear()
        try:
            yield
        finally:
            self._test = None

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or self._test is None:
            return
        address = arguments[1]
        # Of Internet addresses, the first two items are host and port; other families have text, bytes or numbers.
        if isinstance(address, tuple) and isinstance(address[0], str) and not is_loopback(address[0]):
            self.refused.append(f"{self._test} used a socket to {address[0]}:{address[1]}; only loopback is allowed")
            raise BeyondLoopbackError(self.refused[-1])


def is_loopback(host: str) -> bool:
    """Return whether an address, or the only name without a lookup, is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


GUARD = Guard()
