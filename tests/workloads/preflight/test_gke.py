"""`rdma-ray preflight` on Google Cloud, in the situations of gke/situations.yaml."""

from __future__ import annotations

import fnmatch
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.machines import GKE_CATALOG
from infra.terminal import UNPRINTABLE
from tests.workloads.preflight.recorded_cli import UNKNOWN, install
from workloads.cli import main
from workloads.preflight import cli
from workloads.preflight.gcloud import PROVIDER_VARIABLES
from workloads.preflight.gke_quota import REGIONAL_GPUS

DATA = Path(__file__).parent / "gke"
RECORDINGS: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "recordings.yaml").read_text())
DOCUMENT = yaml.safe_load((DATA / "situations.yaml").read_text())
SITUATIONS: list[dict[str, Any]] = DOCUMENT["situations"]
PROGRAMS = ("gcloud", "docker")
API_ANSWERS = (
    *("regions", "project", "machines", "profiles", "versions", "apis", "roles", "billing", "bucket", "reservation"),
    *("family", "calendar", "policy-accounts", "policy-locations", "policy-nat"),
)
"""Recordings of what the real gcloud prints (test_real_gcloud.py)."""


def recordings(answers: Mapping[str, Any], everything: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]:
    """Return the recordings, with others in their place, or one for all of gcloud."""
    if everything is not None:
        return [RECORDINGS["image"] | (answers.get("image") or {}), {"argv": "gcloud *", **everything}]
    replaced = []
    for name in {**RECORDINGS, **answers}:
        given = answers.get(name, {})
        # A new document, text or failure replaces the recorded document.
        recorded = {"argv": RECORDINGS[name]["argv"]} if given and name in RECORDINGS else RECORDINGS.get(name, {})
        replaced.append({**recorded, **given})
    return replaced


def as_recording(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recording with its pattern as a regular expression, and its document as text."""
    printed = {"stdout": json.dumps(answer["document"])} if "document" in answer and "stdout" not in answer else {}
    return {**answer, **printed, "argv": fnmatch.translate(str(answer["argv"]).replace("[", "[[]"))}


def stack_file(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write a stack file."""
    file = folder / "Pulumi.test.yaml"
    file.write_text(yaml.safe_dump({"config": dict(config)}, default_flow_style=False))
    return file


def on_path(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: Sequence[Mapping[str, Any]],
    programs: tuple[str, ...] = PROGRAMS,
) -> None:
    """Make recorded programs the only ones on PATH."""
    programs_folder = folder / "bin"
    programs_folder.mkdir(exist_ok=True)
    install(programs_folder, map(as_recording, answers), programs)
    monkeypatch.setenv("PATH", str(programs_folder))
    for name in PROVIDER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def ask(folder: Path, config: Mapping[str, Any], command: str = "preflight") -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit code, and what it writes as JSON."""
    result = folder / "result.json"
    code = main([command, str(stack_file(folder, config)), f"--json={result}"])
    return code, json.loads(result.read_text())


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation["name"])
def test_situation(
    situation: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = recordings(situation.get("answers", {}), situation.get("everything"))
    on_path(tmp_path, monkeypatch, answers, tuple(p for p in PROGRAMS if p not in situation.get("without", ())))
    if "answer_s" in situation:
        monkeypatch.setattr(cli, "ANSWER_S", situation["answer_s"])
    code, document = ask(tmp_path, situation["stack"])
    unknown = tmp_path / "bin" / UNKNOWN
    assert not unknown.exists(), unknown.read_text()
    found = {answer["check"]: answer for answer in document["answers"]}
    assert len(found) == len(document["answers"])
    states = {name: ": ".join(filter(None, (each["state"], each["cause"]))) for name, each in found.items()}
    expected = dict(situation["expect"])
    others = expected.pop("all", None)
    assert {name: states.get(name) for name in expected} == expected
    if others is not None:
        assert {name: state for name, state in states.items() if name not in expected and state != others} == {}
    for name, part in situation.get("says", {}).items():
        assert part in found[name]["found"]
    for name, part in situation.get("fixes", {}).items():
        assert part in found[name]["fix"]
    assert not set(situation.get("absent", ())) & set(found)
    assert code == situation["exit"]
    printed = capsys.readouterr()
    assert not UNPRINTABLE.search(printed.out + printed.err)
    assert "ya29." not in printed.out + printed.err + json.dumps(document)


def test_every_recorded_failure_has_an_origin() -> None:
    for situation in SITUATIONS:
        failures = [each for each in situation.get("answers", {}).values() if "stderr" in each]
        assert not failures or situation.get("origin"), situation["name"]
    assert all("origin" in each or name in API_ANSWERS for name, each in RECORDINGS.items())


def test_questions_are_asked_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [{**answer, "delay": 1} for answer in recordings({})]
    on_path(tmp_path, monkeypatch, slow)
    seconds = []
    for _ in range(2):  # the better of two: the machine may be busy
        start = time.monotonic()
        code, document = ask(tmp_path, DOCUMENT["stacks"]["all"])
        seconds.append(time.monotonic() - start)
        assert code == 0
        assert len({answer["asked"] for answer in document["answers"]}) > 12
    assert min(seconds) < 10


def test_slow_command_is_stopped_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child"
    on_path(tmp_path, monkeypatch, [])
    script = f"#!/bin/sh\n/bin/sh -c '/bin/sleep 4; echo late > {child}' &\n/bin/sleep 60\n"
    (tmp_path / "bin" / "gcloud").write_text(script)
    monkeypatch.setattr(cli, "ANSWER_S", 0.5)
    code, _ = ask(tmp_path, DOCUMENT["stacks"]["first"])
    assert code == 5
    time.sleep(4.5)
    assert not child.exists()


def test_machines_on_demand_have_a_quota_of_the_region() -> None:
    # The quota of a family of GPUs has no usage, without which nothing about nodes on demand would be certain.
    on_demand = {machine.gpu for machine in GKE_CATALOG.values() if machine.gpus and "on-demand" in machine.capacities}
    assert on_demand <= set(REGIONAL_GPUS)
