"""Ray on a real Slurm: what a user does with it, two users on the same nodes, and how it ends."""

from __future__ import annotations

import http.client
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from infra.outputs import Nodes
from tests.slurm.conftest import READY_S, Run, assert_nothing_is_left, attacked, json_of, left_of, rdma_ray, start
from tests.workloads.train import gpt_reference
from tools.slurm.cluster import Slurm
from workloads.exits import Exit

CANCELED, TOGETHER, LONGEST_S = 10, 3, 30.0
"""Jobs to cancel, how many of them run at once, and the latest moment."""
SHORT = ("--epochs", "1", "--min-accuracy", "0.3")

SUM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("sum", total.item())
dist.destroy_process_group()
"""


def test_two_users_on_the_same_nodes(slurm: Slurm, tmp_path: Path) -> None:
    """One cluster stays up and is used by its outputs; the other's command trains and measures on the same nodes.

    A third user attacks both while they start.
    """
    # The language model, `bench` and `train` as the command, and what bob finds of alice's.
    words = shlex.join(gpt_reference.start(slurm.home("bob") / "gpt", "gpt"))
    command = f"""
    rdma-ray run --nodes 2 -- torchrun -m workloads.train gpt {words} --json gpt.json || exit
    rdma-ray bench nccl --op all_reduce --end 64K --json bench.json || exit
    rdma-ray train digits {shlex.join(SHORT)} --json train.json || exit
    rdma-ray doctor || exit
    cat ../alice/rdma-ray-slurm/job-*/token && exit 90
    env | grep -F "$(cat rdma-ray-slurm/job-*/token)" && exit 91
    exit 7"""
    victims: list[Run] = []
    with attacked(slurm, "n0", victims):
        alice = start(slurm, "alice", "--sbatch", "nodelist=n0,n1")
        bob = start(slurm, "bob", "--sbatch", "nodelist=n0,n1", "--", "bash", "-c", command)
        victims += [alice, bob]
        for victim in victims:
            victim.wait_until_ready()
    assert alice.outputs.target == "slurm"
    assert alice.outputs.nodes == Nodes(min=2, max=2, gpus_per_node=0, cpus_per_node=2)
    check_tokens(alice, bob)
    check_isolation(slurm, alice, bob)
    bench = json_of(alice.rdma_ray("bench", "nccl", "--op", "all_reduce", "--end", "64K", "--json"))
    assert (bench["world"]["ranks"], {row["wrong"] for row in bench["rows"]}) == (4, {0})
    (tmp_path / "sum.py").write_text(SUM)
    torchrun = alice.rdma_ray("run", "--all", "--nodes", "2", "--", "torchrun", "sum.py", cwd=tmp_path)
    assert (torchrun.returncode, torchrun.stdout.count("sum 1.0")) == (Exit.OK, 2), torchrun.stderr
    top = json_of(alice.rdma_ray("top", "--once", "--json"))
    assert [node["cpus"]["total"] for node in top["nodes"]] == [2, 2]
    assert alice.rdma_ray("train", "digits", *SHORT).returncode == Exit.OK
    assert alice.rdma_ray("doctor").returncode == Exit.OK
    # The command's own exit code; alice's cluster goes on.
    attached = rdma_ray(slurm, "bob", "slurm", "attach", bob.id)
    assert attached.returncode == 7, attached.stdout
    assert "Ray runs on 2 nodes: n0, n1" in attached.stdout
    home = slurm.home("bob")
    assert json.loads((home / "bench.json").read_text())["cluster"] == f"job-{bob.id}"
    assert json.loads((home / "train.json").read_text())["world"] == 4
    expected = gpt_reference.losses(gpt_reference.train(gpt_reference.request(tmp_path, "whole", 2), 2))
    gpt_reference.assert_reference(json.loads((home / "gpt.json").read_text()), expected, world=2)
    assert_nothing_is_left(slurm, "bob")
    assert alice.rdma_ray("status").returncode == Exit.OK
    alice.cancel()
    assert_nothing_is_left(slurm, "alice")


def check_tokens(alice: Run, bob: Run) -> None:
    """Ray requires each cluster's own token, which only its user's file has."""
    statuses = [status(alice, None), status(alice, bob.outputs.ray.token.get_secret_value())]
    assert [*statuses, status(alice, alice.outputs.ray.token.get_secret_value())] == [401, 403, 200]
    for path in (alice.folder, alice.folder / "token", alice.folder / "outputs.json"):
        assert path.stat().st_mode & 0o077 == 0


def check_isolation(slurm: Slurm, alice: Run, bob: Run) -> None:
    """No token in what Slurm or the process list shows, and each Ray has its own two nodes only."""
    token = alice.outputs.ray.token.get_secret_value()
    assert token not in slurm.run(["scontrol", "show", "job", alice.id]).stdout
    assert token not in slurm.run(["scontrol", "write", "batch_script", alice.id, "-"], user="alice").stdout
    mine = [each for each in psutil.process_iter(["uids"]) if each.info["uids"].real == slurm.uids["alice"]]
    assert mine
    for process in mine:
        try:
            shown = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        assert not any(token in word for word in shown)
    for one in (alice, bob):
        assert len(json_of(one.rdma_ray("status", "--json"))["nodes"]) == 2


def status(run: Run, token: str | None) -> int:
    """Return the HTTP status of the dashboard's Jobs API."""
    place = urlsplit(run.outputs.ray.jobs)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    connection.request("GET", "/api/jobs/", headers={"Authorization": f"Bearer {token}"} if token else {})
    return connection.getresponse().status


def test_canceled_at_any_moment_nothing_is_left(slurm: Slurm) -> None:
    """Ten moments from the submission to a running cluster, by a fixed seed; three jobs at a time on the same nodes."""
    moments = [random.Random(seed).uniform(0, LONGEST_S) for seed in range(CANCELED)]

    def canceled(moment: float) -> str:
        run = start(slurm, "alice", "--nodes", "3")
        time.sleep(moment)
        run.cancel()
        slurm.until(f"job {run.id} has ended", run.ended)
        state = run.show("JobState")
        return state if state == "CANCELLED" else f"{state}:\n{run.log}"

    with ThreadPoolExecutor(TOGETHER) as pool:
        assert set(pool.map(canceled, sorted(moments))) == {"CANCELLED"}
    assert_nothing_is_left(slurm, "alice")


def test_lost_nodes_are_named(slurm: Slurm) -> None:
    """Ray killed on one node, a node without power, and one that cannot start; the script is submitted as it is."""
    killed = start(slurm, "alice", "--sbatch", "nodelist=n0,n1", "--gpus-per-node", "1", "--", "sleep", "600")
    text = rdma_ray(slurm, "bob", "slurm", "run", "--dry-run", "--time", "15", "--memory", "1G", "--", "sleep", "600")
    slurm.home("bob").joinpath("job.sbatch").write_text(text.stdout)
    killed.wait_until_ready()
    own = ["--nodelist=n0,n2", "--cpus-per-task=2", "--gpus-per-node=1"]
    submitted = slurm.run(["sbatch", "--parsable", *own, "job.sbatch"], user="bob")
    dark = Run(slurm, "bob", submitted.stdout.strip())
    dark.wait_until_ready()
    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(gpu_of_rank_0, (killed, dark))) == ["0", "1"]
    for process in of_node(slurm, "n1", "alice"):
        if process.name() == "raylet":
            process.kill()
    slurm.until("the cluster without n1 has ended", killed.ended)
    assert killed.show("ExitCode") == "1:0"
    assert re.search(r"node n1: its Ray ended with status \d+", killed.log)
    assert_nothing_is_left(slurm, "alice")
    disk = {Path(process.cwd()) for process in of_node(slurm, "n2", "bob") if process.name() == "raylet"}
    slurm.nodes["n2"].stop()
    attached = rdma_ray(slurm, "bob", "slurm", "attach", dark.id)
    assert attached.returncode == Exit.ERROR
    assert "node n2 is lost" in attached.stdout
    for place in disk:
        shutil.rmtree(place)  # the disk of n2, which the nodes share
    assert_nothing_is_left(slurm, "bob")
    slurm.run(["scontrol", "update", "nodename=n2", "state=down", "reason=power"])  # later tests do not get it
    # On one node, and a program that does not exist.
    absent = start(slurm, "bob", "--nodes", "2", "--sbatch", "nodelist=n0,n1", "--python", "/no/python")
    slurm.until("the job without Python has ended", absent.ended)
    assert absent.show("ExitCode") != "0:0"
    assert "/no/python: No such file or directory" in absent.log
    assert left_of(slurm, "bob") == []


@pytest.mark.usefixtures("slurm")  # or it is skipped
def test_lost_first_node_ends_the_job() -> None:
    """Slurm requeues a batch job whose first node dies (slurm.conf(5), JobRequeue), which would start its command a
    second time. A Slurm of its own, because no later test could use the node."""
    with tempfile.TemporaryDirectory(prefix="rdma-ray-slurm-test-") as folder:
        Path(folder).chmod(0o755)
        with Slurm(Path(folder), nodes=3, cpus=4, users=("alice",), timeout_s=10) as slurm:
            run = start(slurm, "alice", "--nodes", "2", "--", "bash", "-c", "echo started >> starts; sleep 600")
            starts = slurm.home("alice") / "starts"
            slurm.until("the command starts", starts.exists, READY_S)
            first = run.show("BatchHost")
            slurm.nodes[first].stop()
            slurm.until("the job ends", run.ended)
            assert (run.show("JobState"), run.show("Restarts")) == ("NODE_FAIL", "0")
            assert starts.read_text() == "started\n"
            attached = rdma_ray(slurm, "alice", "slurm", "attach", run.id)
            assert (attached.returncode, first in attached.stdout) == (Exit.ERROR, True), attached.stdout


def gpu_of_rank_0(run: Run) -> str:
    """Return the GPU of the rank on n0, which two jobs share; each node of a cluster has one."""
    assert run.outputs.nodes.gpus_per_node == 1
    done = run.rdma_ray("run", "--nodes", "2", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert done.returncode == Exit.OK, done.stderr
    return done.stdout.strip()


def of_node(slurm: Slurm, node: str, user: str) -> list[psutil.Process]:
    """Return a user's processes on a node."""
    place = Path(f"/proc/{slurm.nodes[node].pid}/ns/net").readlink()
    found = []
    for process in psutil.process_iter(["uids"]):
        if process.info["uids"].real == slurm.uids[user]:
            try:
                if Path(f"/proc/{process.pid}/ns/net").readlink() == place:
                    found.append(process)
            except OSError:
                continue
    return found


def test_slurm_ends_with_its_owner(slurm: Slurm) -> None:
    """After SIGKILL of a test, no program of its Slurm is left; that of this tier runs on."""
    code = (
        "import sys, tempfile, pathlib; from tools.slurm.cluster import Slurm\n"
        "with Slurm(pathlib.Path(sys.argv[1]), nodes=1, cpus=2, users=()) as slurm: print('UP', flush=True); input()"
    )
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "UP\n"
        process.kill()
        process.communicate()
        slurm.until("all has ended", lambda: not [each for each in commands() if folder in each])
    assert "UP" in slurm.run(["scontrol", "ping"]).stdout


def commands() -> list[str]:
    return [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
