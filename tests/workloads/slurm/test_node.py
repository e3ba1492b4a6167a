"""What a node takes from Slurm and from its hardware, and how nodes notice each other."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest
from ray.scripts import scripts

from infra.kubernetes.indexed_job_pod.link import Members
from infra.kubernetes.indexed_job_pod.part import OverError
from infra.outputs import Outputs
from tests.other_user import OtherUser, needs_root
from workloads.slurm import facts, head, node
from workloads.slurm.script import known_fabric


@pytest.mark.parametrize(
    ("slurm", "arguments"),
    [
        ({"SLURM_CPUS_ON_NODE": "6"}, ["--num-cpus=6", "--num-gpus=0"]),
        ({"SLURM_CPUS_ON_NODE": "6", "CUDA_VISIBLE_DEVICES": "3,7"}, ["--num-cpus=6", "--num-gpus=2"]),
        (
            {"SLURM_CPUS_ON_NODE": "6", "SLURM_GPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "0"},
            ["--num-cpus=6", "--num-gpus=8"],
        ),
        (
            {"SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_CPU": "500"},
            ["--num-cpus=2", "--num-gpus=0", "--object-store-memory=314572800", "--memory=734003200"],
        ),
    ],
)
def test_ray_gets_what_slurm_gave(slurm: dict[str, str], arguments: list[str]) -> None:
    assert facts.resources(slurm) == arguments


def test_environment_keeps_the_users_and_has_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    inherited = {"HF_HOME": "/x", "RAY_ADDRESS": "other", "PULUMI_ACCESS_TOKEN": "p", "RDMA_RAY_OUTPUTS": "o"} | {
        "SLURM_NTASKS": "2",
        "SLURM_JOB_ID": "7",
    }
    found = facts.environment(inherited, tmp_path, tmp_path / "place")
    assert (found["HF_HOME"], found["SLURM_JOB_ID"]) == ("/x", "7")
    assert {"SLURM_NTASKS", "RAY_ADDRESS", "PULUMI_ACCESS_TOKEN", "RDMA_RAY_OUTPUTS"}.isdisjoint(found)
    assert (found["RAY_AUTH_MODE"], found["RAY_AUTH_TOKEN_PATH"]) == ("token", str(tmp_path / "token"))
    assert "s3cret" not in str(found)
    assert found["TMPDIR"] == str(tmp_path / "place" / "tmp")
    assert facts.environment({"TMPDIR": "/scratch/7"}, tmp_path, tmp_path / "place")["TMPDIR"] == "/scratch/7"
    assert found["PATH"].startswith(str(Path(sys.executable).parent))


@pytest.mark.parametrize(("driver", "variables"), [("efa", {"FI_EFA_USE_HUGE_PAGE": "0"}), ("mlx5_core", {}), ("", {})])
def test_fabric_is_detected(
    driver: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if driver:
        (tmp_path / "drivers" / driver).mkdir(parents=True)
        (tmp_path / "nics" / "rdmap0" / "device").mkdir(parents=True)
        (tmp_path / "nics" / "rdmap0" / "device" / "driver").symlink_to(tmp_path / "drivers" / driver)
    assert facts.fabric_environment(tmp_path / "nics") == variables
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    transport = {"efa": "efa", "mlx5_core": "ib", "": "socket"}[driver]
    found = facts.drivers(tmp_path / "nics")
    assert [head.fabric_of(gpus, found)["transport"] for gpus in (8, 0)] == [transport, "socket"]
    said = facts.warnings({}, tmp_path / "nics")
    assert [line.partition(",")[0] for line in said] == (["locked memory is limited to 64 KiB"] if driver else [])


@pytest.mark.parametrize(("visible", "warned"), [({}, True), ({"CUDA_VISIBLE_DEVICES": "1,3"}, False)])
def test_gpus_that_slurm_only_counts_are_reported(visible: dict[str, str], warned: bool, tmp_path: Path) -> None:
    said = facts.warnings({"SLURM_GPUS_ON_NODE": "2"} | visible, tmp_path)
    assert [line.partition(":")[0] for line in said] == [
        "Slurm assigns 2 GPUs without naming them, so another job may use the same ones"
    ] * warned
    assert facts.warnings({}, tmp_path) == []


@pytest.mark.parametrize(("mode", "warned"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_tmp_where_others_can_replace_files_is_reported(mode: int, warned: bool, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    said = facts.warnings({}, tmp_path / "nics", tmp_path)
    assert [line.partition(",")[0] for line in said] == [f"{tmp_path} has no sticky bit"] * warned


def test_outputs_fit_the_contract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The smallest node counts, and the command's description has no token."""
    (tmp_path / "ray_current_cluster").write_text("10.0.0.1:1")
    cluster = head.Cluster("10.0.0.1", "s3cret", {"n0": "10.0.0.1", "n1": "10.0.0.2"}, tmp_path)
    rows = [
        {"node_name": name, "resources_total": {"CPU": cpus, "GPU": 8.0}} for name, cpus in (("n0", 4.0), ("n1", 3.0))
    ]
    monkeypatch.setattr(cluster, "_rows", lambda: rows)
    assert cluster.alive() == {}, "the address is that of an attempt before"
    (tmp_path / "ray_current_cluster").write_text("10.0.0.1:33333")
    alive = cluster.alive()
    assert alive.keys() == {"n0", "n1"}
    monkeypatch.setattr(cluster, "_rows", list)  # the dashboard is too busy to answer again
    found = cluster.outputs(tmp_path / "job-7", alive, machine="", known={})
    outputs = Outputs.model_validate(found)
    assert (outputs.nodes.cpus_per_node, outputs.nodes.gpus_per_node, outputs.nodes.default_gang) == (3, 8, 2)
    assert outputs.storage is not None
    assert outputs.storage.path == str(tmp_path)
    fabric = known_fabric("p5en.48xlarge")
    known = Outputs.model_validate(cluster.outputs(tmp_path / "job-7", alive, machine="p5en.48xlarge", known=fabric))
    assert (known.machine, known.fabric.transport, known.fabric.nics) == ("p5en.48xlarge", "efa", 16)
    (tmp_path / "place").mkdir()
    variables = head.entry_environment(found, cluster.gcs, tmp_path / "place")
    assert "s3cret" not in str(variables)
    assert variables["RAY_ADDRESS"] == "10.0.0.1:33333"
    assert Outputs.model_validate_json(variables["RDMA_RAY_STACK"]).ray.jobs == outputs.ray.jobs
    done = subprocess.run(["rdma-ray", "slurm", "--help"], env=os.environ | variables, capture_output=True, text=True)
    assert "Run a Ray cluster on an allocation of Slurm." in done.stdout, done.stderr


@needs_root
def test_another_user_at_the_ports_of_a_head_gets_nothing(tmp_path: Path) -> None:
    """The dashboard's port; that of the control store is in no command line."""
    cluster = head.Cluster("127.0.0.1", "s3cret", {"n0": "127.0.0.1"}, tmp_path)
    (tmp_path / "ray_current_cluster").write_text("127.0.0.1:33333")
    assert [each for each in cluster.arguments if each.startswith("--port")] == ["--port=0"]
    with OtherUser(("127.0.0.1", int(cluster.jobs.rpartition(":")[2]))) as other:
        assert cluster.alive() == {}
        assert (caught := other.ends()).nothing
        assert caught.connections == 1


def test_ray_has_what_turns_its_client_server_off() -> None:
    """A later Ray that lacks it would start the server, on a port that two users' clusters share."""
    assert "has_ray_client = get_ray_client_dependency_error() is None" in inspect.getsource(scripts)


ADDRESS, TOKEN = "127.0.0.1", "0123456789abcdef" * 4


def a_node(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "n1", wait_s: float = 5.0) -> node.SlurmNode:
    """Return a node of a job of two, without Ray: it has its folder and its token."""
    for file, text in {"token": TOKEN, "nodes": f"n0 {ADDRESS}\nn1 {ADDRESS}\n"}.items():
        (folder / file).write_text(text)
    folder.chmod(0o700)
    monkeypatch.setenv("SLURMD_NODENAME", name)
    monkeypatch.setattr(facts, "resolve", lambda _: ADDRESS)
    monkeypatch.setattr(node, "START_POLL_S", 0.05)
    monkeypatch.setattr(node, "SIGNAL_S", 0.05)
    return node.SlurmNode(folder, folder, wait_s, "", {})


def test_node_meets_only_the_first_node_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`head.json` outlives the first node when its host loses power; another user may get the port then.

    An attack on the first node may end a connection, but not the job: the node tries again until its time limit.
    """
    started: list[object] = []

    async def run() -> None:
        monkeypatch.setattr(node.SlurmNode, "_start_ray", lambda *_: started.append(_))
        first, worker = a_node(tmp_path, monkeypatch, "n0"), a_node(tmp_path, monkeypatch)
        first.members = Members(facts.listen(ADDRESS), TOKEN, first.nodes, tmp_path.name, print, first._heard)
        port = first.members.port
        link = await worker._link(ADDRESS, port)
        link.connection.close()
        with pytest.raises(OverError, match="node n1 is lost: its process ended, or it does not answer") as lost:
            await first.unless_over(asyncio.sleep(5))
        assert lost.value.code == 1
        await first.members.close()
        impostor = Members(facts.listen(ADDRESS), "another", first.nodes, tmp_path.name, print, first._heard)
        cluster = {"gcs": f"{ADDRESS}:1", "members": impostor.port, "address": ADDRESS}
        (tmp_path / "head.json").write_text(json.dumps(cluster))
        with pytest.raises(OverError, match=f"n1: refused {ADDRESS}:{impostor.port} as the first node: what listens"):
            await worker._worker()
        await impostor.close()
        worker.deadline = time.monotonic() + 1
        with pytest.raises(OverError, match=rf"does not answer at {ADDRESS}:{port} \(.*\) within 5 s"):
            await worker._link(ADDRESS, port)

    asyncio.run(run())
    assert not started, "Ray would send its token"


def test_rays_sockets_have_short_paths() -> None:
    """The longest one with the largest process ID (ray: dashboard/subprocesses/utils.py, 2.60; Linux: 4194304)."""
    with node.own_place() as place:
        longest = place / "ray" / "session_2026-11-23_16-21-01_082968_4194304" / "sockets" / "dash_MetricsHead"
        assert len(str(longest).encode()) <= 107


def test_folder_of_a_killed_node_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "TEMPORARY", tmp_path)
    killed = tmp_path / "rdma-ray-slurm-x"
    killed.mkdir()
    (killed / "lock").touch()
    with node.own_place() as running, node.own_place() as place:
        assert (killed.exists(), running.exists(), place.stat().st_mode & 0o777) == (False, True, 0o700)
    assert [*tmp_path.iterdir()] == []


def test_folder_that_another_node_removed_before_its_lock_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def late(file: BinaryIO, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        with node.own_place():
            assert len([*tmp_path.iterdir()]) == 1
        lock(file, how)

    monkeypatch.setattr(node, "TEMPORARY", tmp_path)
    monkeypatch.setattr(fcntl, "flock", late)
    with node.own_place() as place:
        assert sorted(each.name for each in place.iterdir()) == ["lock", "tmp"]
    assert [*tmp_path.iterdir()] == []
