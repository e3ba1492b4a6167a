"""Commands end in time and bounded memory, whatever a cluster answers, and reach only what the user named."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.clone import executable
from tests.hostile import bounded_memory, run
from tests.workloads.hostile_cluster import (
    HEAD,
    HOSTILE,
    JOB,
    PROBE,
    SNAPSHOT,
    FakeKubectl,
    HostileHead,
    Where,
    objects_of,
    outside,
    replaced,
    rounds,
    served,
)
from tests.workloads.stack_outputs import GKE, TOKEN
from workloads.client import kubectl
from workloads.client.answer import END_BYTES
from workloads.client.api import Job, JobsApi
from workloads.client.commands import LONGEST_STOP_S, _grace
from workloads.client.kubectl import Kubectl
from workloads.doctor.state import RAY_PATHS
from workloads.exits import Exit, WorkloadError
from workloads.monitor.commands import one

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Outputs of a stack whose Ray is `HostileHead`."""
    with served(tmp_path_factory.mktemp("outputs")) as file, bounded_memory(1024):
        yield file


@pytest.fixture
def gke(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Outputs of a stack on GKE with this Ray, whose Kubernetes is `FakeKubectl`."""
    address, file = json.loads(outputs.read_text())["ray"]["jobs"], tmp_path / "gke.json"
    file.write_text(json.dumps(GKE | {"ray": GKE["ray"] | {"cluster": "gke-ray", "jobs": address}, "queue": "kueue"}))
    monkeypatch.setattr("workloads.client.connection.Kubectl", FakeKubectl)
    monkeypatch.setattr("workloads.doctor.state.POLL_S", 0.01)
    FakeKubectl.objects = {kind: json.dumps(objects).encode() for kind, objects in CLOUD.items()}
    return file


def commands(outputs: Path, folder: Path) -> list[tuple[str | Path, ...]]:
    """Every command that reads a cluster and starts nothing of the user's."""
    end = ("--outputs", outputs)
    return [
        ("status", *end),
        ("list", *end),
        ("logs", JOB, *end),
        ("logs", JOB, "--tail", "3", "--json", folder / "job.json", *end),
        ("attach", JOB, *end),
        ("stop", JOB, *end),
        ("top", "--once", *end),
        ("top", "--once", "--json", "-", *end),
        ("dashboard", *end),
    ]


PARTS = {
    "version": HEAD["version"],
    "nodes": HEAD["nodes"],
    "jobs": HEAD["jobs"],
    "job": HEAD["job"],
    "snapshot": SNAPSHOT,
}


def test_every_command_bears_every_field_of_a_head(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.client.follow.SHORTEST_PAUSE_S", 0.01)
    monkeypatch.setattr("workloads.monitor.commands.one", partial(one, timeout_s=0.02, pause_s=0.01))
    for spoils in rounds(PARTS, 80, seed=31):
        answers = {part: replaced(PARTS[part], path, HOSTILE[value]) for part, (path, value) in spoils.items()}
        for command in commands(outputs, tmp_path):
            HostileHead.reset(**answers)
            HostileHead.running = command[0] == "stop"
            code, said, complained = run(*command)
            assert code in {*Exit}, (spoils, command, said, complained)
    assert {file.name for file in tmp_path.iterdir()} <= {"job.json"}


CLOUD = objects_of("gke, queued")
RAY = {part: HEAD[part] for part in RAY_PATHS} | {"probe": PROBE}


def test_doctor_and_inspect_bear_every_field_of_a_cluster(gke: Path, tmp_path: Path) -> None:
    bundle, read = tmp_path / "b.tar.gz", 0
    for rays, kinds in zip(rounds(RAY, 40, seed=31), rounds(CLOUD, 40, seed=32), strict=True):
        spoils = rays | kinds
        HostileHead.reset(**{part: replaced(RAY[part], *_value(spoil)) for part, spoil in rays.items()})
        FakeKubectl.objects = {kind: replaced(CLOUD[kind], *_value(spoil)) for kind, spoil in kinds.items()}
        code, said, complained = run("doctor", "--outputs", gke)
        assert code in {Exit.OK, Exit.ERROR, Exit.BELOW}, (spoils, said, complained)
        code, said, complained = run("inspect", "--outputs", gke, "--out", bundle)
        assert code == Exit.OK, (spoils, said, complained)
        assert outside(bundle, tmp_path / "unpacked") == []
        read += f"GET {RAY_PATHS['summary']}" in HostileHead.asked
    assert {each.name for each in tmp_path.iterdir()} == {"gke.json", "b.tar.gz", "unpacked"}
    assert read > 25  # of 40: without a ready pod of the head, no Ray is read


def _value(spoil: tuple[Where, str]) -> tuple[Where, str]:
    return spoil[0], HOSTILE[spoil[1]]


IDS = ("..", ".", "a/../b", "../../run-2", "a?b", "a#b", "%2e%2e", "a\nb", "a\\b")


@pytest.mark.parametrize("job", IDS)
def test_stop_reaches_a_job_of_any_id_and_no_other_one(outputs: Path, job: str) -> None:
    """Ray's head would pass `a/../b` on as `b`: tried on 2.60."""
    HostileHead.reset(jobs=json.dumps([HEAD["job"] | {"submission_id": job, "status": "RUNNING"}]).encode())
    HostileHead.running = True
    code, _, said = run("stop", job, "--outputs", outputs)
    assert code == Exit.OK, said
    assert [asked for asked in HostileHead.asked if "/stop " in asked] == []
    [helper] = [asked for asked in HostileHead.asked if asked.startswith("POST /api/jobs/ ")]
    assert shlex.split(json.loads(helper.split(" ", 2)[2])["entrypoint"])[-1] == json.dumps(job)


def test_an_id_that_may_be_in_a_path_is_stopped_by_the_head(outputs: Path) -> None:
    HostileHead.reset()
    HostileHead.running = True
    assert run("stop", JOB, "--outputs", outputs)[0] == Exit.OK
    assert f"POST /api/jobs/{JOB}/stop " in HostileHead.asked


@pytest.mark.parametrize("grace", ["nan", "inf", "-inf", "1e999", "-5", "x", "9" * 5000, "1_0e400", ""])
def test_a_grace_of_the_cluster_is_finite(grace: str) -> None:
    job = Job.of({"submission_id": "a", "status": "RUNNING", "metadata": {"grace": grace}})
    assert 0 <= _grace(job) <= LONGEST_STOP_S


def test_doctor_deletes_records_of_its_own_probes_only(gke: Path) -> None:
    """Whoever submits a job chooses its metadata, and Ray's head resolves `..` in an ID."""
    ended = {"status": "SUCCEEDED", "metadata": {"workload": "doctor"}, "start_time": 1, "end_time": 2}
    names = ["../../run-1", "x/../run-1", "run-1", "doctor-20261121-130501-a1b2c3"]
    names += [f"doctor-20261121-130501-{number:06x}" for number in range(500)]
    jobs = [HEAD["job"] | ended | {"submission_id": name} for name in names]
    HostileHead.reset(jobs=json.dumps(jobs).encode())
    run("doctor", "--outputs", gke)
    deleted = [asked.split()[1] for asked in HostileHead.asked if asked.startswith("DELETE ")]
    assert 0 < len(deleted) <= 20
    assert all(path.startswith("/api/jobs/doctor-20261121-130501-") for path in deleted)


def test_the_end_of_a_long_log_is_read_in_bounded_memory(outputs: Path) -> None:
    HostileHead.reset()
    HostileHead.log = b"x" * 99 + b"\n"
    HostileHead.times = 3 * 2**18  # 75 MiB
    api = JobsApi(json.loads(outputs.read_text())["ray"]["jobs"], SecretStr(TOKEN), "test")
    with bounded_memory(150):
        text, whole = api.end_of_log(JOB)
    assert not whole
    assert END_BYTES - 200 <= len(text) <= END_BYTES
    assert text.startswith("x" * 99 + "\n")
    assert [asked for asked in HostileHead.asked if "lines=50000" in asked]


def test_a_kubectl_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "kubectl", "#!/bin/sh\nexec yes 0123456789\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(kubectl, "LARGEST", 2**20)
    began = time.monotonic()
    with (
        bounded_memory(100),
        Kubectl(SecretStr("{}"), "ray") as found,
        pytest.raises(WorkloadError, match="larger than 1 MiB"),
    ):
        found.get("pods")
    assert time.monotonic() - began < 10


COMMANDS = (("outputs",), ("list", "--json"), ("status",), ("logs", JOB), ("stop", JOB, "--json"), ("--help",))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("stream", [">/dev/full", ">&-", ">/dev/full 2>/dev/full", ">&- 2>&-", "2>/dev/full", "2>&-"])
def test_output_that_cannot_be_written_is_one_line(outputs: Path, command: tuple[str, ...], stream: str) -> None:
    HostileHead.reset()
    where = [] if command == ("--help",) else ["--outputs", str(outputs)]
    line = f'exec "$0" -m workloads.cli "$@" {stream}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, *command, *where], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    if stream.startswith(">"):
        assert done.returncode == Exit.ERROR
        assert done.stderr.count(b"cannot write the output: ") == (" 2>" not in stream)
    else:
        assert done.returncode == Exit.ERROR or (done.returncode == Exit.OK and done.stdout)
