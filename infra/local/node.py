"""One Ray node of the local cluster: start it, check it, end it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from infra.kubernetes.indexed_job_pod.part import IMPORT_RAY
from infra.local import guard, processes
from infra.local.folder import ClusterFolder

PROJECT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 30.0
_TOO_SLOW = "The current node timed out during startup"
"""Ray gives a node 30 s to register, and has no setting for it (2.60: ray/_private/node.py)."""


class NodeError(RuntimeError):
    """A node did not start; the message contains the end of Ray's log."""


class SlowNodeError(NodeError):
    """Ray gave up on the node because it started too slowly, as on a busy machine."""


@dataclass(frozen=True)
class LocalNode:
    """A node: its unique id, and the identity of its guard, which ends with Ray's processes.

    The system reuses process ids. With the start time (`started`, seconds since the epoch, as the system reports it) an
    id names one process forever.
    """

    id: str
    pid: int
    started: float

    def guard(self) -> psutil.Process | None:
        """Return the guard if it runs; a zombie or a later process with the same id does not count."""
        try:
            process = psutil.Process(self.pid)
            # Both times come from the same clock, to within its resolution of a hundredth of a second.
            same = abs(process.create_time() - self.started) <= 0.05
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def start(
    folder: ClusterFolder,
    name: str,
    *,
    address: str,
    agent_port: int,
    ray_arguments: list[str],
    environment: dict[str, str],
    ready: Callable[[], bool],
    node_id: str | None = None,
    attempts: int = 3,
) -> LocalNode:
    """Start a Ray node and return once `ready` is true.

    First ends an earlier node of the same name: the one that this node replaces, or one that a killed engine left. If
    Ray gives up on the node as too slow, starts it again, up to `attempts` times.

    Raises:
        NodeError: The node ended or did not become ready in two minutes. No process and no file of it remains.
    """
    place = folder.node(name)
    while True:
        _end_named(folder, name)
        place.mkdir(parents=True, mode=0o700)
        own_id = node_id or f"{name}-{secrets.token_hex(4)}"
        # Not the script `ray`: its first line names the interpreter by its real path.
        argv = [str(folder.python), "-c", f"{IMPORT_RAY}ray.main()", "start", "--block", f"--node-name={name}"]
        argv += [f"--temp-dir={place}", f"--node-ip-address={address}", f"--dashboard-agent-listen-port={agent_port}"]
        # By default Ray takes ports of workers from a fixed range, which two nodes of one machine would share.
        argv += ["--min-worker-port=0", "--max-worker-port=0"]
        argv += ["--num-gpus=0", "--object-store-memory=200000000", "--disable-usage-stats", *ray_arguments]
        with (place / "guard.log").open("ab") as log:
            watcher = subprocess.Popen(
                [sys.executable, "-m", "infra.local.guard", str(place), *argv],
                cwd=PROJECT,
                env=_environment(folder, f"{folder.key}/{own_id}") | environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert watcher.stdin is not None
        committed = False
        try:
            node = LocalNode(own_id, watcher.pid, psutil.Process(watcher.pid).create_time())
            _wait_until(ready, watcher, place, name)
            (place / "process.json").write_text(json.dumps(asdict(node)))
            watcher.stdin.write(guard.COMMIT)
            watcher.stdin.flush()
            committed = True
            return node
        except SlowNodeError:
            attempts -= 1
            if not attempts:
                raise
        finally:
            # If the pipe closes before the commit, the guard takes the node down.
            watcher.stdin.close()
            if not committed:
                watcher.wait(timeout=_END_TIMEOUT_S)
                shutil.rmtree(place, ignore_errors=True)


def end(folder: ClusterFolder, name: str, node: LocalNode) -> None:
    """End this node and remove its folder; a node that has already ended is not an error."""
    processes.end(filter(None, [node.guard()]), grace_s=_END_TIMEOUT_S)
    processes.end_marked(f"{folder.key}/{node.id}")
    place = folder.node(name)
    if folder.own() and _recorded(place) in (None, node):
        shutil.rmtree(place, ignore_errors=True)


def _environment(folder: ClusterFolder, mark: str) -> dict[str, str]:
    """Return the caller's environment without Pulumi's and Ray's variables, and with those of the node."""
    # Pulumi's variables contain the passphrase and cloud tokens, which jobs could read; Ray's would change the node.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "RAY_"))}
    return inherited | {
        processes.MARK: mark,
        "RAY_AUTH_MODE": "token",
        # An installed `rdma-ray` does not know the environment of the clone.
        "PATH": os.pathsep.join([str(folder.python.parent), os.environ.get("PATH", os.defpath)]),
        # By file: a token in the environment can be read from the process table.
        "RAY_AUTH_TOKEN_PATH": str(folder.token),
        "RAY_USAGE_STATS_ENABLED": "0",
        # No drain on one machine: `destroy` ends all nodes.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        # With Ray's default of 15, any busy process of this machine starves the ranks of a collective.
        "RAY_worker_niceness": "0",
        "PYTHONUNBUFFERED": "1",
        "RAY_DEDUP_LOGS": "0",  # as on a cluster (infra/kubernetes/pods.py: EVERY_LINE)
    }


def _wait_until(ready: Callable[[], bool], watcher: subprocess.Popen[bytes], place: Path, name: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not ready():
        if watcher.poll() is not None:
            tail = _tail(place)
            kind = SlowNodeError if _TOO_SLOW in tail else NodeError
            raise kind(f"Ray node {name} ended while it started. The end of its log:\n{tail}")
        if time.monotonic() > deadline:
            late = f"Ray node {name} was not ready after {_START_TIMEOUT_S:.0f} s"
            raise NodeError(f"{late}. The end of its log:\n{_tail(place)}")
        time.sleep(0.2)


def _tail(place: Path, lines: int = 20) -> str:
    logs = [path for path in (place / "ray.log", place / "guard.log") if path.exists()]
    text = "\n".join(path.read_text(errors="replace") for path in logs)
    return "\n".join(text.splitlines()[-lines:])


def _recorded(place: Path) -> LocalNode | None:
    try:
        return LocalNode(**json.loads((place / "process.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _end_named(folder: ClusterFolder, name: str) -> None:
    own = folder.own()
    if own and (node := _recorded(folder.node(name))):
        end(folder, name, node)
    processes.end_marked(f"{folder.key}/{name}-")
    if own:
        shutil.rmtree(folder.node(name), ignore_errors=True)
