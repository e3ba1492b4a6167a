"""Driver of `rdma-ray top`: runs on the head as a Ray job without CPUs, and writes the newest snapshot to one file.

python -m workloads.monitor.driver OPTIONS_JSON

It keeps a probe on each live node, and ends when its client is gone (`Lease`). The file is in Ray's log folder, from
where Ray's dashboard serves it (ray: dashboard/modules/log/log_agent.py, 2.60, read 2026-11).

A worker process keeps Ray from counting a node as idle, also one without CPUs (ray: src/ray/raylet/node_manager.h,
SetIdleIfLeaseEmpty, read 2026-11). So where an autoscaler removes idle nodes, only nodes whose resources are in use
have a probe.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workloads.exits import last_line
from workloads.monitor import ray_state
from workloads.monitor.probe import Probe
from workloads.monitor.snapshot import (
    LEASE_S,
    NOT_PROBED,
    PROBE_STARTS,
    Lease,
    MonitorOptions,
    NodeState,
    Reading,
    Snapshot,
    encode,
)

SHARE = 0.05  # of the time that reading one part of the state may take
RETRY_S = 15.0  # between two probes of one node
DEAD_S = 600.0  # that a dead node stays on the list
T = TypeVar("T")


class NodeProbe(Probe):
    """Probe as an actor. Its class name distinguishes it from the actors of jobs."""


class Probes:
    """Probes of the nodes: `poll` starts and ends them, and returns the newest readings.

    Args:
        start: Returns an actor on a node.
        wait: ray.wait.
        get: ray.get.
        kill: ray.kill.
    """

    def __init__(
        self,
        start: Callable[[str], Any],
        wait: Callable[..., tuple[list[Any], list[Any]]] = ray.wait,
        get: Callable[[Any], Reading] = ray.get,
        kill: Callable[[Any], None] = ray.kill,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.start, self.wait, self.get, self.kill, self.clock = start, wait, get, kill, clock
        self.actors: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.asked_at: dict[str, float] = {}
        self.readings: dict[str, Reading] = {}
        self.notes: dict[str, str] = {}
        self.not_before: dict[str, float] = {}

    def poll(self, wanted: frozenset[str], timeout_s: float) -> None:
        """Ask the wanted nodes, and take the answers that come within the timeout."""
        for node in self.actors.keys() - wanted:
            with suppress(Exception):
                self.kill(self.actors[node])
            self._forget(node)
        for node in self.notes.keys() - wanted:
            del self.notes[node]
        for node in wanted:
            if node not in self.actors and self.clock() >= self.not_before.get(node, 0):
                self.actors[node] = self.start(node)
            if node in self.actors and node not in self.asked:
                self.asked[node] = self.actors[node].read.remote()
                self.asked_at[node] = self.clock()
        if not self.asked:
            return
        ready = set(self.wait(list(self.asked.values()), num_returns=len(self.asked), timeout=timeout_s)[0])
        for node, answer in list(self.asked.items()):
            if answer not in ready:
                if (late := self.clock() - self.asked_at[node]) > RETRY_S:
                    self.notes[node] = f"no answer of the probe for {late:.0f} s"
                    self.readings.pop(node, None)
                continue
            del self.asked[node]
            try:
                self.readings[node] = self.get(answer)
                self.notes.pop(node, None)
            except Exception as error:  # the actor or its node died, or could not start
                self._forget(node)
                self.notes[node] = f"the probe ended: {last_line(error)[:200]}"
                self.not_before[node] = self.clock() + RETRY_S

    def _forget(self, node: str) -> None:
        for known in (self.actors, self.asked, self.asked_at, self.readings):
            known.pop(node, None)


class Paced:
    """Reads a value as often as its share of the time allows; otherwise returns the last one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.values: dict[str, Any] = {}
        self.next: dict[str, float] = {}

    def __call__(self, what: str, read: Callable[[], T]) -> T:
        if self.clock() >= self.next.get(what, 0):
            began = self.clock()
            self.values[what] = read()
            self.next[what] = self.clock() + (self.clock() - began) / SHARE
        value: T = self.values[what]
        return value


class Leased:
    """Whether the client still renews its lease, on this process's clock."""

    def __init__(self, read: Callable[[], bytes | None], clock: Callable[[], float] = time.monotonic) -> None:
        self.read, self.clock = read, clock
        self.last, self.changed = Lease(count=0, interval_s=2), clock()

    def __call__(self) -> bool:
        """Return whether the lease changed within LEASE_S. What is no lease changes nothing."""
        with suppress(ValueError):
            lease = Lease.model_validate_json(self.read() or b"")
            if lease != self.last:
                self.last, self.changed = lease, self.clock()
        return self.clock() - self.changed < LEASE_S


def wanted(nodes: list[NodeState], used: frozenset[str], elastic: bool) -> frozenset[str]:
    """Return the IDs of the nodes that get a probe."""
    return frozenset(
        node.id for node in nodes if node.alive and (not elastic or node.role == "head" or node.id in used)
    )


class DeadNodes:
    """Keeps a dead node on the list for a while, if it was seen alive. Ray itself knows up to 1,000 dead nodes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.seen: dict[str, float] = {}

    def __call__(self, nodes: list[NodeState]) -> list[NodeState]:
        now = self.clock()
        self.seen |= {node.id: now for node in nodes if node.alive}
        return [node for node in nodes if now - self.seen.get(node.id, now - 2 * DEAD_S) < DEAD_S]


def main(text: str) -> int:
    """Write snapshots until the lease ends."""
    options = MonitorOptions.model_validate_json(text)
    ray.init(logging_level=logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # After ray.init, which connects both.
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types
    from ray.experimental import internal_kv

    gcs = GcsClient(ray.get_runtime_context().gcs_address)
    key = f"gcs://{options.lease}"
    node: Any = ray._private.worker._global_node  # untyped in Ray
    file = Path(node.get_logs_dir_path()) / options.file
    probe = ray.remote(num_cpus=0, num_gpus=0, max_restarts=0)(NodeProbe)

    def start(node: str) -> Any:
        affinity = NodeAffinitySchedulingStrategy(node, soft=False)
        return probe.options(scheduling_strategy=affinity).remote(options.gbps_per_nic)

    probes, leased, paced, dead = (
        Probes(start),
        Leased(lambda: internal_kv._internal_kv_get(key)),
        Paced(),
        DeadNodes(),
    )
    try:
        while leased():
            began, interval = time.monotonic(), leased.last.interval_s
            publish(file, snapshot(options, gcs, probes, paced, dead, interval))
            time.sleep(max(0.1, interval - (time.monotonic() - began)))
    finally:
        file.unlink(missing_ok=True)
        internal_kv._internal_kv_del(key)
    return 0


def snapshot(
    options: MonitorOptions, gcs: Any, probes: Probes, paced: Paced, dead: DeadNodes, interval_s: float
) -> Snapshot:
    """Return the cluster's state now."""
    status = ray_state.read_status(gcs)
    nodes = dead(ray_state.nodes_of(status))
    probed = wanted(nodes, ray_state.in_use(status), options.elastic)
    probes.poll(probed, timeout_s=interval_s / 2)
    demands, starting, failed = ray_state.demands_of(status, ray._private.state.state.get_cluster_config())
    notes: list[str] = []

    def part(what: str, read: Callable[[], list[T]]) -> list[T]:
        try:
            return paced(what, read)
        except Exception as error:  # Ray's internals differ, or the head is too busy
            notes.append(f"{what}: {last_line(error)[:200]}")
            return []

    return Snapshot(
        cluster=options.cluster,
        ray=ray.__version__,
        time=time.time(),
        interval_s=interval_s,
        nodes=[with_reading(node, probed, probes) for node in nodes],
        jobs=part("jobs", lambda: ray_state.read_jobs(gcs)),
        actors=part("actors", ray_state.read_actors),
        groups=part("placement groups", ray_state.read_groups),
        demands=demands,
        starting=starting,
        failed=failed,
        notes=notes,
    )


def with_reading(node: NodeState, probed: frozenset[str], probes: Probes) -> NodeState:
    """Return a node with its newest reading, or the reason why there is none."""
    if not node.alive:
        return node
    if node.id not in probed:
        return node.model_copy(update={"note": NOT_PROBED})
    reading = probes.readings.get(node.id)
    note = probes.notes.get(node.id)
    if reading is not None and node.gpus.total and not reading.gpus:
        note = note or "; ".join(reading.missing)
    return node.model_copy(update={"reading": reading, "note": note or (None if reading else PROBE_STARTS)})


def publish(file: Path, snapshot: Snapshot) -> None:
    """Replace the file. A reader sees the old snapshot or the new one."""
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(encode(snapshot) + "\n", encoding="ascii")
    partial.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
