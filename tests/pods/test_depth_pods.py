"""Full rehearsal of the gke stack at depth `pods`, which leaves nothing on this machine.

Real: the Pulumi engine and the program; API server, controllers, scheduler, etcd; kubelet, kube-proxy and containerd of
each node, CoreDNS, kubectl; KubeRay's operator in a pod, Ray with its autoscaler and dashboard. Simulated: the APIs of
Google Cloud, GKE's controllers and its node autoscaler (`rehearsal/cluster/controllers`), GPUs and NICs (counts of a
node), the images (of this environment; gIB's has our files), and the engine's language host and plugins (a fork
server). CPUs, memory and idle times are scaled, as the run prints.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rehearsal.cluster.traces import traces
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.outcome import Phase
from rehearsal.scenario import RehearsalRequest, Scenario

STORY = (
    r"node \S+system\S+ is ready \(real\)",
    r"release kuberay-system/kuberay-operator: the real controller runs",
    r"scaled: RayCluster gke-ray: gpu-group, container ray-worker: requests cpu 220 -> 500m",
    r"RayCluster gke-ray: head ready after \d+ s, no GPU node",
    r"job \S+ requests 2 whole nodes",
    r"pool gpu grows by [12] node",
    r"node \S+gpu\S+ granted to pool gpu",
    r"node \S+gpu\S+ is ready \(real\)",
    r"Pod gke-ray-gpu-group-worker\S+ is Running on \S+gpu",
    r"job \S+ is SUCCEEDED",
    r"job \S+ ran on 10\.\d+\.\d+\.\d+, 10\.\d+\.\d+\.\d+ and ended after",
    r"RayCluster gke-ray is ready, 0 of 0 workers",
    r"node \S+gpu\S+ removed from pool gpu: empty",
    r"node \S+system\S+ removed from pool system: its pool was deleted",
)
"""Events of the timeline, in this order."""


@pytest.mark.usefixtures("real_nodes")
def test_gke_stack_runs_job_on_scaled_up_nodes(tmp_path: Path) -> None:
    """Ray's own autoscaler scales up two workers for a job on two whole nodes, real nodes start for them, and all of it
    scales down again; the second preview is empty although the applied objects are scaled; this machine is unchanged
    afterwards."""
    if os.environ.get("KUBECONFIG"):
        pytest.skip("not run: a rehearsal makes its own nodes, and takes no cluster of a user's")
    before = traces(tmp_path / "w" / "kubernetes")
    with ForkServer() as fork_server:
        workspace = Workspace(tmp_path / "w", fork_server.bin)
        request = RehearsalRequest(stack="gke", file=ROOT / "Pulumi.gke.yaml", depth="pods")
        outcome = Scenario(request, workspace, say, print).run()
    assert outcome.ok, [phase for phase in outcome.phases if not phase.ok]
    assert outcome.phases[-1].name == "nodes are stopped, nothing is left on this machine"
    assert traces(tmp_path / "w" / "kubernetes") - before == frozenset()
    events = [what for _, what in outcome.timeline]
    at = 0
    for wanted in STORY:
        at = next((place for place in range(at, len(events)) if re.search(wanted, events[place])), -1)
        assert at >= 0, f"{wanted} is missing or out of order:\n" + "\n".join(events)
    workers = {line.split(" on ")[1] for line in events if re.search(r"worker\S+ is Running on \S+gpu", line)}
    assert len(workers) == 2, workers
    over = next(place for place, line in enumerate(events) if "is SUCCEEDED" in line)
    assert sum("granted to pool gpu" in line for line in events[:over]) == 2, "one node for each worker"
    assert any(note.startswith("Not scaled: ") for note in outcome.notes)


def say(name: str, phase: Phase | None) -> None:
    """Print the result of a phase."""
    if phase is not None:
        print(f"{phase.seconds:6.1f} s  {name}: {phase.said}")
