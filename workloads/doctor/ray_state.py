"""Checks of Ray: that it answers and requires its token, its nodes, versions, pending requests, and unused clusters."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from typing import Any

from infra.catalog.names import GPU, NODE_TYPE
from infra.catalog.pins import RAY_IN
from infra.terminal import dollars
from workloads.client.placement_groups import WAITING, Holder, Room, holders, is_infeasible, shapes_of, shown, total
from workloads.doctor.check import Problem, check
from workloads.doctor.machines import gpu_nodes
from workloads.doctor.objects import is_true, labels, name_of
from workloads.doctor.pods import PENDING_S
from workloads.doctor.state import WORKLOAD, State
from workloads.doctor.workload import workload_of

Json = dict[str, Any]
IDLE_S = 1800
"""Seconds without work after which GPU nodes are reported."""
LATE_S = 600
"""Seconds that Ray's autoscaler and the cloud have to remove nodes after their idle timeout."""
STALE_S = 3 * 86400
"""Seconds without a job after which a whole cluster is reported."""
FULL = 90  # percent of the head's memory, from which a job's driver may be killed
DISK_FULL = 95
"""Disk usage in percent from which Ray refuses to write objects (RAY_local_fs_capacity_threshold, 0.95; Ray 2.60)."""


def jobs_of(state: State) -> list[Json]:
    """Return the jobs of users, without the probes of this command."""
    return [
        job
        for job in state.ray.get("jobs") or []
        if not isinstance(its := job.get("metadata"), dict) or its.get("workload") != WORKLOAD
    ]


def alive(state: State) -> list[Json]:
    """Return Ray's live nodes without the head."""
    return [node for node in state.ray["nodes"] if node["state"] == "ALIVE" and not node["is_head_node"]]


def waiting_pods(state: State) -> bool:
    """Return whether a pod of Ray is not ready: it explains what Ray waits for."""
    return any(not is_true(pod, "Ready") for pod in state.objects("pods") if NODE_TYPE in labels(pod))


@check("ray", cure=f"make up; on Kubernetes: kubectl -n ray logs -l {NODE_TYPE}=head")
def ray(state: State) -> Iterator[Problem]:
    """Ray does not answer, or rejects the token of the stack's outputs."""
    if (reason := state.unknown.get("ray")) is not None:
        rejected = "token" in reason
        cause = "Ray rejects the token: the outputs are from another cluster" if rejected else "Ray does not answer"
        yield Problem(f"Ray of {state.outputs.ray.cluster}", cause, reason)


@check(
    "token",
    "ray any token",
    cure="make up sets authOptions.mode: token; then restart the cluster: anyone at port 8265 can run code on it",
)
def token(state: State) -> Iterator[Problem]:
    """Ray answers requests without its token."""
    if state.ray["any token"]:
        text = "GET /api/jobs/ with another token: HTTP 200"
        yield Problem(f"Ray of {state.outputs.ray.cluster}", "it accepts jobs without its token", text)


@check(
    "ray-nodes",
    "ray nodes",
    cure="make up repairs a local cluster; on Kubernetes: kubectl -n ray logs POD of the worker",
)
def ray_nodes(state: State) -> Iterator[Problem]:
    """A node that should be in the Ray cluster is not."""
    ips = {node["node_ip"] for node in alive(state)}
    for pod in state.objects("pods"):
        address = (pod.get("status") or {}).get("podIP")
        if labels(pod).get(NODE_TYPE) == "worker" and is_true(pod, "Ready") and address not in ips:
            yield Problem(
                f"pod {name_of(pod)}", "it is ready, but its node is not in the Ray cluster", f"no live node {address}"
            )
    fewest = state.outputs.nodes.min
    if state.outputs.target == "local" and len(ips) < fewest:
        dead = [node for node in state.ray["nodes"] if node["state"] != "ALIVE"]
        text = "; ".join(
            f"{node['node_name'] or node['node_ip']} {node['state']}: {node.get('state_message')}" for node in dead
        )
        missing = ", ".join(dict.fromkeys(str(node["node_name"] or node["node_ip"]) for node in dead)) or "workers"
        yield Problem(missing, f"{len(ips)} of {fewest} workers are alive", text)


@check(
    "versions", "ray version", cure="set ray.version and ray.image to one version of Ray (images/ docs), then make up"
)
def versions(state: State) -> Iterator[Problem]:
    """The versions of Ray differ between the client, the stack's outputs and the head."""
    said, runs = state.outputs.ray.version, str(state.ray["version"]["ray_version"])
    if said != runs:
        text = f"outputs: {said}; head: {runs}"
        yield Problem("head", "the image's Ray differs from the stack's ray.version", text)
    elif state.client not in (None, runs) and runs not in RAY_IN.values():
        text = f"client: {state.client}; cluster: {runs}"
        cure = "jobs work; a driver that connects with ray:// needs the same version on both sides"
        yield Problem("client", "this machine's Ray differs from the cluster's", text, cure, "warning")


@check(
    "head",
    "ray summary",
    cure="end drivers and actors that hold memory (`rdma-ray list`, `stop`), or delete old files under /tmp/ray",
)
def head(state: State) -> Iterator[Problem]:
    """The head has little memory or disk left."""
    for node in state.ray["summary"]:
        if not (node.get("raylet") or {}).get("isHeadNode"):
            continue
        memory, disks = node.get("mem") or [0, 0, 0], node.get("disk") or {}
        disk = disks.get(node["raylet"].get("tempDir")) or disks.get("/")
        if memory[2] >= FULL:
            text = f"{memory[2]:.0f} % of {memory[0] / 2**30:.0f} GiB in use"
            yield Problem(f"head {node['ip']}", "its memory is nearly full", text)
        if disk and disk["percent"] >= DISK_FULL:
            yield Problem(
                f"head {node['ip']}",
                "its disk is full: Ray refuses to write objects",
                f"{disk['percent']:.0f} % in use",
            )


@check(
    "requests",
    "ray placement groups",
    "ray nodes",
    "ray jobs",
    "ray status",
    cure="request no more than a node has (`rdma-ray status`), or stop the job: rdma-ray stop ID",
)
def requests(state: State) -> Iterator[Problem]:
    """A placement group, task or actor waits for resources that no node has, or for others' work to end."""
    if waiting_pods(state):
        return  # nodes are on their way, or the pods' check says why not
    submissions = {job.get("job_id"): job.get("submission_id") for job in state.ray["jobs"]}
    nodes = state.outputs.nodes
    room = Room.of(state.ray["nodes"], nodes)
    most = max(len(alive(state)), nodes.max + sum(other.max for other in nodes.others))
    for group in state.ray["placement groups"]:
        if group["state"] not in WAITING:
            continue
        stats = group.get("stats") or {}
        age = state.time - int(stats.get("creation_request_received_ns") or 0) / 1e9
        shapes, infeasible = shapes_of(group), is_infeasible(group)
        if age < PENDING_S and room.never(shapes, infeasible) is None:
            continue
        job = submissions.get(group.get("creator_job_id")) or group.get("creator_job_id")
        where = f"placement group {group['name'] or group['placement_group_id'][:12]} of job {job}"
        text = f"{stats.get('scheduling_state')} for {age / 60:.0f} min: {shown(shapes)}"
        yield Problem(where, _unmet(room, shapes, infeasible, most), text)
    for line in state.ray.get("demands") or []:
        shape, _, count = line.rpartition(": ")
        wanted = literal_eval(shape) if re.fullmatch(r"\{[^{}]*\}", shape) else {}
        if wanted and not room.fits(wanted):
            yield Problem("tasks or actors", f"no node has {shown([wanted])}", f"pending: {count}")


def _unmet(room: Room, shapes: list[Json], infeasible: bool, most: int) -> str:
    if reason := room.never(shapes, infeasible):
        return f"it can never fit: {reason}"
    if len(shapes) > most:
        return f"its {len(shapes)} bundles may need as many nodes; there are {most} at most"
    return "waits for others to release their resources"


@check(
    "detached",
    "ray placement groups",
    "ray actors",
    "ray jobs",
    cure="rdma-ray stop ID --detached, if nothing uses them",
)
def detached(state: State) -> Iterator[Problem]:
    """Detached actors or placement groups of a job that is over hold CPUs or GPUs."""
    over = {job.get("job_id"): job for job in state.ray["jobs"] if job["status"] not in ("PENDING", "RUNNING")}
    found: dict[str, list[Holder]] = {}
    for holder in holders(state.ray["placement groups"], state.ray["actors"]):
        if holder.outlives_its_job and holder.job in over:
            found.setdefault(holder.job, []).append(holder)
    for driver, its in found.items():
        what = shown([total(holder.amounts for holder in its)])
        where, seen = f"job {over[driver].get('submission_id') or driver}", "; ".join(map(str, its))
        cause = f"it is over, and its detached actors and placement groups hold {what}"
        yield Problem(where, cause, seen, severity="warning")


@check("jobs", "ray jobs", cure="rdma-ray logs ID; stop it: rdma-ray stop ID")
def jobs(state: State) -> Iterator[Problem]:
    """A job has not started although it was submitted long ago."""
    for job in jobs_of(state):
        age = state.time - (job.get("start_time") or state.time * 1000) / 1000
        if job["status"] == "PENDING" and age > LATE_S and not waiting_pods(state):
            text = str(job.get("message") or "no message")
            yield Problem(f"job {job.get('submission_id')}", f"pending for {age / 60:.0f} min", text)


def last_work(state: State) -> float | None:
    """Return when the last job ended, in seconds since 1970; None while one runs, or an actor holds a GPU."""
    if any(job["status"] in ("PENDING", "RUNNING") for job in jobs_of(state)):
        return None
    if any("GPU" in str(actor.get("required_resources")) for actor in state.ray.get("actors") or []):
        return None
    started = [
        node["start_time_ms"] for node in state.ray["nodes"] if node["is_head_node"] and node["state"] == "ALIVE"
    ]
    return max([*started, *(job.get("end_time") or 0 for job in jobs_of(state))], default=state.time * 1000) / 1000


@check(
    "idle-gpus",
    "ray jobs",
    "ray nodes",
    "ray actors",
    cure="make down, or set nodes.min to 0 and ray.idleMinutes (docs/bills.md)",
)
def idle_gpus(state: State) -> Iterator[Problem]:
    """GPU nodes cost money without work."""
    since, workload = last_work(state), workload_of(state)
    if since is None:
        return
    scaler = ((workload or {}).get("spec") or {}).get("autoscalerOptions") or {}
    limit = max(IDLE_S, int(scaler.get("idleTimeoutSeconds") or 0) + LATE_S)
    for node in alive(state):
        idle = state.time - max(since, node["start_time_ms"] / 1000)
        if node["resources_total"].get("GPU") and idle > limit:
            gpus = node["resources_total"]["GPU"]
            node_cost = state.outputs.cost and state.outputs.cost.node
            price = f", at {dollars(node_cost)} an hour by list prices" if node_cost else ""
            text = f"no job, and no actor with a GPU, for {idle / 60:.0f} min"
            yield Problem(f"Ray node {node['node_ip']}", f"{gpus:g} GPUs without work{price}", text, severity="warning")


@check(
    "unused-nodes",
    "nodes",
    "pods",
    cure="kubectl -n kube-system get events: the autoscaler says why it keeps the node; nodes.min keeps it too",
)
def unused_nodes(state: State) -> Iterator[Problem]:
    """A GPU node has no pod of Ray, and costs money."""
    used = {pod["spec"].get("nodeName") for pod in state.objects("pods")}
    extra = [node for node in gpu_nodes(state) if name_of(node) not in used]
    for node in extra[state.outputs.nodes.min :]:
        age = state.age(node["metadata"].get("creationTimestamp"))
        if age > IDLE_S:
            text = f"it is {age / 60:.0f} min old; allocatable {GPU}: {node['status']['allocatable'].get(GPU, 0)}"
            yield Problem(f"node {name_of(node)}", "a GPU node without a pod of Ray", text, severity="warning")


@check("stale-cluster", "ray jobs", "ray nodes", "ray actors", cure="make down, if it is not needed")
def stale_cluster(state: State) -> Iterator[Problem]:
    """The cluster has run no job for days."""
    since = last_work(state)
    if (
        since is not None
        and state.time - since > STALE_S
        and not any(node["resources_total"].get("GPU") for node in alive(state))
    ):
        text = f"the last job ended, or the head started, {(state.time - since) / 86400:.0f} days ago"
        yield Problem(f"cluster {state.outputs.ray.cluster}", "it is not used", text, severity="warning")
