"""Another user takes the ports of a local stack before its head does: real Ray, the real engine, another uid.

The other user reads ports in the command lines of Ray, and binds whatever is free.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from infra.listener import ListenerError, connect
from infra.outputs import Outputs
from tests.clone import Clone, wait_until
from tests.other_user import OtherUser, needs_root

PLANTED = "planted-0123456789abcdef0123456789abcdef-token"
CONTROL_STORE = {"--port": "127.0.0.2"}
EVERY_PORT = CONTROL_STORE | {"--dashboard-port": "127.0.0.1", "--ray-client-server-port": "127.0.0.2"}
"""Options of `ray start --head` with a port, and the address at which a local head listens there."""

pytestmark = [needs_root, pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")]


def kill_head(clone: Clone) -> None:
    """End the head's processes at once, as a crash of the machine does, and wait until they are gone."""
    guard = psutil.Process(int(clone.resources()["ray-head"]["pid"]))
    dead = [guard, *guard.children(recursive=True)]
    for process in dead:
        # The guard's death ends some of the others before their turn.
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(dead, timeout=30)


def port_of(outputs: Outputs) -> int:
    return int(urlsplit(outputs.ray.jobs).port or 0)


def other_listens(port: int) -> bool:
    try:
        connect("127.0.0.1", port, 5).close()
    except ListenerError:
        return True
    except OSError:
        pass
    return False


def test_ports_of_a_head_that_restarts_give_nothing_away(fresh_clone: Clone) -> None:
    clone = fresh_clone
    clone.pulumi("stack", "select", "--create")
    clone.pulumi("config", "set", "--secret", "--path", "rdma-ray:ray.token", PLANTED)
    clone.up()
    port = port_of(clone.outputs())

    # The port of the head that is gone.
    with OtherUser(("127.0.0.1", port), lines=CONTROL_STORE) as other:
        kill_head(clone)
        wait_until(lambda: other_listens(port), "the other user has the port", 30)
        said = clone.run("bin/rdma-ray", "list", check=False)
        [line] = said.strip().splitlines()
        assert f"nothing was sent to 127.0.0.1:{port}: another user listens there" in line
        assert "make up" in line
        # The control store of the new head.
        clone.up()
        caught = other.ends()
    assert caught.nothing, caught
    assert caught.connections > 1
    assert port_of(clone.outputs()) != port
    clone.run("bin/rdma-ray", "list")

    # Every port that the next head is told.
    with OtherUser(lines=EVERY_PORT) as other:
        kill_head(clone)
        said = clone.pulumi("up", "--yes", "--skip-preview", check=False)
        caught = other.ends()
    assert caught.nothing, caught
    assert caught.received, "the other user was too late"
    assert "another user listens there" in said
    clone.up()
    clone.run("bin/rdma-ray", "list")
    clone.destroy()
