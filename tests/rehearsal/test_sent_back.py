"""What users sent back: each accepted configuration is rehearsed, and a document becomes a fact or changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import PULUMI, RAY
from infra.outputs import Outputs
from infra.settings import from_stack_file
from infra.settings.stack_file import read_config
from rehearsal.accept import LARGEST, NotAcceptedError, accept, main, read, rehearse, write_stack_file
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.durations import SENT_BACK, published_seconds, sent_back
from tests.rehearsal.test_cloud_stacks import STACKS
from tests.rehearsal.test_settings import VARIATIONS, outputs
from tests.unit.stacks import written
from workloads.feedback import engine_runs
from workloads.feedback.collect import evidence_of, leaks
from workloads.feedback.document import KEPT_BACK, EngineRun, SentEvidence

Json = dict[str, Any]
NETWORK, CLUSTER = "gcp:compute/network:Network", "gcp:container/cluster:Cluster"
RUN: Json = {
    "date": "2026-11-28",
    "command": "up",
    "complete": True,
    "unfinished": 0,
    "operations": [{"op": "create", "type": NETWORK, "seconds": 31}, {"op": "create", "type": CLUSTER, "seconds": 411}],
}


def document_of(stack: str, changes: Mapping[str, Any] | None = None, folder: Path = ROOT) -> SentEvidence:
    """Return the document of a stack file with changes, after one run of the engine."""
    file = ROOT / f"Pulumi.{stack}.yaml" if changes is None else written(stack, changes, folder)
    runs = [EngineRun.model_validate(RUN)]
    return evidence_of(from_stack_file(file), read_config(file), {"engine": f"v{PULUMI}"}, runs=runs)


ACCEPTED = {file.stem: file for file in sorted(SENT_BACK.glob("*.json"))}


@pytest.mark.parametrize("name", ["gke-first", "eks-first", "kubernetes", *ACCEPTED])
def test_accepted_configuration_is_accepted(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    """By the rules of the settings and of the simulated clouds; so is one like our own stack files, one per target."""
    document = read(ACCEPTED[name]) if name in ACCEPTED else document_of(name)
    rehearse(write_stack_file(document, tmp_path), Workspace(tmp_path / "rehearsal", fork_server.bin))


@pytest.mark.parametrize("name", [*STACKS, *VARIATIONS])
def test_document_leads_back_to_the_settings(name: str, tmp_path: Path) -> None:
    """With another value in place of each one that was kept back, the rules still accept the stack file."""
    stack, changes = VARIATIONS.get(name, (name, {}))
    document = document_of(stack, changes, tmp_path)
    assert leaks(document, config=read_config(tmp_path / f"Pulumi.{stack}.yaml"), stack=stack) == []
    again = write_stack_file(document, tmp_path)
    found = evidence_of(from_stack_file(again), read_config(again), {})
    assert (found.settings, found.region) == (document.settings, document.region)
    assert set(found.set_) == {path for path in document.set_ if KEPT_BACK[path] is not None}


def test_rehearsed_run_becomes_a_duration_and_a_configuration(fork_server: ForkServer, tmp_path: Path) -> None:
    """The events are those of the real engine. Simulated requests take no time, so each gets a second more."""
    file, folder = ROOT / "Pulumi.gke-first.yaml", tmp_path / "sent_back"
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    workspace.begin("gke-first", file)
    engine = Engine(workspace, "gke-first")
    engine.init()
    with engine_runs.recording(tmp_path, "gke-first", "up") as log:
        assert engine.up(*log).ok
    deployment = json.loads(engine.must("stack", "export", "--show-secrets", stack=True).text)["deployment"]
    own = Outputs.model_validate(outputs(deployment))
    assert own.kubeconfig is not None
    settings, config, runs = from_stack_file(file), read_config(file), engine_runs.recorded(tmp_path, "gke-first")
    assert [(run.command, run.complete, run.unfinished) for run in runs] == [("up", True, 0)]
    operations = [each.model_copy(update={"seconds": each.seconds + 1}) for each in runs[0].operations]
    runs = [runs[0].model_copy(update={"operations": operations})]
    document = evidence_of(settings, config, {"engine": f"v{PULUMI}"}, runs=runs)
    assert leaks(document, config=config, stack="gke-first", outputs=own) == []
    sent = tmp_path / "sent.json"
    sent.write_text(document.to_json(), encoding="utf-8")
    assert published_seconds("gcp:storage/bucketIAMMember:BucketIAMMember", "create", folder) is None
    sent_back.cache_clear()
    written = accept(sent, folder, lambda file: rehearse(file, workspace))
    assert accept(sent, folder) == written
    assert [*folder.iterdir()] == [written]
    (figure,) = sent_back(folder)["gcp:storage/bucketIAMMember:BucketIAMMember", "create"]
    assert 1 <= figure.seconds < 60
    assert figure.source == "sent back by a user: 2 on gke, us-central1"
    assert figure.date == document.date
    assert published_seconds("gcp:storage/bucketIAMMember:BucketIAMMember", "create", folder) == figure.seconds
    assert read(written) == document


def test_later_document_of_a_stack_adds_its_new_runs(tmp_path: Path) -> None:
    first = document_of("gke-first")
    assert isinstance(first.runs, list)
    down = first.runs[0].model_copy(update={"command": "destroy"})
    second = first.model_copy(update={"runs": [*first.runs, down]})
    folder = tmp_path / "sent_back"
    for number, document in enumerate((first, second, second)):
        (file := tmp_path / f"{number}.json").write_text(document.to_json(), encoding="utf-8")
        accept(file, folder, lambda _file: None)
    kept = [SentEvidence.model_validate_json(file.read_bytes()).runs for file in folder.iterdir()]
    assert sorted(map(str, kept)) == sorted(map(str, ([down], first.runs)))


HOSTILE: dict[str, Callable[[Json], Json | str]] = {
    "another schema": lambda sent: sent | {"schema": "rdma-ray/evidence/2"},
    "a key more, for a terminal": lambda sent: sent | {"\x1b[2J": "hello"},
    "a key less": lambda sent: {name: value for name, value in sent.items() if name != "settings"},
    "a list": lambda sent: json.dumps([sent]),
    "NaN": lambda sent: json.dumps(sent).replace("411", "NaN"),
    "infinity": lambda sent: json.dumps(sent).replace("411", "1e999"),
    "a key twice": lambda sent: json.dumps(sent).replace('"seconds": 411', '"seconds": 411, "seconds": 1'),
    "a text as a number": lambda sent: json.dumps(sent).replace("411", '"411"'),
    "a negative time": lambda sent: json.dumps(sent).replace("411", "-1"),
    "a time of days": lambda sent: json.dumps(sent).replace("411", "90000"),
    "deep": lambda _sent: "[" * 100_000,
    "huge": lambda sent: json.dumps(sent) + " " * LARGEST,
    "not JSON": lambda _sent: "\x00\xff",
    "a path as the target": lambda sent: sent | {"target": "../../../etc"},
    "a path as the date": lambda sent: sent | {"date": "../../2026-11-28"},
    "a date that is none": lambda sent: sent | {"date": "2026-02-31"},
    "the future": lambda sent: sent | {"date": "2099-01-01"},
    "an unknown setting": lambda sent: sent | {"settings": sent["settings"] | {"nodes.shell": 1}},
    "a setting that is kept back": lambda sent: sent | {"settings": sent["settings"] | {"storage.bucket": "b"}},
    "code in a setting": lambda sent: sent | {"settings": sent["settings"] | {"location": "us-central1-a\n- !!python"}},
    "a name of no setting": lambda sent: sent | {"set": ["../x"]},
    "words in a version": lambda sent: sent | {"versions": {"ray": f"{RAY} <script>"}},
    "a type of no cloud": lambda sent: json.dumps(sent).replace(NETWORK, "gcp:compute/evil:Evil"),
    "no type": lambda sent: json.dumps(sent).replace(NETWORK, "gcp:<b>:Network"),
    "no run": lambda sent: sent | {"runs": "unknown: no record of `make up` in this clone"},
    "no run that succeeded": lambda sent: sent | {"runs": [RUN | {"complete": False}]},
    "many runs": lambda sent: sent | {"runs": [RUN | {"operations": RUN["operations"] * 1001}]},
    "this machine": lambda sent: sent | {"target": "local", "tier": "machine"},
    "another tier": lambda sent: sent | {"tier": "machine"},
    "settings that contradict": lambda sent: sent | {"settings": sent["settings"] | {"nodes.min": 5, "nodes.max": 2}},
    "a configuration that its cloud refuses": lambda sent: (
        sent | {"settings": sent["settings"] | {"location": "africa-south1-a"}}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_document_is_refused_and_nothing_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = HOSTILE[name](json.loads(document_of("gke-first").to_json()))
    file, folder = tmp_path / "sent.json", tmp_path / "sent_back"
    file.write_text(sent if isinstance(sent, str) else json.dumps(sent), encoding="utf-8")
    monkeypatch.setattr("rehearsal.accept.accept", partial(accept, folder=folder))
    assert main([str(file)]) == 1
    assert not folder.exists()
    said = capsys.readouterr().err
    assert "is not accepted" in said
    # The engine's word for an output without a value is not the document's.
    assert "<" not in said.replace("<null>", "")
    assert "\x1b" not in said


def test_refusals_name_the_place_and_not_the_value(tmp_path: Path) -> None:
    sent = json.loads(document_of("gke-first").to_json())
    sent["versions"]["ray"] = "planted-secret"
    (file := tmp_path / "sent.json").write_text(json.dumps(sent), encoding="utf-8")
    with pytest.raises(NotAcceptedError, match=r"^versions\.ray") as refused:
        read(file)
    assert "planted" not in str(refused.value)
