"""Pulumi dynamic providers for the head and the worker nodes of the local cluster.

Pulumi pickles them by name, so the state contains a reference to these classes and not their code: the current version
of this file refreshes and destroys stacks of earlier versions.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    ResourceProvider,
    UpdateResult,
)

from infra.catalog.names import DASHBOARD_PORT
from infra.local import loopback
from infra.local import node as ray_node
from infra.local.folder import ClusterFolder
from infra.local.loopback import free_ports, node_address
from infra.local.node import LocalNode

Properties = dict[str, Any]


class _NodeProvider(ResourceProvider):
    """Provider of a node: it reads a node by its guard, and ends it by its identity."""

    # The reference to the class is not secret; as a secret it would hide every change in previews.
    serialize_as_secret_always = False

    def read(self, id_: str, props: Properties) -> ReadResult:
        """Report a dead node as deleted, so that `refresh` shows the drift and the next `up` recreates the node."""
        return ReadResult(id_, props) if _node(id_, props).guard() else ReadResult("", {})

    def delete(self, id_: str, props: Properties) -> None:
        """End the processes of this node."""
        ray_node.end(_folder(props), props["name"], _node(id_, props))


class RayHeadProvider(_NodeProvider):
    """The head node, without CPUs: Ray's control store, dashboard, Jobs API and client server.

    Inputs: folder, name, rayVersion, token (secret or None). Outputs: the inputs, and address, dashboard, jobs,
    client (addresses), token, storage, pid, started.
    """

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Reject a Ray version that this environment cannot start."""
        installed = loopback.ray_version()
        if installed == news["rayVersion"]:
            return CheckResult(news, [])
        fix = "run 'make setup', which installs what the local stack needs"
        if installed:
            fix = f"set ray.version to {installed}, or change the pin in pyproject.toml and run 'make lock'"
        environment = f"the environment has Ray {installed}" if installed else "Ray is not installed"
        reason = f"ray.version is {news['rayVersion']}, but {environment}; {fix}"
        return CheckResult(news, [CheckFailure("rayVersion", reason)])

    def diff(self, _id: str, olds: Properties, news: Properties) -> DiffResult:
        """Replace the head, and with it the whole cluster, on every change."""
        changed = [key for key in ("folder", "name", "rayVersion") if olds.get(key) != news.get(key)]
        if news.get("token") is not None and news["token"] != olds.get("token"):
            changed.append("token")
        return DiffResult(changes=bool(changed), replaces=changed, delete_before_replace=True)

    def create(self, props: Properties) -> CreateResult:
        """Start the head on free ports and wait until its Jobs API answers only to the token."""
        folder = _folder(props)
        folder.make()
        token = props.get("token") or secrets.token_hex(32)
        folder.write_token(token)
        try:
            with folder.start_alone():
                return _start_head(folder, {**props, "token": token})
        except BaseException:
            folder.discard()
            raise

    def delete(self, id_: str, props: Properties) -> None:
        """End the head and every other process of the cluster, and remove the cluster's folder."""
        super().delete(id_, props)
        _folder(props).remove()


class RayWorkerProvider(_NodeProvider):
    """A worker node. Inputs: folder, name, position (1…), cpus, headId, headAddress, jobs. Outputs also: address,
    pid, started.
    """

    def diff(self, _id: str, olds: Properties, news: Properties) -> DiffResult:
        """Replace the node with its head; restart it in place on another number of CPUs."""
        identity = ("folder", "name", "position", "headId", "headAddress")
        replaces = [key for key in identity if olds.get(key) != news.get(key)]
        changed = bool(replaces) or olds.get("cpus") != news.get("cpus")
        return DiffResult(changes=changed, replaces=replaces, delete_before_replace=True)

    def create(self, props: Properties) -> CreateResult:
        """Start the node and wait until the head reports it as alive."""
        return _start_worker(props)

    def update(self, id_: str, _olds: Properties, news: Properties) -> UpdateResult:
        """Restart the node with its new number of CPUs; it keeps its id, and the cluster its head."""
        return UpdateResult(_start_worker(news, node_id=id_).outs)


def _start_head(folder: ClusterFolder, props: Properties) -> CreateResult:
    name, token, address = props["name"], props["token"], node_address(0)
    dashboard, client, agent, autoscaler_metrics, dashboard_metrics = free_ports(5, preferred=DASHBOARD_PORT)
    jobs = f"http://127.0.0.1:{dashboard}"
    node = ray_node.start(
        folder,
        name,
        address=address,
        agent_port=agent,
        ray_arguments=[
            "--head",
            # The control store binds a port that the system chooses: whoever binds a port before Ray does, which every
            # user reads in the command line, gets the token from Ray's other processes.
            "--port=0",
            "--num-cpus=0",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--ray-client-server-port={client}",
        ],
        # The defaults are fixed ports, which a second stack on this machine could not bind.
        environment={
            "AUTOSCALER_METRIC_PORT": str(autoscaler_metrics),
            "DASHBOARD_METRIC_PORT": str(dashboard_metrics),
        },
        ready=lambda: (
            loopback.requires_token(jobs, token)
            and name in loopback.alive_nodes(jobs, token)
            and loopback.listens(address, client)
            and folder.head_address(name) is not None
        ),
    )
    reached = {
        "address": folder.head_address(name),
        "dashboard": jobs,
        "jobs": jobs,
        "client": f"ray://{address}:{client}",
    }
    files = {"tokenFile": str(folder.token), "storage": str(folder.storage)}
    return CreateResult(node.id, {**props, **reached, **files, "pid": node.pid, "started": node.started})


def _start_worker(props: Properties, *, node_id: str | None = None) -> CreateResult:
    folder, name, jobs, cpus = _folder(props), props["name"], props["jobs"], int(props["cpus"])
    address = node_address(int(props["position"]))
    token = folder.read_token()
    before = loopback.alive_nodes(jobs, token).get(name)
    # Ray sends the token to whoever listens there.
    host, _, port = props["headAddress"].rpartition(":")
    if not loopback.listens(host, int(port)):
        raise ray_node.NodeError(f"Ray's head does not answer at {props['headAddress']}; run `make up` again")
    node = ray_node.start(
        folder,
        name,
        address=address,
        agent_port=free_ports(1)[0],
        ray_arguments=[f"--address={props['headAddress']}", f"--num-cpus={cpus}"],
        # Without it, parts of Ray connect to any Ray on this machine, and there may be several.
        environment={"RAY_ADDRESS": props["headAddress"]},
        # Ray reports a killed node as alive for a while, so wait for a new node id.
        ready=lambda: loopback.alive_nodes(jobs, token).get(name, before) != before,
        node_id=node_id,
    )
    return CreateResult(node.id, {**props, "cpus": cpus, "address": address, "pid": node.pid, "started": node.started})


def _folder(props: Properties) -> ClusterFolder:
    return ClusterFolder(Path(props["folder"]))


def _node(id_: str, props: Properties) -> LocalNode:
    return LocalNode(id_, int(props["pid"]), float(props["started"]))
