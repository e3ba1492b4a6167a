"""Ray's head on the first node: its ports, who has joined, and the outputs that describe the cluster."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from infra import listener
from infra.kubernetes.indexed_job_pod.part import IMPORT_RAY
from workloads.slurm.facts import drivers, free_port

ANSWER_S = 10.0
START = f"{IMPORT_RAY}ray.get_ray_client_dependency_error = lambda: 'off'; ray.main()"
"""The program `ray` for `start`, without Ray's client server (`ray://`), which no option turns off. It would be one
more open port. Where Ray's dashboard and node take more than 30 s to start, as on a busy machine, it ends the node
(ray: scripts/scripts.py, util/client/server/proxier.py, 2.60, read 2026-11)."""


class Cluster:
    """Head on free ports of an address.

    Args:
        nodes: Address by name of each node.
        place: Folder of Ray's sockets and logs, private to the user.
    """

    def __init__(self, address: str, token: str, nodes: Mapping[str, str], place: Path) -> None:
        self._token, self._nodes = token, nodes
        self._written = place / "ray_current_cluster"
        self._written.unlink(missing_ok=True)  # of an attempt before
        dashboard = free_port()
        self.jobs = f"http://{address}:{dashboard}"
        # The control store binds a port that the system chooses: whoever binds a port before Ray does, which every user
        # reads in the command line, gets the token from Ray's other processes.
        self.arguments = ["--head", "--port=0", f"--dashboard-host={address}", f"--dashboard-port={dashboard}"]
        # Without --include-dashboard, Ray goes on when its dashboard does not start.
        self.arguments.append("--include-dashboard=true")
        # Their defaults are fixed ports.
        self.variables = {name: str(free_port()) for name in ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT")}

    @property
    def gcs(self) -> str:
        """`HOST:PORT` of the control store, which a started head writes (Ray 2.60: scripts/scripts.py); else empty."""
        return self._written.read_text().strip() if self._written.exists() else ""

    def alive(self) -> dict[str, Mapping[str, float]]:
        """Return the resources by name of the nodes that Ray reports as alive; none while it starts or does not answer.

        Nothing is sent to another user who has taken the dashboard's port before Ray, which ends then.
        """
        return {row["node_name"]: row["resources_total"] for row in self._rows()} if self.gcs else {}

    def outputs(
        self, folder: Path, alive: Mapping[str, Mapping[str, float]], machine: str, known: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the outputs of `infra/outputs.py`, with the resources of the smallest node that is `alive`.

        Args:
            machine: Machine type of the nodes; "" if it is not known.
            known: Fabric of this type; empty if it is not known.
        """
        cpus, gpus = (min(int(each.get(kind, 0)) for each in alive.values()) for kind in ("CPU", "GPU"))
        ray = {
            "cluster": folder.name,
            "mode": "cluster",
            "version": version("ray"),
            "dashboard": self.jobs,
            "jobs": self.jobs,
            "client": "",
            "token": self._token,
        }
        nodes = len(self._nodes)
        return outputs(
            nodes, cpus=cpus, gpus=gpus, fabric=known or fabric_of(gpus, drivers()), machine=machine, ray=ray,
            storage=str(folder.parent),
        )  # fmt: skip

    def _rows(self) -> list[dict[str, Any]]:
        try:
            _, answer = listener.get(f"{self.jobs}/api/v0/nodes?detail=1&limit=10000", self._token, ANSWER_S)
            rows = json.loads(answer)["data"]["result"]["result"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [row for row in rows if row["state"] == "ALIVE"]


def outputs(
    nodes: int,
    *,
    cpus: int,
    gpus: int,
    fabric: Mapping[str, Any],
    machine: str,
    ray: Mapping[str, str],
    storage: str | None,
) -> dict[str, Any]:
    """Return the outputs of `infra/outputs.py` of an allocation, with the CPUs and GPUs of each node."""
    return {
        "target": "slurm",
        "machine": machine or None,
        "nodes": {"min": nodes, "max": nodes, "gpusPerNode": gpus, "cpusPerNode": cpus},
        "fabric": dict(fabric),
        "ray": dict(ray),
        "storage": {"path": storage},
    }


def fabric_of(gpus: int, drivers: Collection[str]) -> dict[str, Any]:
    """Return the fabric of nodes of an unknown type, by the drivers of a node's RDMA NICs. Only GPUs use these."""
    transport = "efa" if gpus and "efa" in drivers else "ib" if gpus and drivers else "socket"
    return {"transport": transport, "nics": None, "gbpsPerNic": None, "floors": []}


def entry_environment(described: Mapping[str, Any], gcs: str, place: Path) -> dict[str, str]:
    """Return the variables of the command on the first node: the cluster, without its token, and `rdma-ray`."""
    program = place / "bin" / "rdma-ray"
    program.parent.mkdir()
    # With -P, Python does not find this package in the folder where the command stands.
    package = shlex.quote(str(Path(__file__).resolve().parents[2]))
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={package}${{PYTHONPATH:+:$PYTHONPATH}} "
        f'exec {shlex.quote(sys.executable)} -P -m workloads.cli "$@"\n'
    )
    program.chmod(0o700)
    without_token = {**described, "ray": {**described["ray"], "token": ""}}
    path = os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"RDMA_RAY_STACK": json.dumps(without_token), "RAY_ADDRESS": gcs, "PATH": path}
