"""Evidence of the actors of a Ray driver, which this project does not start: NCCL's logs, and the NICs of each node.

NCCL gets its settings by variables of the job, and writes to the folder of Ray's own logs. Pods and the nodes of a
local stack have it under the path of the head, also those that join later. After the command, a task on each node reads
the logs of this job, and removes them.
Nothing here raises: what cannot be read is `missing`.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workloads import temporary
from workloads.evidence import collect
from workloads.evidence.facts import Evidence, LogFacts, RankEvidence, thinned
from workloads.exits import last_line
from workloads.gang.actors import answers
from workloads.gang.placement import all_nodes
from workloads.hardware import nic
from workloads.hardware.nic import Counter, Nic, Reading
from workloads.secrecy import Masker, known_secrets
from workloads.unlinked import open_folder

ANSWERS_S = 30
"""Seconds for the answers of all nodes. Ray may find a lost node only then, and ends its task."""
PROCESSES = 1_000  # logs read per node
PROCESS_CHANNELS = 1_024  # connections that a process sends


@dataclass
class NodeStart:
    """A node before the command: its NICs' counters, and the free bytes where NCCL writes; None if it cannot."""

    counters: Reading | None
    free: int | None


@dataclass
class NodeEnd:
    """A node after the command: facts by process ID, and why some are `missing`."""

    host: str
    logs: list[tuple[int | None, LogFacts]] = field(default_factory=list)
    counters: list[Counter] | None = None
    nics: list[Nic] | None = None
    driver: str | None = None
    missing: list[str] = field(default_factory=list)


@dataclass
class ActorEvidence:
    """Call `begin` before the command, and `end` after it. `private` are secrets of the driver."""

    private: tuple[str, ...] = field(default=(), repr=False)
    folder: str = ""
    prefix: str = field(default_factory=lambda: f"{collect.FOLDER}{secrets.token_hex(8)}.")
    logs: bool = False
    before: dict[str, NodeStart] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    missing: dict[str, list[str]] = field(default_factory=dict)

    def begin(self, given: Mapping[str, str]) -> dict[str, str]:
        """Read the nodes, and return the variables for the command and its actors; the `given` ones have priority."""
        try:
            with _connected():
                self.folder = os.path.realpath(ray._private.worker._global_node.get_logs_dir_path())  # type: ignore[attr-defined]
                for node, answer in self._ask(begin_on_node, lambda _: (self.folder,)):
                    self.before[node["NodeID"]] = answer
                    if answer.free is None or answer.free < collect.ROOM:
                        free = "it cannot be read" if answer.free is None else f"{answer.free // 2**20} MiB are free"
                        text = f"NCCL's log: {self.folder} needs {collect.ROOM // 2**20} MiB, and {free}"
                        self._miss(text, node["NodeManagerAddress"])
        except Exception as error:
            self._miss(f"all of it: {last_line(error)}")
        level = given.get(collect.LEVEL, "INFO")
        if level.upper() not in collect.LEVELS:
            self._miss(collect.too_quiet(level))
        elif collect.FILE in given:
            self._miss(f"NCCL's log: NCCL writes to your {collect.FILE}: leave it out")
        elif not any(text.startswith(("NCCL's log", "all of it")) for text in self.missing):
            self.logs = True
            file = f"{self.folder.replace('%', '%%')}/{self.prefix}%h.%p"
            wanted = {collect.LEVEL: "INFO", collect.SUBSYSTEMS: collect.LOGGED, collect.FILE: file}
            return {name: value for name, value in wanted.items() if name not in given}
        return {}

    def end(self) -> tuple[Evidence, list[dict[str, Any]]]:
        """Return the evidence, and {host, ip, node_id, ranks} of each node with a log."""
        found: list[tuple[dict[str, Any], NodeEnd]] = []
        try:
            if self.folder:
                with _connected():
                    for node in all_nodes():
                        if not node["Alive"] and node["NodeID"] not in self.left:
                            text = "all of it: the node left before the end, and its logs with it"
                            self._miss(text, node["NodeManagerAddress"])
                    given = self.folder, self.prefix
                    its = self.before
                    found = list(self._ask(end_on_node, lambda node: (*given, its.get(node), self.private)))
        except Exception as error:
            self._miss(f"all of it: {last_line(error)}")
        found.sort(key=lambda one: one[0]["NodeManagerAddress"])
        ranks: list[RankEvidence] = []
        nodes = []
        count = max(1, sum(len(end.logs) for _, end in found))
        keep = max(collect.FEWEST_CHANNELS, collect.CHANNELS // count)
        for node, end in found:
            for reason in end.missing:
                self._miss(reason, node["NodeManagerAddress"])
            begin = len(ranks)
            of_node = {"counters": end.counters, "nics": end.nics, "driver": end.driver}
            # A node without a log has its NICs.
            logs: list[tuple[int | None, LogFacts | None]] = [*end.logs] or ([(None, None)] if end.nics else [])
            for pid, log in logs:
                short = log and thinned(log, keep, collect.WARNINGS)
                one = RankEvidence(rank=len(ranks), log=short, counters=None, host=end.host, pid=pid)
                ranks.append(one.model_copy(update=of_node))
                of_node = {}
            if end.logs:
                numbers = list(range(begin, len(ranks)))
                names = {"ip": node["NodeManagerAddress"], "node_id": node["NodeID"]}
                nodes.append({"host": end.host, **names, "ranks": numbers})
        if self.logs and not nodes:
            self._miss("NCCL's log: no process wrote one")
        known = Masker(self.private)  # an error of Ray may have any text
        missing = [
            known.text(f"{text} ({', '.join(where)})" if where else text)
            for text, where in sorted(self.missing.items())
        ]
        return Evidence(ranks=ranks, image=None, topology={}, missing=missing), nodes

    def _miss(self, reason: str, *nodes: str) -> None:
        self.missing.setdefault(reason, []).extend(nodes)

    def _ask(
        self, function: Callable[..., Any], arguments: Callable[[str], tuple[Any, ...]]
    ) -> Iterator[tuple[dict[str, Any], Any]]:
        """Call a function on every live node, and yield each node with its answer; the others are `missing`."""
        task: Any = ray.remote(num_cpus=0, max_retries=0)(function)
        alive = {node["NodeID"]: node for node in all_nodes() if node["Alive"]}
        calls = {}
        for node in alive:
            here = NodeAffinitySchedulingStrategy(node, soft=False)
            calls[task.options(scheduling_strategy=here).remote(*arguments(node))] = node
        failed = dict.fromkeys(alive, f"no answer within {ANSWERS_S} s")
        for node, answer in answers(calls, ANSWERS_S):
            if isinstance(answer, RayError):
                failed[node] = last_line(answer)
            else:
                del failed[node]
                yield alive[node], answer
        if function is begin_on_node:
            # The command has not started: nothing of it is lost with these.
            self.left = {node["NodeID"] for node in all_nodes() if not node["Alive"]}
        what = "all of it" if function is end_on_node else "NIC counters"
        for node, reason in failed.items():
            if node not in self.left:
                self._miss(f"{what}: {reason}", alive[node]["NodeManagerAddress"])


@contextmanager
def _connected() -> Iterator[None]:
    ray.init(logging_level=logging.ERROR, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def begin_on_node(folder: str) -> NodeStart:
    """Read this node before the command."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = None
    return NodeStart(nic.read_counters(), free)


def end_on_node(folder: str, prefix: str, before: NodeStart | None, private: tuple[str, ...]) -> NodeEnd:
    """Read this node after the command, and remove the logs of its processes.

    Args:
        private: Secrets of the driver, which the node's environment lacks. They are removed before lines are cut.
    """
    found = NodeEnd(socket.gethostname(), nics=nic.nics() or None, driver=nic.driver())
    _read_logs(folder, prefix, found, Masker([*known_secrets(os.environ), *private]))
    after = nic.read_counters()
    if after is not None and before is not None and before.counters is not None:
        found.counters, notes = nic.difference(before.counters, after)
        found.missing += [f"NIC counters: {note}" for note in notes]
    elif after is not None:
        found.missing.append("NIC counters: they were not read before the command")
    return found


def _read_logs(folder: str, prefix: str, found: NodeEnd, known: Masker) -> None:
    try:
        with open_folder(os.path.realpath(folder)) as opened:
            names = sorted(name for name in os.listdir(opened) if name.startswith(prefix))  # noqa: PTH208 - an open folder
            for number, name in enumerate(names):
                pid = name.rpartition(".")[2]
                try:
                    with temporary.opened_file(name, os.geteuid(), opened) as file:
                        os.unlink(name, dir_fd=opened)  # only one node of several on this machine succeeds
                        if number < PROCESSES:
                            log = _facts(file, known, found.missing)
                            found.logs.append((int(pid) if pid.isdecimal() else None, log))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    found.missing.append(f"NCCL's log: cannot read one: {error.strerror}")
                    with suppress(OSError):
                        os.unlink(name, dir_fd=opened)
            if len(names) > PROCESSES:
                found.missing.append(f"NCCL's log: only those of {PROCESSES} of {len(names)} processes were read")
    except OSError as error:
        found.missing.append(f"NCCL's log: cannot open {folder}: {error.strerror}")


def _facts(file: int, known: Masker, missing: list[str]) -> LogFacts:
    with open(file, encoding="utf-8", errors="replace", closefd=False) as opened:
        log, complete = collect.read_log(opened, known)
        if not complete:
            missing.append(f"NCCL's log: only the first {collect.READ // 2**20} MiB of one were read")
    return thinned(log, PROCESS_CHANNELS, collect.WARNINGS)
