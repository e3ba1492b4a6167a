"""Another user of this machine, who takes ports and keeps what is sent to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

_PROGRAM = """
import json, os, re, socket, sys, time
wanted, accepts, closes, lines, uid = json.loads(sys.argv[1])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
places, listeners, ends, received, connections = [tuple(each) for each in wanted], {}, [], {}, 0
ANSWER = b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}'
SETTINGS = b"\\0\\0\\0\\4\\0\\0\\0\\0\\0" + b"\\0\\0\\0\\4\\1\\0\\0\\0\\0"  # none, and those of the client accepted
os.set_blocking(0, False)
said, announced, more = set(), False, 20
while more:
    try:  # at the end, what has connected and was sent before still counts
        more -= not os.read(0, 1)
    except BlockingIOError:
        pass
    if lines:  # command lines are every user's to read
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if pid in said:
                continue
            try:
                words = open(f"/proc/{pid}/cmdline").read().split("\\0")
            except OSError:
                continue
            if "start" in words and "--head" in words:
                said.add(pid)
                for word in words:
                    option, _, port = word.partition("=")
                    if option in lines and port.isdigit() and int(port):
                        places.append((lines[option], int(port)))
    for place in places:
        if place in listeners:
            continue
        listener = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ":" in place[0] and len(place) > 2:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, place[2])
        try:
            listener.bind(place[:2])
            listener.listen()
        except OSError:
            listener.close()
            continue
        listener.setblocking(False)
        listeners[place] = listener
        received[str(place[1])] = received.get(str(place[1]), "")
    if not announced and (len(listeners) == len(places) or lines):
        print("ready", flush=True); announced = True
    for place, listener in list(listeners.items()):
        if not accepts or listener is None:
            continue
        try:
            end, _ = listener.accept()
        except BlockingIOError:
            continue
        connections += 1
        end.setblocking(False)
        ends.append((place, end))
        if closes:
            listener.close(); listeners[place] = None
            print("closed", flush=True)
    for place, end in list(ends):
        try:
            data = end.recv(65536)
        except BlockingIOError:
            continue
        except OSError:
            data = b""
        if not data:
            end.close(); ends.remove((place, end)); continue
        received[str(place[1])] += data.decode("latin-1")
        try:
            if data.startswith(b"PRI * HTTP/2"):  # gRPC sends its metadata after the server's settings
                end.send(SETTINGS)
            elif not received[str(place[1])].startswith("PRI"):
                end.send(ANSWER); end.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    time.sleep(0.001)
print(json.dumps({"connections": connections, "received": received}), flush=True)
"""


@dataclass
class Caught:
    """What the other user got: connections, and the text received at each of their ports."""

    connections: int
    received: dict[str, str]

    @property
    def nothing(self) -> bool:
        return not any(self.received.values())


class OtherUser(AbstractContextManager["OtherUser"]):
    """A process of user 65534 that listens at each place as soon as the place is free; `ends` returns what it caught.

    Args:
        places: Host and port, and for IPv6 whether it takes connections by IPv6 only.
        accepts: Whether it accepts connections.
        closes: Whether it closes a listener after its first connection, and keeps that.
        lines: It also takes the ports that command lines of `ray start --head` name, at these addresses by option.
    """

    def __init__(
        self,
        *places: Sequence[Any],
        accepts: bool = True,
        closes: bool = False,
        lines: dict[str, str] | None = None,
        ready: bool = True,
    ) -> None:
        request = json.dumps([places, accepts, closes, lines or {}, NOBODY])
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-I", "-c", _PROGRAM, request], stdin=pipe, stdout=pipe)
        if ready:
            self.says("ready")

    def says(self, word: str) -> None:
        """Wait for a word of the process."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().decode().strip() == word

    def ends(self) -> Caught:
        """End the process, and return what it caught."""
        said, _ = self.process.communicate(timeout=20)
        return Caught(**json.loads(said.splitlines()[-1]))

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
