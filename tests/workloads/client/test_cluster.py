"""The command line against a real cluster: benchmarks, training, failures, and the hidden token."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.workloads.conftest import Cluster, write_outputs
from workloads.client.api import JobsApi
from workloads.client.run import attend
from workloads.client.submit import submit
from workloads.exits import Exit
from workloads.nccl.kinds import COLLECTIVES
from workloads.nccl.point_patterns import Variant, flows, variants
from workloads.nccl.result import BenchResult, World
from workloads.nccl.units import BUSBW_FACTORS, REDUCTIONS
from workloads.results.events import new_id
from workloads.terminal.progress import View

RANKS = 4


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> BenchResult:
    """The default benchmark, as a user runs it first, and asking for NCCL's logs."""
    done = cluster.rdma_ray("bench", "nccl", "--json", "bench.json", "-n", "5", "-w", "1", "--logs", "logs")
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("evidence missing: ") == 1
    assert "no NCCL log arrived for logs" in done.stdout + done.stderr
    assert "60 rows, every element right" in done.stdout
    assert "all ranks on one host: a functional proof, not a fabric measurement" in done.stdout
    return BenchResult.model_validate_json((cluster.folder / "bench.json").read_text())


def test_bench_measures_every_operation_and_finds_no_wrong_element(bench: BenchResult) -> None:
    measured = [(row.op, row.variant) for row in bench.rows]
    pairs = [("p2p", f"pairs {direction}") for direction in ("up", "down", "duplex")]
    assert list(dict.fromkeys(measured)) == [(op, None) for op in COLLECTIVES] + pairs
    assert {row.wrong for row in bench.rows} == {0}
    for row in bench.rows:
        assert 0 < row.time_us.min <= row.time_us.avg <= row.time_us.max
        assert row.algbw == pytest.approx(row.size / row.time_us.max / 1e3, rel=0.01, abs=2e-6)
        assert 0 < row.iteration_us.p50 <= row.iteration_us.p95 <= row.iteration_us.p99 <= row.iteration_us.max
        assert row.iteration_us.cv > 0
        # One machine has no NICs between its ranks.
        assert (row.mode, row.dtype, row.nic_bandwidth) == ("throughput", "fp32", None)
        assert [rank.rank for rank in row.ranks] == list(range(RANKS))
        assert max(rank.time_us for rank in row.ranks) == row.time_us.max


def test_bench_reports_its_ranks_and_what_it_proves(bench: BenchResult) -> None:
    assert bench.schema_ == "rdma-ray/nccl/3"
    assert bench.proves == "function"
    assert bench.world == World(nodes=2, per_node=2, ranks=RANKS, machines=1)
    assert bench.ranks is not None
    assert [(member.rank, member.node) for member in bench.ranks] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert len({member.node_id for member in bench.ranks}) == 2
    assert (bench.environment or {})["GLOO_SOCKET_IFNAME"].startswith("lo")
    assert (bench.command or [])[:3] == ["rdma-ray", "bench", "nccl"]
    no_logs(bench, RANKS)


def no_logs(result: BenchResult, ranks: int) -> None:
    """Assert that every rank answered, and that the result names what gloo cannot show."""
    assert result.evidence is not None
    assert [rank.log for rank in result.evidence.ranks] == [None] * ranks
    assert "NCCL's log: the ranks used gloo, which does not write one" in result.evidence.missing


@pytest.fixture(scope="module")
def full(cluster: Cluster) -> tuple[BenchResult, str]:
    """Every operation and pattern, with other options than the default's: the result, and what the user reads."""
    done = cluster.rdma_ray(
        *("bench", "nccl", "--preset", "full", "--pattern", "all", "-b", "4K", "-e", "4K", "-n", "2", "-w", "0"),
        *("-c", "0", "--dtype", "uint8", "--mode", "latency", "--json", "all.json"),
        *("--env", "GLOO_SOCKET_IFNAME=lo", "--env", "NCCL_DEBUG=WARN"),
    )
    assert done.returncode == 0, done.stderr
    return BenchResult.model_validate_json((cluster.folder / "all.json").read_text()), done.stdout


def test_options_reach_the_ranks_and_unchecked_data_is_not_right(full: tuple[BenchResult, str]) -> None:
    result, said = full
    assert (result.environment or {})["NCCL_DEBUG"] == "WARN"
    assert len(result.rows) == len(BUSBW_FACTORS) - len(REDUCTIONS) - 1 + len(variants(2, 2))
    assert {(row.mode, row.dtype, row.wrong) for row in result.rows} == {("latency", "uint8", None)}
    assert "every element right" not in said
    assert f"{len(result.rows)} rows, the data of {len(result.rows)} of them not checked" in said
    assert "all_reduce uint8, reduce_scatter uint8, reduce uint8" in said


def test_every_pattern_is_measured_in_each_direction(full: tuple[BenchResult, str]) -> None:
    result, said = full
    assert not [name for name in ("Gbit/s", "pairs up", "rail 1 duplex", "incast down") if name not in said]
    rows = [row for row in result.rows if row.op == "p2p"]
    assert [row.variant for row in rows] == [variant.name for variant in variants(2, 2)]
    for row in rows:
        assert (row.limit, row.nic_bandwidth) == (None, None)
        assert row.pairs is not None
        assert row.total is not None
        assert row.variant is not None
        expected = flows(Variant.parse(row.variant), 2, 2)
        assert [(pair.sender, pair.receiver) for pair in row.pairs] == [
            (flow.sender, flow.receiver) for flow in expected
        ]
        for pair in row.pairs:
            times = {rank.rank: rank.time_us for rank in row.ranks}
            assert pair.time_us == pytest.approx(max(times[pair.sender], times[pair.receiver]))
        # Each pair's figure and each direction's total is rounded to six decimals.
        rounding = 0.5e-6 * (len(row.pairs) + 2)
        assert 0 < row.total <= sum(pair.bandwidth for pair in row.pairs) + rounding


def test_bench_waits_for_an_elastic_cluster_and_reports_what_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    """No autoscaler adds the third node: the wait ends in time, and reports the two nodes."""
    grown = cluster.outputs.model_copy(update={"nodes": cluster.outputs.nodes.model_copy(update={"max": 3})})
    file = write_outputs(grown, tmp_path / "elastic.json")
    done = cluster.rdma_ray("bench", "nccl", "--nodes", "3", "--wait", "3", "--outputs", str(file))
    assert done.returncode == Exit.ERROR
    assert "waiting for the nodes for" in done.stderr
    assert "2 of 3 nodes with 2 free CPU each ready" in done.stderr
    assert "no room within 3 s" in done.stdout
    assert "--wait" in done.stdout


def test_wrong_data_exits_3(cluster: Cluster) -> None:
    done = cluster.rdma_ray(
        *("bench", "nccl", "--op", "all_gather", "-e", "1K", "-n", "1", "--dtype", "bf16", "--json", "-"),
        *("--per-node", "1", "--inject-fault", "corrupt:1"),
    )
    assert done.returncode == Exit.WRONG_DATA, done.stderr
    result = BenchResult.model_validate_json(done.stdout)  # stdout is the JSON alone
    [row] = result.rows
    # before, in what the timed runs left, and after
    assert [rank.wrong for rank in row.ranks] == [0, 3]
    assert result.injected_fault == "corrupt:1"
    assert "wrong data in 1 of 1 rows" in done.stderr


def test_a_hang_exits_4_in_time_and_names_the_rank(cluster: Cluster) -> None:
    done = cluster.rdma_ray(
        *("bench", "nccl", "--op", "all_reduce", "-e", "1K", "--timeout", "5", "--inject-fault", "hang:1"),
        *("--per-node", "1", "--json", "hang.json"),
    )
    assert done.returncode == Exit.HANG, done.stderr
    assert "no answer within 5 s" in done.stdout
    behind = [line for line in done.stdout.splitlines() if "before its first call" in line]
    assert len(behind) == 1
    assert behind[0].strip().startswith("rank 1")
    result = BenchResult.model_validate_json((cluster.folder / "hang.json").read_text())
    assert result.rows == []
    no_logs(result, 2)  # the hung rank answers on its second thread


def test_training_reaches_its_accuracy(cluster: Cluster) -> None:
    """test_surviving_cluster.py resumes a run."""
    done = cluster.rdma_ray(
        *("train", "digits", "--workers", "2", "--epochs", "8", "--name", "digits", "--json", "digits.json"),
        *("--log", "tensorboard", "--profile"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("epoch 8:") == 1
    assert "RayTrainWorker" not in done.stderr
    result = json.loads((cluster.folder / "digits.json").read_text())
    assert result["accuracy"] >= 0.97
    assert (result["world"], result["resumed_from"]) == (2, None)
    assert [row["epoch"] for row in result["epochs"]] == list(range(1, 9))
    run = cluster.storage / "train" / "digits"
    [trace] = (run / "traces").iterdir()
    assert f"trace of rank 0: {trace}" in done.stderr
    assert len([*(run / "tensorboard").iterdir()]) == 1
    kept = sorted(path.name for path in run.glob("step-*"))
    assert kept == [f"step-{epoch * result['epoch_steps']:09}" for epoch in (7, 8)]


def test_ctrl_c_stops_the_job_and_frees_its_ranks(cluster: Cluster) -> None:
    process = cluster.start("bench", "nccl", "--op", "all_reduce", "--per-node", "1", "--inject-fault", "hang:0")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("measuring"):
            break
    process.send_signal(signal.SIGINT)
    # Within a minute Ray has to stop the driver; the rest is patience with a busy machine.
    _, rest = process.communicate(timeout=400)
    assert process.returncode == Exit.STOPPED
    assert "is STOPPED" in rest


def test_the_drivers_exit_code_is_the_jobs(cluster: Cluster) -> None:
    job_id = new_id("test")
    api = JobsApi.of(cluster.outputs)
    submit(api, job_id, ["sh", "-c", "echo here && exit 3"])
    ended = attend(api, job_id, View(), stop_on_interrupt=True)
    assert (ended.code, ended.job.status) == (3, "FAILED")


def test_detached_jobs_are_listed_followed_and_stopped(cluster: Cluster) -> None:
    done = cluster.rdma_ray(
        "bench", "nccl", "--op", "broadcast", "--per-node", "1", "--detach", "--inject-fault", "hang:0"
    )
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.strip()
    assert cluster.rdma_ray("stop", job_id).returncode == 0
    listed = json.loads(cluster.rdma_ray("list", "--json", "-").stdout)["jobs"]
    assert next(job for job in listed if job["id"] == job_id)["status"] == "STOPPED"
    assert cluster.rdma_ray("logs", job_id).returncode == Exit.STOPPED
    assert cluster.rdma_ray("logs", "no-such-job").returncode == Exit.ERROR
    found = json.loads(cluster.rdma_ray("status", "--json", "-").stdout)
    assert [(node["role"], node["cpus"]) for node in found["nodes"]] == [("head", 0), ("worker", 2), ("worker", 2)]
    assert found["cost"] is None


def test_the_token_is_in_no_log_and_no_result(cluster: Cluster, bench: BenchResult) -> None:
    assert bench
    api = JobsApi(cluster.outputs.ray.jobs, cluster.outputs.ray.token, "test")
    for job in api.jobs():
        assert cluster.token not in api.logs(job.id)
        assert cluster.token not in str(api.call(f"/api/jobs/{job.id}"))
    written = [file for folder in (cluster.folder, cluster.logs) for file in folder.rglob("*.*")]
    searched = [file for file in written if file.suffix in (".json", ".log", ".out", ".err") and file != cluster.file]
    assert len(searched) > 20
    for file in searched:
        assert cluster.token not in file.read_text(errors="replace"), file
