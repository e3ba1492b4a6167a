"""Faults of Ray, and of its nodes as their probes show them."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.workloads.doctor import states
from tests.workloads.doctor.fault import Fault, change_probe, planting
from tests.workloads.doctor.states import HOUR, NOW
from workloads.doctor.state import State

GKE, EKS = partial(states.cloud, "gke"), partial(states.cloud, "eks")
LOCAL = states.local
FIRST = "Ray node 10.0.0.3 (host-1)"
DAY = 24 * HOUR


def group(state: str, resources: dict[str, float], count: int = 1, age_s: float = 600) -> Any:
    stats = {"creation_request_received_ns": str(int((NOW - age_s) * 1e9)), "scheduling_state": state}
    found = {
        "placement_group_id": "29b5dad8065d6ec3ac26b6875e1302000000",
        "name": "",
        "creator_job_id": "02000000",
        "state": "PENDING",
        "bundles": [{"unit_resources": resources}] * count,
        "stats": stats,
    }
    return lambda state: state.ray["placement groups"].append(found)


def job(**changes: Any) -> Any:
    return lambda state: state.ray["jobs"][0].update(changes)


def started(state: State, seconds_ago: float) -> None:
    for node in state.ray["nodes"]:
        node["start_time_ms"] = int((NOW - seconds_ago) * 1000)


def idle(state: State, seconds: float) -> None:
    started(state, seconds)
    job(end_time=int((NOW - seconds) * 1000))(state)


def detached(state: State) -> None:
    """An actor and a group outlive a job. Actors of Ray Serve, and without CPUs and GPUs, are no problem."""
    job(status="STOPPED", job_id="02000000", end_time=int((NOW - 60) * 1000))(state)
    row = {"state": "ALIVE", "job_id": "02000000", "is_detached": True, "class_name": "Judge", "name": "judge"}
    for namespace, amounts in (("mine", {"GPU": 0.5}), ("serve", {"CPU": 1.0}), ("mine", {})):
        actor = {"actor_id": "a1", "ray_namespace": namespace, "required_resources": amounts}
        state.ray["actors"].append(row | actor)
    group("FINISHED", {"CPU": 1.0})(state)
    state.ray["placement groups"][-1].update(state="CREATED", is_detached=True)


def dead(state: State) -> None:
    state.ray["nodes"][2] |= {"state": "DEAD", "state_message": "health check failed"}
    state.probes.pop()


def lost(state: State) -> None:
    state.ray["nodes"].pop()
    state.probes.pop()


def unanswered(reason: str) -> Any:
    return lambda state: (state.unknown.update(ray=reason), state.absent.update(probes="no Ray"))


@planting
def on_gpus(state: State, /, number: int, **update: Any) -> None:
    first, *rest = state.probes[number].gpus
    change_probe(state, number, gpus=[first.model_copy(update=update), *rest])


@planting
def on_nics(state: State, /, number: int, **update: Any) -> None:
    first, *rest = state.probes[number].nics
    change_probe(state, number, nics=[first.model_copy(update=update), *rest])


def probed(number: int = 1, **update: Any) -> Any:
    return lambda state: change_probe(state, number, **update)


def versions(state: State, number: int, **update: str | None) -> None:
    change_probe(state, number, versions=state.probes[number].versions | update)


def no_torch(state: State) -> None:
    for number in (0, 1, 2):
        versions(state, number, torch=None)


FAULTS = [
    Fault(
        "gpus",
        "node gpu-1",
        "Ray's pod sees 7 of 8 GPUs",
        "nvidia-smi -L",
        GKE,
        lambda s: change_probe(s, 1, gpus=s.probes[1].gpus[1:]),
    ),
    Fault("ray", "Ray of local", "Ray does not answer", "make up", LOCAL, unanswered("connection refused")),
    Fault(
        "ray",
        "Ray of local",
        "rejects the token",
        "make up",
        LOCAL,
        unanswered("the token does not match this cluster"),
    ),
    Fault(
        "token",
        "Ray of local",
        "accepts jobs without its token",
        "authOptions",
        LOCAL,
        lambda s: s.ray.update({"any token": True}),
    ),
    Fault("ray-nodes", "worker-2", "1 of 2 workers are alive", "make up repairs", LOCAL, dead),
    Fault("ray-nodes", "pod gke-ray-worker-2", "its node is not in the Ray cluster", "logs POD", GKE, lost),
    Fault(
        "versions",
        "head",
        "Ray differs from the stack's",
        "ray.version",
        GKE,
        lambda s: s.ray["version"].update(ray_version="2.1.0"),
    ),
    Fault(
        "head",
        "head 127.0.0.2",
        "its memory is nearly full",
        "rdma-ray list",
        LOCAL,
        lambda s: s.ray["summary"][0].update(mem=[2**34, 2**29, 96.9]),
    ),
    Fault(
        "head",
        "head 127.0.0.2",
        "its disk is full",
        "old files",
        LOCAL,
        lambda s: s.ray["summary"][0]["disk"]["/"].update(percent=97.0),
    ),
    Fault(
        "requests",
        "placement group 29b5dad8065d of job nccl-1",
        "no node has 1 GPU",
        "rdma-ray stop",
        LOCAL,
        group("INFEASIBLE", {"GPU": 1.0}),
    ),
    Fault(
        "requests",
        "placement group 29b5dad8065d of job nccl-1",
        "it can never fit: it needs 6 CPU in all; the nodes have 4",
        "rdma-ray stop",
        LOCAL,
        group("PENDING", {"CPU": 2.0}, 3, age_s=5),
    ),
    Fault(
        "requests",
        "placement group 29b5dad8065d of job nccl-1",
        "it can never fit: no node has room for all bundles",
        "rdma-ray stop",
        LOCAL,
        group("INFEASIBLE", {"CPU": 1.0}, 3, age_s=5),
    ),
    Fault(
        "requests",
        "placement group 29b5dad8065d of job nccl-1",
        "there are 2 at most",
        "rdma-ray stop",
        LOCAL,
        group("PENDING", {"CPU": 1.0}, 3),
    ),
    Fault(
        "requests",
        "placement group 29b5dad8065d of job nccl-1",
        "waits for others to release",
        "rdma-ray stop",
        LOCAL,
        group("PENDING", {"CPU": 1.0}),
    ),
    Fault(
        "requests",
        "tasks or actors",
        "no node has 64 CPU",
        "rdma-ray stop",
        LOCAL,
        lambda s: s.ray.update(demands=["{'CPU': 64.0}: 3+ pending tasks/actors"]),
    ),
    Fault("detached", "job nccl-1", "it is over, and", "stop ID --detached", LOCAL, detached),
    Fault(
        "jobs",
        "job nccl-1",
        "pending for 20 min",
        "rdma-ray stop",
        LOCAL,
        job(status="PENDING", start_time=int((NOW - 1200) * 1000)),
    ),
    Fault(
        "idle-gpus",
        "Ray node 10.0.0.3, Ray node 10.0.0.4",
        "8 GPUs without work, at $84.81 an hour by list prices",
        "make down",
        GKE,
        lambda s: idle(s, 2 * HOUR),
    ),
    Fault("stale-cluster", "cluster local", "it is not used", "make down", LOCAL, lambda s: idle(s, 4 * DAY)),
    Fault(
        "probe",
        "Ray node 127.0.0.4",
        "does not run a task",
        "rdma-ray status",
        LOCAL,
        lambda s: s.unknown.update({"probe of 127.0.0.4": "no answer"}),
    ),
    Fault("image", f"{FIRST}, Ray node 10.0.0.4 (host-2)", "the image lacks torch", "image build", EKS, no_torch),
    Fault("image", FIRST, "lacks NCCL's network plugin", "image build", EKS, probed(plugin=None)),
    Fault("image", FIRST, "lacks libnl-3.so.200", "image build", GKE, probed(libraries={"libnl-route-3.so.200": True})),
    Fault(
        "packages", "Ray nodes", "different versions of torch", "digest", GKE, lambda s: versions(s, 1, torch="2.14.0")
    ),
    Fault(
        "packages", "Ray nodes", "different versions of nccl", "digest", GKE, lambda s: versions(s, 1, nccl="2.28.3")
    ),
    Fault(
        "plugin", "Ray nodes", "different builds", "delete the node", GKE, probed(plugin="libnccl-net.so 000000000000")
    ),
    Fault("shm", FIRST, "/dev/shm is too small", "emptyDir", EKS, probed(shm=64 * 2**20)),
    Fault("memlock", FIRST, "locked memory is too low", "NodeConfig", EKS, probed(memlock=8 * 2**20)),
    Fault("dns", FIRST, "does not resolve", "kube-dns", GKE, probed(head_error="Name or service not known")),
    Fault("drivers", "Ray nodes", "different GPU drivers", "older nodes", GKE, probed(driver="570.0")),
    Fault("drivers", "Ray nodes", "different firmware", "older nodes", GKE, on_nics(1, firmware="28.39.0")),
    Fault(
        "nic-ports",
        FIRST,
        "15 of 16 RDMA NICs",
        "delete the node",
        EKS,
        lambda s: change_probe(s, 1, nics=s.probes[1].nics[1:]),
    ),
    Fault("nic-ports", FIRST, "a port of an RDMA NIC is down", "rdma link", GKE, on_nics(1, state="DOWN")),
    Fault("nic-ports", FIRST, "below 400 Gbit/s", "rdma link", GKE, on_nics(1, rate="200 Gb/sec (4X HDR)")),
    Fault("gpu-memory", FIRST, "uncorrected memory errors", "reset the GPU", GKE, on_gpus(1, ecc_uncorrected=2)),
    Fault("gpu-memory", FIRST, "waits for a reset", "reset the GPU", GKE, on_gpus(1, remapped=[0, 1, 1, 0])),
    Fault("gpu-memory", FIRST, "has failed", "new GPU", GKE, on_gpus(1, remapped=[0, 9, 0, 1])),
    Fault(
        "gpu-clocks", FIRST, "its GPUs are slowed down", "nvidia-smi", GKE, on_gpus(1, reasons=["HwThermalSlowdown"])
    ),
    Fault("gpu-clocks", FIRST, "its GPUs are slowed down", "nvidia-smi", GKE, on_gpus(1, power_limit_w=500.0)),
    Fault("gpu-clocks", FIRST, "its GPUs are slowed down", "nvidia-smi", GKE, on_gpus(1, sm_max_mhz=1410)),
    Fault("clock-skew", FIRST, "its clock is wrong", "chronyc", GKE, probed(started=NOW + 60, ended=NOW + 60.1)),
    Fault("clock-skew", FIRST, "its clock is wrong", "chronyc", GKE, probed(started=NOW - 60, ended=NOW - 59.9)),
]
