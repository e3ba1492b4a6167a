"""`inspect`: what is in the bundle, that no secret is in it or in the diagnosis, and how the file is written."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tarfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from infra.outputs import Outputs
from tests.hostile import bounded_memory
from tests.workloads.doctor import states
from tests.workloads.stack_outputs import GKE
from workloads.client.api import Job, JobsApi
from workloads.doctor import commands
from workloads.doctor.bundle import SIZE, Bundle, bundle_of
from workloads.doctor.diagnosis import diagnose
from workloads.doctor.kept import STATE_BYTES
from workloads.doctor.state import RAY_PATHS, StateReader, dumped
from workloads.evidence.raw_log import pack
from workloads.exits import WorkloadError
from workloads.options import ResultOptions, StackOptions
from workloads.results.events import MARK
from workloads.results.files import write_file

SECRETS = {
    name: f"{name}-7Qx4{number}zZ9pLm2"
    for number, name in enumerate(
        (
            "ray",
            "kubeconfig",
            "certificate",
            "wandb",
            "flag",
            "env",
            "bearer",
            "proxy",
            "process",
            "event",
            "password",
            "nccl",
            "serve",
        )
    )
} | {
    "aws": "AKIA" + "Q7" * 8,
    "aws-secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "pem": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
}
LOG = f"""step 1
Authorization: Bearer {SECRETS["bearer"]}
export AWS_ACCESS_KEY_ID={SECRETS["aws"]}
AWS_SECRET_ACCESS_KEY={SECRETS["aws-secret"]}
proxy https://me:{SECRETS["proxy"]}@proxy:3128
the token is {SECRETS["ray"]}, or {base64.b64encode(SECRETS["ray"].encode()).decode()}
wandb: {SECRETS["wandb"]}; hf: {SECRETS["env"]}; me: {SECRETS["process"]}; k8s: {SECRETS["kubeconfig"]}
a client's request to the service had {SECRETS["serve"]}
vm:1:1 [0] NCCL INFO NCCL_NET set by environment to gIB, {SECRETS["ray"]}
{"x" * 3990} {SECRETS["ray"]}
"""
KEY_END = f"{SECRETS['pem']}\n-----END RSA PRIVATE KEY-----\n"
POD: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "ray-worker",
                "env": [{"name": "WANDB_API_KEY", "value": SECRETS["wandb"]}],
                "args": ["train", "--api-key", SECRETS["flag"]],
            }
        ]
    },
    "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRETS["wandb"]}},
}


class FakeApi(JobsApi):
    """Ray's answers, with secrets in them."""

    def call(self, path: str, *_: object, **__: object) -> Any:
        if self.token.get_secret_value() != SECRETS["ray"]:
            raise WorkloadError("answered 403")
        answers = states.ray(("10.0.0.2", "10.0.0.3"), {"GPU": 8.0})
        answers["jobs"][0] |= {
            "entrypoint": f"python train.py --password {SECRETS['password']}",
            "runtime_env": {"env_vars": {"HF_TOKEN": SECRETS["env"]}},
        }
        return next(answers[part] for part, its in RAY_PATHS.items() if its == path)

    def end_of_log(self, _job: str | Job) -> tuple[str, bool]:
        packed = pack(f"NCCL INFO NET/gIB token={SECRETS['nccl']} {SECRETS['ray']}", 9, 0).to_event(3, "gpu-1")
        return f"{KEY_END}{LOG}{MARK}{json.dumps({'kind': 'nccl-log'} | packed)}\n", True


class FakeKubectl:
    """A cluster with a head, and a pod that is not ready. Secrets are requested by name only."""

    def run(self, *arguments: str) -> str:
        if arguments[0] == "logs":
            return KEY_END + LOG
        if arguments[:2] == ("get", "secrets"):
            assert arguments[2:] == ("--output=name",)
            return "secret/ray-token\n"
        return "{}"

    def get(self, kind: str, *_: str) -> list[dict[str, Any]]:
        if kind == "events":
            event = {
                "reason": "Failed",
                "message": f"pull with token={SECRETS['event']}",
                "involvedObject": {"name": "w"},
            }
            return [event]
        if kind == "nodes":
            raise WorkloadError(f"kubectl get nodes: error: Bearer {SECRETS['kubeconfig']}")
        pod = states.body("Pod", "w", POD["spec"], {"phase": "Pending"}, **POD["metadata"])
        labels = {"ray.io/node-type": "head", "ray.io/cluster": "a3u"}
        head = states.body(
            "Pod", "head", status={"phase": "Running", "conditions": states.true("Ready")}, labels=labels
        )
        return [head, pod] if kind == "pods" else []


class FakeConnection:
    """Connection to them, as `Connection` is."""

    def __init__(self, _options: object = None) -> None:
        user = {"token": SECRETS["kubeconfig"], "client-key-data": SECRETS["certificate"]}
        config = json.dumps({"users": [{"name": "me", "user": user}]})
        ray = GKE["ray"] | {"token": SECRETS["ray"], "serveToken": SECRETS["serve"], "mode": "job"}
        self.outputs = Outputs.model_validate(GKE | {"kubeconfig": config, "ray": ray})
        self.api = FakeApi("http://127.0.0.1:1", SecretStr(SECRETS["ray"]), "a3u")
        self.kubectl = FakeKubectl()

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(commands, "Connection", FakeConnection)
    monkeypatch.setenv("MY_API_KEY", SECRETS["process"])
    monkeypatch.chdir(tmp_path)


def files_of(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read().decode() for name, file in members.items() if file is not None}


def leaks(text: str) -> list[str]:
    forms = {name: (value, base64.b64encode(value.encode()).decode()) for name, value in SECRETS.items()}
    return [name for name, values in forms.items() if any(value in text for value in values)]


def test_the_bundle_has_everything_but_secrets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = "config:\n  rdma-ray:target: gke\n  a:password:\n    secure: v1:abc\n"
    (tmp_path / "Pulumi.mine.yaml").write_text(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "PROJECT", tmp_path)
        commands.inspect(out=tmp_path / "b.tar.gz", options=StackOptions(stack="mine"))
    said = capfd.readouterr()
    assert said.out == f"{tmp_path}/b.tar.gz\n"
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    files = files_of(tmp_path / "b.tar.gz")
    assert sorted(files) == [
        *("README.txt", "doctor.json", "jobs/nccl-1.log", "nccl/nccl-1/log.txt", "nccl/nccl-1/rank-003.log"),
        *("not-read.txt", "pods/w.log", "settings.yaml", "state.json"),
    ]
    assert {name: leaks(text) for name, text in files.items() if leaks(text)} == {}
    assert leaks(said.out + said.err) == []
    assert SECRETS["ray"][:8] not in files["jobs/nccl-1.log"]  # of the line that is cut
    assert "v1:abc" not in files["settings.yaml"]
    # What is not secret stays.
    assert files["jobs/nccl-1.log"].count("step 1") == 1
    assert "NET/gIB" in files["nccl/nccl-1/rank-003.log"]
    assert files["not-read.txt"].startswith("nodes: kubectl get nodes: error")
    state = json.loads(files["state.json"])
    assert state["kubernetes"]["secrets"] == [{"name": "secret/ray-token"}]
    assert state["kubernetes"]["pods"][1]["spec"]["containers"][0]["env"][0]["name"] == "WANDB_API_KEY"
    lines = files["README.txt"].splitlines()
    first = json.loads(files["doctor.json"])["findings"][0]
    assert lines[0].startswith("rdma-ray inspect: a3u (gke), ")
    assert lines[6] == f"ERROR  {first['where']}: {first['cause']}  [{first['check']}]"


def test_no_secret_is_in_the_diagnosis(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert commands.doctor(options=ResultOptions(json_file=str(tmp_path / "d.json"))) == 2
    said = capfd.readouterr()
    text = (tmp_path / "d.json").read_text()
    assert json.loads(text)["schema"] == "rdma-ray/doctor/1"
    assert ": nodes: kubectl get nodes: error: Bearer ***" in said.err
    assert leaks(text + said.out + said.err) == []


def test_a_log_that_begins_within_a_key_loses_it() -> None:
    stack = FakeConnection()
    collector = StateReader(stack)  # type: ignore[arg-type]
    state = collector.collect()
    found = bundle_of(stack, collector, state, diagnose(state), None)  # type: ignore[arg-type]
    assert found.files["pods/w.log"].startswith(b"***\nstep 1\n")


def test_an_interruption_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "b.tar.gz", b"data", mode=0o600)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("out", "why"), [("no/b.tar.gz", "there is no folder"), ("/dev/null", "not a regular file"), (".", "not a regular")]
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    out: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "Connection", None)
    with pytest.raises(WorkloadError, match=why):
        commands.inspect(out=Path(out))


class HostileApi(FakeApi):
    """The newest jobs are another user's, who chose their IDs and wrote their logs."""

    ids: tuple[str, ...] = ()
    log = ""

    def call(self, path: str, *_: object, **__: object) -> Any:
        found = super().call(path)
        if path != RAY_PATHS["jobs"]:
            return found
        return [found[0] | {"submission_id": name, "start_time": 10**12 + at} for at, name in enumerate(self.ids)]

    def end_of_log(self, _job: str | Job) -> tuple[str, bool]:
        return self.log, True


def hostile(ids: Sequence[str], log: str) -> FakeConnection:
    stack = FakeConnection()
    stack.api = HostileApi("http://127.0.0.1:1", SecretStr(SECRETS["ray"]), "a3u")
    stack.api.ids, stack.api.log = tuple(ids), log
    return stack


def inspected(stack: FakeConnection, file: Path) -> Bundle:
    """The bundle of a stack, which is in `file`, too."""
    collector = StateReader(stack)  # type: ignore[arg-type]
    state = collector.collect()
    found = bundle_of(stack, collector, state, diagnose(state), None)  # type: ignore[arg-type]
    file.write_bytes(found.packed("folder", state.time))
    return found


IDS = (
    "../../../../tmp/was-here",
    "/tmp/was-here",
    "..",
    "a/../../b",
    "CON",
    "nul.txt",
    "-rf",
    "a\nb",
    "\x1b[31m",
    "x" * 5000,
)


@pytest.mark.parametrize("tool", ["tarfile", "careless", "tar", "bsdtar"])
def test_no_id_leaves_the_folder_of_the_bundle(tmp_path: Path, tool: str) -> None:
    event = {
        "kind": "nccl-log",
        "host": "..",
        "size": 9,
        "left_out": 0,
        "data": pack("x", 1, 0).to_event(0, "")["data"],
    }
    ranks = "".join(f"{MARK}{json.dumps(event | {'rank': rank})}\n" for rank in (0, -1, 10**20, "../../x", None, True))
    found = inspected(hostile(IDS, ranks), file := tmp_path / "b.tar.gz")
    assert len([name for name in found.files if name.startswith("jobs/")]) == len(IDS)
    assert {name.rpartition("/")[2] for name in found.files if "/rank-" in name} == {"rank-000.log"}
    home = tmp_path / "a" / "b" / "c"
    home.mkdir(parents=True)
    if tool in ("tarfile", "careless"):
        with tarfile.open(file) as archive:
            assert all(member.isreg() for member in archive)
            archive.extractall(home, filter="data" if tool == "tarfile" else "fully_trusted")
    elif shutil.which(tool) is None:
        pytest.skip(f"there is no {tool}")
    else:
        subprocess.run([tool, "-xPf", file, "-C", home], check=True)
    assert [each.name for each in home.iterdir()] == ["folder"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b.tar.gz"]
    assert not Path("/tmp/was-here").exists()


def bombs(ranks: int) -> str:
    data = base64.b64encode(zlib.compress(b"NCCL INFO x\n" * (2**24 // 12), 9)).decode()
    lines = [f"{MARK}{json.dumps({'kind': 'nccl-log', 'rank': rank, 'data': data})}" for rank in range(ranks)]
    return "\n".join(lines)


LOGS = {
    "bombs": lambda: bombs(500),
    "long lines": lambda: "\n".join(["y" * 2**20] * 16),
    "many lines": lambda: "\n" * 2**24,
    "lines that look like secrets": lambda: "\n".join(["TOKEN= "] * (2**24 // 7)),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_bundle_of_hostile_jobs_is_bounded(tmp_path: Path, kind: str) -> None:
    stack = hostile([f"job-{number}" for number in range(30)], LOGS[kind]())
    began = time.process_time()
    with bounded_memory(800):
        found = inspected(stack, tmp_path / "b.tar.gz")
    assert time.process_time() - began < 30
    assert sum(map(len, found.files.values())) < SIZE
    assert (tmp_path / "b.tar.gz").stat().st_size < 2**26
    log = found.files["jobs/job-29.log"].decode()
    assert ("lines before these were left out" in log) == (kind in ("many lines", "lines that look like secrets"))
    assert ("more characters" in log) == (kind == "long lines")
    assert ("nccl/job-29: logs of more than 64 ranks" in found.files["not-read.txt"].decode()) == (kind == "bombs")


def test_state_of_a_hostile_cluster_is_bounded_and_says_what_it_lacks() -> None:
    class Many(FakeApi):
        def call(self, path: str, *_: object, **__: object) -> Any:
            found = super().call(path)
            if path == RAY_PATHS["jobs"]:
                big = {"runtime_env": {"env_vars": {f"TOKEN_{at}": f"secret-{at}-{'v' * 40}" for at in range(300)}}}
                ended = [found[0] | big | {"submission_id": f"job-{at}", "start_time": at} for at in range(3000)]
                return [*ended, found[0] | {"submission_id": "runs", "status": "RUNNING"}]
            if path == RAY_PATHS["actors"]:
                return [{"name": "x" * 10_000, "state": "ALIVE"}] * 10_000
            return found

    stack = FakeConnection()
    stack.api = Many("http://127.0.0.1:1", SecretStr(SECRETS["ray"]), "a3u")
    began = time.process_time()
    collector = StateReader(stack)  # type: ignore[arg-type]
    state = collector.collect()
    found = diagnose(state)
    assert time.process_time() - began < 30
    assert len(json.dumps(dumped(state), indent=1)) < STATE_BYTES
    assert state.ray["jobs"][0]["submission_id"] == "runs"
    assert state.cut["ended jobs"] == "the newest 1000 of 3000 were kept"
    assert "of 10000 were kept" in state.cut["ray actors"]
    # What was left out may have a problem: that is no pass.
    assert {"idle-gpus", "stale-cluster"} <= {*found.skipped} | {finding.check for finding in found.findings}
