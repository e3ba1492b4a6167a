"""`rdma-ray evidence`: no secret and no name of any input is in the document, and every setting was decided upon."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from infra.catalog.pins import PULUMI, RAY
from infra.outputs import Outputs
from infra.settings import from_stack_file
from infra.settings.load import PATHS, SETTINGS
from infra.settings.stack_file import read_config
from tests.workloads.conftest import ROOT
from tests.workloads.doctor import states
from tests.workloads.nccl import results
from tests.workloads.stack_outputs import GKE
from workloads.cli import main
from workloads.exits import Exit
from workloads.feedback import commands, engine_runs
from workloads.feedback import document as form
from workloads.feedback.collect import evidence_of, leaks
from workloads.nccl.result import BenchResult

PLANTED = {
    "project": "acme-research-7",
    "bucket": "acme-weights",
    "path of the image": "europe-docker.pkg.dev/acme-research-7/train/ray",
    "reservation": "projects/acme-research-7/reservations/acme-h200",
    "subnetwork": "projects/acme-host/regions/us-central1/subnetworks/acme-train",
    "range": "acme-pods",
    "network": "198.51.100.0/24",
    "email": "billing@acme.example",
    "billing account": "0ACDE1-0ACDE2-0ACDE3",
    "variable": "WANDB_ENTITY=acme-0123456789abcdef",
    "Secret": "acme-huggingface",
    "claim": "acme-datasets",
    "priority class": "acme-high",
    "node": "gke-acme-gpu-0a1b2c3d-x1y2",
    "host": "acme-host-1.c.acme-research-7.internal",
    "address": "10.200.129.77",
    "word of the cluster": "acmesecret",
    "ARN": "arn:aws:iam::444455556666:role/acme",
    "token": "t0ken-of-acme-0123456789abcdef",
    "server": "https://34.1.2.3",
}
SETTINGS_PLANTED = {
    "rdma-ray:storage": {"bucket": PLANTED["bucket"]},
    "rdma-ray:network": {"subnetwork": PLANTED["subnetwork"], "podsRange": PLANTED["range"]},
    "rdma-ray:access": {"authorizedNetworks": [PLANTED["network"]], "publicEndpoint": True},
    "rdma-ray:budget": {"monthly": 77_777, "email": PLANTED["email"], "billingAccount": PLANTED["billing account"]},
    "rdma-ray:ray": {
        "image": f"{PLANTED['path of the image']}:acme-{RAY}-private",
        "env": [PLANTED["variable"]],
        "secrets": [PLANTED["Secret"]],
        "volumes": [f"{PLANTED['claim']}=/acme"],
        "priorityClass": PLANTED["priority class"],
    },
}
KUBECONFIG = {
    "clusters": [{"name": "acme-cluster", "cluster": {"server": PLANTED["server"]}}],
    "users": [{"name": "acme-user", "user": {"token": "kube-0123456789abcdef"}}],
}
WORDS = [*PLANTED.values(), "77777", "acme", "acme-cluster", "kube-0123456789abcdef", "34.1.2.3", "444455556666"]


def test_every_setting_is_either_sent_or_kept_back() -> None:
    """A new setting belongs to a list of workloads/feedback/settings.yaml; text that is sent needs a form."""
    assert sorted([*form.SENT, *form.KEPT_BACK]) == sorted(PATHS)
    texts = {
        path
        for path in form.SENT
        for setting in SETTINGS[path].values()
        if setting.schema["type"] not in ("integer", "boolean") and not setting.every_name
    }
    assert texts == set(form.TEXTS)
    assert not any(setting.secret for path in form.SENT for setting in SETTINGS[path].values())


@pytest.fixture
def stack_file(tmp_path: Path) -> Path:
    """A stack file in which every text is a name or a secret of a user."""
    content = yaml.safe_load((ROOT / "Pulumi.gke.yaml").read_text(encoding="utf-8"))
    content["config"] |= SETTINGS_PLANTED | {"gcp:project": PLANTED["project"]}
    nodes = {"machine": "a3-ultragpu-8g", "capacity": "reservation", "reservation": PLANTED["reservation"]}
    content["config"]["rdma-ray:nodes"] = nodes
    file = tmp_path / "Pulumi.acme.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def outputs() -> Outputs:
    ray = GKE["ray"] | {"token": PLANTED["token"], "cluster": "acme-ray"}
    return Outputs.model_validate(GKE | {"kubeconfig": json.dumps(KUBECONFIG), "ray": ray})


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every text, a number for any element of a list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*where, name))
    elif isinstance(value, list):
        for inner in value:
            yield from places(inner, (*where, 0))
    elif isinstance(value, str):
        yield where


def replaced(value: Any, where: tuple[Any, ...], text: str) -> Any:
    """Return a value with a text at a place, in all elements of a list."""
    if not where:
        return text if isinstance(value, str) else value
    if isinstance(value, list):
        return [replaced(inner, where[1:], text) for inner in value]
    if isinstance(value, dict) and where[0] in value:
        return value | {where[0]: replaced(value[where[0]], where[1:], text)}
    return value


def planted_bench() -> tuple[BenchResult, int]:
    """Return a benchmark with a planted word in each text that its model takes, and the number of these texts."""
    document = results.fabric(sizes=[2**33]).model_dump(mode="json", by_alias=True)
    many = 0
    for number, place in enumerate(dict.fromkeys(places(document))):
        changed = replaced(document, place, [PLANTED["word of the cluster"], PLANTED["host"]][number % 2])
        try:
            BenchResult.model_validate(changed)
        except ValidationError:
            continue
        document, many = changed, many + 1
    return BenchResult.model_validate(document), many


def planted_state() -> Any:
    """Return a state in which nodes, pods, events and probes have planted names, addresses and versions."""
    state = states.cloud("gke")
    text = json.dumps(state.kubernetes).replace("gpu-0", PLANTED["node"]).replace("10.0.0.2", PLANTED["address"])
    objects = json.loads(text)
    for pod in objects["pods"][:1]:
        waiting = {"reason": "ImagePullBackOff", "message": f"{PLANTED['path of the image']}: {PLANTED['token']}"}
        pod["status"]["containerStatuses"][0] |= {"ready": False, "state": {"waiting": waiting}}
        pod["status"]["conditions"] = []
    word = PLANTED["word of the cluster"]
    probes = [
        probe.model_copy(
            update={"host": PLANTED["host"], "ip": PLANTED["address"], "driver": word}
            | {"versions": dict.fromkeys(probe.versions, f"{RAY}-{word}"), "plugin": word}
        )
        for probe in state.probes
    ]
    return state.model_copy(update={"kubernetes": objects, "probes": probes, "outputs": outputs()})


def write_events(file: Path, *, finished: bool = True) -> None:
    """Write events as the engine does, with planted names in URNs, inputs, types and messages."""
    new = {"custom": True, "inputs": {"name": PLANTED["bucket"], "token": PLANTED["token"]}}
    lines: list[Any] = [{"timestamp": 90, "preludeEvent": {"config": {"gcp:project": PLANTED["project"]}}}]
    for name, type_, op, seconds in (
        ("one", "gcp:compute/network:Network", "create", 22),
        ("two", "gcp:container/nodePool:NodePool", "update", 300),
        ("old", "gcp:compute/subnetwork:Subnetwork", "delete-replaced", 14),
        ("three", f"gcp:{PLANTED['bucket']} {PLANTED['host']}:Network", "create", 5),
        ("random", "random:index/randomId:RandomId", "create", 0),
        ("same", "gcp:compute/router:Router", "same", 0),
    ):
        metadata = {"op": op, "urn": f"urn:pulumi:acme::{name}", "type": type_, "new": new}
        lines.append({"timestamp": 100, "resourcePreEvent": {"metadata": metadata}})
        lines.append({"timestamp": 100 + seconds, "resOutputsEvent": {"metadata": metadata}})
    lines.append({"timestamp": 400, "diagnosticEvent": {"message": PLANTED["token"]}})
    if not finished:
        metadata = {"op": "create", "urn": "urn:pulumi:acme::four", "type": "gcp:container/cluster:Cluster", "new": new}
        lines.append({"timestamp": 400, "resourcePreEvent": {"metadata": metadata}})
    lines += [{"timestamp": 401, "summaryEvent": {"result": "succeeded"}}] if finished else []
    cut = "" if finished else '{"timestamp": 402, "resOutputsEv'
    file.write_text("\n".join(map(json.dumps, lines)) + f"\n{cut}", encoding="utf-8")


def test_no_planted_secret_or_name_is_in_the_document(stack_file: Path, tmp_path: Path) -> None:
    write_events(tmp_path / "events")
    bench, many = planted_bench()
    assert many > 30
    settings, config = from_stack_file(stack_file), read_config(stack_file)
    versions: dict[str, str | None] = dict.fromkeys(
        ("engine", "kubernetes"), f"v{PULUMI}-{PLANTED['word of the cluster']}"
    )
    state, runs = planted_state(), [engine_runs.run_of(tmp_path / "events", "up")]
    document = evidence_of(settings, config, versions, state=state, bench=bench, runs=runs)
    text = document.to_json()
    assert [word for word in WORDS if word.lower() in text.lower()] == []
    known = {"stack": "acme", "config": config, "outputs": outputs(), "state": state, "bench": bench}
    assert leaks(document, **known) == []
    assert set(document.versions.values()) & {form.NOT_READ}
    assert document.settings["nodes.machine"] == "a3-ultragpu-8g"
    assert set(document.set_) > {"nodes.reservation", "storage.bucket", "ray.image", "ray.env", "budget.email"}
    assert isinstance(document.doctor, form.DoctorSummary)
    assert "pods" in {finding.check for finding in document.doctor.findings}
    assert isinstance(document.bench, form.BenchSummary)
    assert document.bench.rows == []  # no operation has a name that is one


def test_interrupted_run_of_the_engine_has_what_it_finished(tmp_path: Path) -> None:
    events = tmp_path / "events"
    write_events(events, finished=False)
    run = engine_runs.run_of(events, "up")
    assert [(each.op, each.type.rpartition(":")[2], each.seconds) for each in run.operations] == [
        ("create", "Network", 22),
        ("delete", "Subnetwork", 14),
        ("update", "NodePool", 300),
    ]
    assert (run.complete, run.unfinished) == (False, 1)


def test_runs_are_recorded_and_nothing_else_stays(tmp_path: Path) -> None:
    for finished in (False, True):
        with engine_runs.recording(tmp_path, "acme", "up") as (option, path):
            assert (option, Path(path).stat().st_mode & 0o777) == ("--event-log", 0o600)
            write_events(Path(path), finished=finished)
    with engine_runs.recording(tmp_path, "acme", "up"):
        pass  # the engine wrote nothing: a lock, or no change
    assert [run.complete for run in engine_runs.recorded(tmp_path, "acme")] == [False, True]
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["acme.jsonl"]
    text = engine_runs.record_of(tmp_path, "acme").read_text(encoding="utf-8")
    assert [word for word in WORDS if word in text] == []


LEAKS: dict[str, tuple[str, Callable[[], str]]] = {
    "secret": ("a secret", lambda: PLANTED["token"]),
    "kubeconfig": ("a secret", lambda: "kube-0123456789abcdef"),
    "project": ("a name in the stack file", lambda: PLANTED["project"]),
    "part of a path": ("a name in the stack file", lambda: "acme-host"),
    "user": ("a name of this machine", lambda: "by ann.lee"),
    "host": ("a name of this machine", lambda: "ann-laptop"),
    "cluster": ("a name of the cluster", lambda: "acme-cluster"),
    "node": ("a name of a node", lambda: PLANTED["host"]),
    "IPv4": ("an IP address", lambda: "192.0.2.7"),
    "IPv6": ("an IP address", lambda: "2001:db8:0:1:2:3:4:5"),
    "email": ("an email address", lambda: "ann@corp.example"),
    "ARN": ("an ARN", lambda: "arn:aws:iam::1:role/x"),
    "account": ("the number of an account", lambda: "444455556666"),
    "URL": ("a URL or path", lambda: "gs://other"),
    "path": ("a URL or path", lambda: "/home/ann"),
    "device": ("the address of a device", lambda: "0000:8a:00.0"),
    "host name": ("the name of a host", lambda: "vm-7.c.other.internal"),
}


@pytest.mark.parametrize("name", LEAKS)
def test_leak_is_found_and_named_by_its_kind(name: str, stack_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even in a text that is not of its form, which only a mistake of ours could let in."""
    monkeypatch.setattr(getpass, "getuser", lambda: "ann.lee")
    monkeypatch.setattr(socket, "gethostname", lambda: "ann-laptop")
    kind, value = LEAKS[name][0], LEAKS[name][1]()
    settings, config = from_stack_file(stack_file), read_config(stack_file)
    state = planted_state()
    document = evidence_of(settings, config, {}, state=state)
    document = document.model_copy(update={"versions": {"ray": f"{RAY} {value}"}})
    found = leaks(document, config=config, stack="acme", outputs=outputs(), state=state)
    assert any(line.startswith(kind) for line in found), found
    assert not any(value in line for line in found)


@pytest.fixture
def project(stack_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a clone with the stack `acme`, which is not up."""
    monkeypatch.setattr(commands, "PROJECT", stack_file.parent)
    (stack_file.parent / "Pulumi.yaml").write_text("name: rdma-ray\n")
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(stack_file.parent / "no such file"))
    return stack_file.parent


def test_command_writes_what_there_is_of_a_stack_that_is_down(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with engine_runs.recording(project, "acme", "up") as (_, path):
        write_events(Path(path))
    result = project / "results" / "acme" / "nccl" / "result.json"
    result.parent.mkdir(parents=True)
    result.write_text(results.fabric(sizes=[2**33]).as_json(), encoding="utf-8")
    out = project / "evidence.json"
    assert main(["evidence", "--stack", "acme", "--out", str(out)]) == Exit.OK
    document = form.SentEvidence.model_validate_json(out.read_bytes(), strict=True)
    assert document.doctor == form.NOT_UP
    assert isinstance(document.bench, form.BenchSummary)
    assert document.bench.transport is not None
    assert (document.bench.outcome, document.bench.gpus, document.bench.transport.nics) == (
        "pass",
        ["NVIDIA H200"],
        [8, 8],
    )
    assert out.stat().st_mode & 0o777 == 0o600
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert "the longest update gcp:container/nodePool:NodePool in 300 s" in said.err
    assert re.search("bench +pass", said.err)


def test_benchmark_beyond_all_limits_is_one_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = results.fabric(sizes=[2**33])
    assert bench.world is not None
    huge = bench.model_copy(update={"world": bench.world.model_copy(update={"machines": 10**12})})
    (file := project / "huge.json").write_text(huge.as_json(), encoding="utf-8")
    out = project / "evidence.json"
    assert main(["evidence", "--stack", "acme", "--bench", str(file), "--out", str(out)]) == Exit.ERROR
    assert "beyond the limits of machines" in capsys.readouterr().err
    assert not out.exists()


def test_nothing_is_written_if_something_leaks(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        form.SentEvidence, "to_json", lambda _self: json.dumps({"versions": {"ray": PLANTED["bucket"]}})
    )
    out = project / "evidence.json"
    assert main(["evidence", "--stack", "acme", "--out", str(out)]) == Exit.ERROR
    assert not out.exists()
    said = capsys.readouterr().err
    assert "a name in the stack file in versions.ray" in said
    assert PLANTED["bucket"] not in said
