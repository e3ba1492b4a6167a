"""`rdma-ray run` on real Ray nodes: torchrun, one process per rank, and a driver on the head."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.clone import wait_until
from tests.workloads.conftest import Cluster
from workloads.client.api import JobsApi
from workloads.client.follow import follow
from workloads.exits import Exit
from workloads.gang.layout import Layout
from workloads.results.events import Event, parse
from workloads.results.lines import RankLine

SCRIPTS = Path(__file__).with_name("scripts")
SECRET = "s3cret-0f-the-user"
GANG = ("--nodes", "2", "--per-node", "2", "--wait", "60")


@dataclass
class Job:
    """A job of the user's code: what its log says, and how it ended."""

    api: JobsApi
    id: str
    lines: list[str] = field(default_factory=list)
    code: int | None = None

    def follow(self) -> Job:
        self.code = follow(self.api, self.id, self.lines.append).exit_code
        return self

    def of(self, rank: int) -> list[str]:
        found = [RankLine.parse(line) for line in self.lines]
        return [line.text for line in found if line is not None and line.rank == rank]

    def events(self, kind: str) -> list[Event]:
        found = [parse(line) for line in self.lines]
        return [event for event in found if event is not None and event["kind"] == kind]

    @property
    def result(self) -> dict[str, Any]:
        [event] = self.events("result")
        return dict(event["result"])


def start(cluster: Cluster, *arguments: str) -> Job:
    """Start a run of the user's folder, and leave it."""
    done = cluster.rdma_ray("run", "--detach", "--working-dir", str(SCRIPTS), *arguments)
    assert done.returncode == 0, done.stderr
    return Job(JobsApi.of(cluster.outputs), done.stdout.strip())


def survivors(word: str) -> list[psutil.Process]:
    """Return the processes that run this part of the user's code."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if command[1:] == ["user.py", word]:
            found.append(process)
    return found


def test_megatron_core_forms_the_groups_of_the_layout_and_trains_as_one_rank_does(cluster: Cluster) -> None:
    """Two nodes: the tensor groups are within them, the pipeline is between them. Then expert groups of other sizes."""
    experts = [Layout(2, 2, tp=1, cp=1, ep=2, dp=2, pp=2), Layout(2, 2, tp=1, cp=1, ep=2, dp=4, pp=1)]
    experts += [Layout(2, 2, tp=2, cp=1, ep=2, dp=2, pp=1), Layout(2, 2, tp=1, cp=2, ep=4, dp=2, pp=1)]
    sizes = ["--tensor-model-parallel-size", "{tp}", "--pipeline-model-parallel-size", "{pp}"]
    sizes += [word for one in experts for word in ("--also", *map(str, (one.tp, one.cp, one.ep, one.pp)))]
    job = start(cluster, *GANG, "--tp", "2", "--pp", "2", "--", "torchrun", "train_megatron.py", *sizes).follow()
    assert job.code == 0, job.lines
    assert [node["ranks"] for node in job.result["nodes"]] == [[0, 1], [2, 3]]
    assert job.result["exit_codes"] == [0, 0, 0, 0]
    layout = job.result["layout"]
    assert layout["groups"] == {
        "tp": [[0, 1], [2, 3]],
        "cp": [[0], [1], [2], [3]],
        "dp": [[0], [1], [2], [3]],
        "ep": [[0], [1], [2], [3]],
        "edp": [[0], [1], [2], [3]],
        "pp": [[0, 2], [1, 3]],
    }
    assert job.events("note")[0]["text"].startswith("layout: tp 2 × cp 1 × dp 1 × pp 2 = 4 ranks, 2 per node\n")
    for rank in range(4):
        found = json.loads(job.of(rank)[-1])
        assert found["variables"] == ["2", "1", "1", "1", "2"]
        every = [layout, *(one.as_json() for one in experts)]
        expected = [[next(one for one in kind if rank in one) for kind in each["groups"].values()] for each in every]
        assert [found["groups"], *found["also"]] == expected
        alone = found["alone"]
        assert alone[0] - alone[-1] > 0.5
        # Sums in another order: a loss of 4 has steps of 5e-7 in fp32, and measured differences are one step.
        assert found["losses"] == (pytest.approx(alone, abs=1e-5) if rank > 1 else [])


def test_first_failure_ends_all_and_its_traceback_comes_last(cluster: Cluster, tmp_path: Path) -> None:
    done = cluster.rdma_ray(
        *("run", *GANG, "--grace", "20", "--max-restarts", "1", "--all", "--json", "failed.json"),
        *("--working-dir", str(SCRIPTS), "--", "python", "user.py", "raise", str(tmp_path)),
    )
    assert done.returncode == 7, done.stderr
    assert "ValueError: the loss is nan" in done.stderr.splitlines()[-10:]
    result = json.loads((cluster.folder / "failed.json").read_text())
    assert (result["restarts"], result["exit_codes"], result["exit_code"]) == (1, [0, 0, 0, 7], 7)
    job = Job(JobsApi.of(cluster.outputs), result["job"]).follow()
    for rank in (0, 1, 2):
        assert job.of(rank) == [
            text
            for restart in (0, 1)
            for text in (f"rank {rank} of 4 on node {rank // 2} in attempt {restart}", "saved a checkpoint")
        ]
    failures = job.events("failure")
    assert [(one["rank"], one["code"]) for one in failures] == [(3, 7), (3, 7)]
    assert failures[-1]["text"].splitlines()[0] == "Traceback (most recent call last):"
    assert failures[-1]["text"].splitlines()[-1] == "ValueError: the loss is nan"
    assert [event and event["kind"] for event in map(parse, job.lines[-2:])] == ["failure", "result"]
    assert RankLine.parse(job.lines[-3]) is not None


def test_lost_agent_takes_its_ranks_along_and_the_gang_starts_again(cluster: Cluster) -> None:
    job = start(cluster, *GANG, "--grace", "5", "--max-restarts", "1", "--", "python", "user.py", "lose").follow()
    assert (job.code, job.result["restarts"]) == (0, 1), job.lines
    [failure] = job.events("failure")
    assert "the agent on" in failure["text"]
    assert job.of(2)[-1] == "rank 2 of 4 on node 1 in attempt 1"
    assert survivors("lose") == []


def test_stop_reaches_the_ranks(cluster: Cluster) -> None:
    job = start(cluster, *GANG, "--grace", "20", "--", "python", "user.py", "sleep")
    wait_until(lambda: job.api.logs(job.id).count("in attempt 0") >= 4, lambda: job.api.logs(job.id), 60)
    assert cluster.rdma_ray("stop", job.id).returncode == 0
    assert job.api.job(job.id).status == "STOPPED"
    job.follow()
    assert [job.of(rank)[-1] for rank in range(4)] == ["saved a checkpoint"] * 4
    assert survivors("sleep") == []
    assert job.result["exit_code"] == Exit.STOPPED


def test_impossible_placement_fails_within_seconds(cluster: Cluster, tmp_path: Path) -> None:
    """The stack's outputs promise three CPUs per node; the nodes have two."""
    nodes = cluster.outputs.nodes.model_copy(update={"cpus_per_node": 3})
    outputs = json.loads(cluster.file.read_text()) | {"nodes": nodes.model_dump(by_alias=True)}
    (file := tmp_path / "outputs.json").write_text(json.dumps(outputs))
    began = time.monotonic()
    done = cluster.rdma_ray("run", "--nodes", "2", "--per-node", "3", "--outputs", str(file), "--", "true")
    assert (done.returncode, time.monotonic() - began < 30) == (Exit.ERROR, True)
    said = done.stdout + done.stderr
    assert "the run needs 2 nodes with 3 free CPU each" in said
    assert said.count(": 2 of 2 CPU free") == 2


def test_ray_train_script_runs_as_it_is_with_a_secret(cluster: Cluster, tmp_path: Path) -> None:
    (file := tmp_path / ".env").write_text(f"WANDB_API_KEY={SECRET}\n")
    secret = ("--secret", "WANDB_API_KEY", "--env-file", str(file))
    job, shown = start(cluster, *secret, "--", "python", "user.py", "train"), list[str]()

    def on_line(line: str) -> None:
        job.lines.append(line)
        commands = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
        shown.extend(command for command in commands if SECRET in command)

    job.code = follow(job.api, job.id, on_line).exit_code
    assert (job.code, shown) == (0, []), job.lines
    # Ray's actors, whose lines have their names, may write after the script, when one ends too late (Ray Train, 2.60).
    own = [line for line in job.lines if not re.match(r"\x1b\[36m\(\w+ pid=", line)]
    assert own[-1] == f"2 workers, the secret has {len(SECRET)} characters", job.lines
    entry: dict[str, Any] = job.api.call(f"/api/jobs/{job.id}")
    assert SECRET not in json.dumps(entry) + "".join(job.lines)
    for file in (each for each in cluster.logs.rglob("*.*") if each.suffix in (".log", ".out", ".err", ".json")):
        assert SECRET not in file.read_text(errors="replace"), file


def test_nodes_are_tested_before_the_ranks_start(cluster: Cluster) -> None:
    """By the ranks of a short hunt on the same reserved nodes, which then run the user's."""
    job = start(cluster, *GANG, "--check", "--", "python", "-c", "print('ran')").follow()
    assert job.code == 0, job.lines
    assert [event["text"] for event in job.events("note") if event["text"].startswith("checked 2 nodes in ")]
    assert job.events("round") == []
    assert job.result["seconds"].keys() >= {"placement", "check", "run"}
    assert job.of(1) == ["ran"]
