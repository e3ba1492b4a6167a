"""Settings that no stack file has, with the real engine: invariants hold, and what changes is as reviewed.

`golden/settings/*.txt` have the outputs, the options, and the differences from the list of the stack file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.pins import RAY
from infra.outputs import Outputs
from infra.settings import from_stack_file
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Graph
from rehearsal.invariants import order, reach
from rehearsal.invariants.invariant import Stack
from rehearsal.invariants.violations import INVARIANTS, violations
from rehearsal.report.golden import SIGNATURE, golden, masked
from rehearsal.report.outcome import Outcome
from rehearsal.users_cluster import prepare
from tests.rehearsal.differences import differences
from tests.unit.stacks import written
from tools.recovery import FOUND_BY_TAGS, PendingCreate, import_id

GOLDEN = Path(__file__).parent / "golden"
REGISTRY = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
ENTRYPOINT = "python /app/train.py"
WITHOUT_STORAGE_EFA = {order.resources_wait_for_what_they_need, reach.security_groups_admit_their_peers}
"""Invariants that take every rule of EFA's security group for one between nodes."""

VARIATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "public": (
        "gke",
        {
            "access.publicEndpoint": True,
            "access.authorizedNetworks": ["203.0.113.7/32"],
            "queue": "kueue",
            "hardening": True,
            "monitoring": "google",
            "nodes.maxHours": 24,
            "budget.monthly": 9000,
            "budget.email": "ops@example.com",
            "budget.billingAccount": "012345-6789AB-CDEF01",
            "budget.hourly": 200,
            "budget.maxRise": 1.5,
            "prices": ["a3-ultragpu-8g=39.50"],
            "cluster.channel": "rapid",
            "cluster.systemMachine": "n2d-standard-16",
            "cluster.systemNodes": 5,
            "ray.podFile": "tests/rehearsal/pod.yaml",
            "ray.check": "quick",
            "ray.cpuWorkers": 4,
            "ray.cpuWorkerCpus": 6,
            "ray.cpuWorkerMemoryGib": 24,
        },
    ),
    "shared-vpc": (
        "gke-dws",
        {
            "network.subnetwork": "projects/host/regions/us-central1/subnetworks/training",
            "network.podsRange": "gke-pods",
            "network.servicesRange": "gke-services",
        },
    ),
    "own-cluster": (
        "gke-dranet",
        {"cluster.existing": "us-central1/theirs", "cluster.provides": ["kuberay"]},
    ),
    "own-vpc": (
        "eks-capacity-block",
        {"network.subnets": ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]},
    ),
    "existing-eks": (
        "eks-capacity-block",
        {
            "cluster.existing": "theirs",
            "cluster.provides": ["cluster-autoscaler", "nvidia-device-plugin"],
            "network.subnets": ["subnet-0123456789abcdef0"],
            "access.publicEndpoint": None,
            "access.authorizedNetworks": None,
            "ray.policies": ["arn:aws:iam::111122223333:policy/checkpoints"],
        },
    ),
    "claims": (
        "gke",
        {
            "nodes.capacity": "reservation",
            "nodes.reservation": "mine",
            "nodes.maxRunHours": None,
            "nodes.min": 1,
            "fabric": "dranet",
            "access.authorizedNetworks": ["10.1.0.0/16"],
            "access.dnsEndpoint": False,
            "nodes.gpuDriver": "default",
            "nodes.bootDiskGib": 200,
            "cluster.minVersion": "1.35.3",
        },
    ),
    "without-gpus": ("gke-first", {"nodes.machine": "n2d-standard-8", "nodes.min": 1}),
    "reservation-first": (
        "gke-dws",
        {"nodes.capacity": "reservation", "nodes.reservation": "ours", "nodes.fallback": "flex-start-queued"},
    ),
    "indexed-job": (
        "gke-dranet",
        {
            "ray.mode": "indexed-job",
            "ray.entrypoint": ENTRYPOINT,
            "nodes.maxHours": 24,
            "ray.env": ["NCCL_DEBUG=WARN"],
            "ray.secrets": ["huggingface", "key=/secrets/key"],
            "ray.volumes": ["datasets=/datasets"],
            "ray.pullSecrets": ["registry"],
            "ray.priorityClass": "training",
        },
    ),
    "service": (
        "eks",
        {
            "ray.mode": "service",
            "service.application": "workloads.serving.llm:app",
            "service.deployment": "LLMServer:qwen",
            "access.outputsSecret": True,
            "service.arguments": ["model=qwen", "source=Qwen/Qwen3-32B"],
            "service.minReplicas": 2,
            "service.maxReplicas": 4,
            "service.gpusPerReplica": 4,
        },
    ),
    "spot": (
        "eks",
        {
            "nodes.capacity": "spot",
            "nodes.min": 1,
            "fabric": "efa-dranet",
            "queue": "kueue",
            "access.publicEndpoint": False,
            "access.authorizedNetworks": ["10.1.0.0/16"],
            "access.administrators": ["arn:aws:iam::111122223333:role/ops/admin"],
            "ray.policies": ["arn:aws:iam::111122223333:policy/checkpoints"],
            "ray.headCpus": 5,
            "ray.headMemoryGib": 22,
            "cluster.version": "1.36",
            "cluster.systemMachine": "m7i.4xlarge",
            "cluster.systemNodes": 2,
            "hardening": True,
            "monitoring": "annotations",
        },
    ),
    "endpoints": (
        "eks",
        {
            "location": "use2-az1",
            "nodes.machine": "p5e.48xlarge",
            "nodes.capacity": "reservation",
            "nodes.reservation": "arn:aws:resource-groups:us-east-2:111122223333:group/ours",
            "nodes.bootDiskGib": 500,
            "network.interfaces": "bandwidth-optimised",
            "queue": "kueue",
            "ray.image": f"{REGISTRY}/ray-efa:{RAY}",
            "access.egress": "endpoints",
            "access.imageMirror": f"{REGISTRY}/mirror",
        },
    ),
    "lustre-over-efa": (
        "eks-capacity-block",
        {
            "storage.efa": True,
            "storage.capacityGib": 4800,
            "storage.exportDeletions": True,
            "ray.mode": "job",
            "ray.entrypoint": ENTRYPOINT,
            "nodes.maxHours": 24,
            "budget.monthly": 9000,
            "budget.email": "ops@example.com",
            "access.publicEndpoint": False,
            "access.authorizedNetworks": None,
        },
    ),
    "users-cluster": (
        "kubernetes",
        {
            "nodes.machine": "p5en.48xlarge",
            "nodes.gpus": 8,
            "nodes.cpus": 180,
            "nodes.memoryGib": 1800,
            "nodes.min": 1,
            "nodes.max": 4,
            "nodes.waitMinutes": 240,
            "nodes.selector": ["pool=gpu", "example.com/rail=a"],
            "nodes.tolerations": ["team=ml"],
            "nodes.headSelector": ["pool=cpu"],
            "nodes.headTolerations": ["reserved"],
            "nodes.topology": ["example.com/hall", "example.com/rack"],
            "fabric": "rdma",
            "fabricResource": "nvidia.com/hostdev=8",
            "queue": "kueue",
            "localQueue": "team-queue",
            "installKuberay": True,
            "storage.claim": "shared",
            "storage.mountPath": "/data",
            "ray.historyDays": 7,
            "ray.serviceAccount": "training",
            "access.outputsSecret": True,
            "ray.secrets": ["huggingface", "key=/secrets/key"],
            "ray.volumes": ["datasets=/datasets"],
            "ray.pullSecrets": ["registry"],
            "ray.priorityClass": "training",
        },
    ),
    "other-nodes": (
        "kubernetes",
        {
            "nodes.nics": 8,
            "fabric": "efa",
            "ray.image": f"example/ray:{RAY}-py311-cu128",
            "ray.check": "full",
            "otherNodes.max": 2,
            "otherNodes.gpus": 2,
            "otherNodes.cpus": 12,
            "otherNodes.memoryGib": 48,
            "otherNodes.selector": ["pool=l4"],
            "otherNodes.tolerations": ["team"],
            "monitoring": "operator",
        },
    ),
}
"""For each name, a stack file and other settings of it."""


def in_clear_text(value: Any) -> Any:
    """Return a value of the state with its (simulated) secrets."""
    if isinstance(value, Mapping):
        secret = SIGNATURE in value
        return json.loads(value["plaintext"]) if secret else {key: in_clear_text(one) for key, one in value.items()}
    return value


def shown(deployment: Mapping[str, Any], graph: Graph, like: str, other: Graph) -> Iterator[str]:
    """Yield the lines of a golden file."""
    root, own = outputs(deployment, masked), outputs(deployment).get("kubeconfig")
    server = {"server": json.loads(own)["clusters"][0]["cluster"]["server"]} if own else {}
    # A list of the machine's figures.
    del root["fabric"]["floors"]
    yield from yaml.safe_dump(root | server).splitlines()
    for node in sorted(deployment["resources"], key=lambda state: str(state["urn"])):
        for option in ("ignoreChanges", "replaceOnChanges"):
            if paths := node.get(option):
                yield f"{option} of {node['type']} {node['urn'].rpartition('::')[2]}: {', '.join(sorted(paths))}"
    yield f"Differences from {like}:"
    yield from differences(golden(other), golden(graph))


def outputs(deployment: Mapping[str, Any], read: Callable[[Any], Any] = in_clear_text) -> dict[str, Any]:
    """Return the outputs of the stack."""
    found = next(state["outputs"] for state in deployment["resources"] if state["type"] == "pulumi:pulumi:Stack")
    return dict(read(found))


@pytest.mark.parametrize("name", VARIATIONS)
def test_other_settings_match_golden_list(
    name: str, rehearse: Callable[..., Outcome], fork_server: ForkServer, tmp_path: Path
) -> None:
    like, changes = VARIATIONS[name]
    file = written(like, changes, tmp_path)
    users = partial(prepare, settings=from_stack_file(file))
    engine = Engine.deployed(Workspace(tmp_path / "rehearsal", fork_server.bin), like, file, users)
    deployment = json.loads(engine.must("stack", "export", "--show-secrets", stack=True).text)["deployment"]
    graph = Graph.from_deployment(deployment)
    invariants = [one for one in INVARIANTS if "storage.efa" not in changes or one not in WITHOUT_STORAGE_EFA]
    assert violations(Stack(graph, from_stack_file(file)), invariants) == []
    Outputs.model_validate(outputs(deployment))
    for node in graph.managed:
        # After a crash, `make up` finds every resource by its tags or its inputs.
        if node.type.startswith("aws:") and node.type not in FOUND_BY_TAGS:
            assert import_id(PendingCreate(node.name, node.type, node.inputs), None), node.name
    text = "\n".join(shown(deployment, graph, like, rehearse(like).graph)) + "\n"
    golden_file = GOLDEN / "settings" / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden_file.parent.mkdir(exist_ok=True)
        golden_file.write_text(text, encoding="utf-8")
    assert text == golden_file.read_text(encoding="utf-8")
