"""The report of drift: hostile names and values, secrets, length, order and exit status. No engine runs here.

`tests/rehearsal/test_drift.py` has the texts of real events.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clone import executable
from tools import drift
from tools.drift import DRIFTED, LONGEST, report
from tools.drift_events import CAUSES, Action, Difference, Drifted, Findings, findings
from tools.markdown import value
from workloads.secrecy import Masker

POOL = "gcp:container/nodePool:NodePool"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
SUCCEEDED = {"summaryEvent": {"result": "succeeded"}}
HOSTILE = (
    "`@everyone`",
    "|<img src=x onerror=alert(1)>|",
    "a\n\n# Approved\n@octocat please merge",
    "\x1b[2J\u202egnp.exe",
    "](https://evil.example)[",
    "<!-- rdma-ray: drift -->",
    "#1 closes #2",
)


def resource(type_: str, name: str, inputs: Any, **more: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:gke::rdma-ray::rdma-ray:gke:GkeStack${type_}::{name}"
    return {"urn": urn, "type": type_, "custom": True, "inputs": inputs, "outputs": {}, **more}


def refreshed(old: dict[str, Any], new: Any, *paths: str) -> dict[str, Any]:
    found = None if new is None else {**old, "inputs": new}
    metadata = {"op": "refresh", "urn": old["urn"], "type": old["type"], "old": old, "new": found}
    details = {path: {"diffKind": "update", "inputDiff": True} for path in paths}
    return {"resOutputsEvent": {"metadata": {**metadata, "detailedDiff": details}}}


def step(op: str, of: dict[str, Any], **details: str) -> dict[str, Any]:
    detailed = {path: {"diffKind": kind, "inputDiff": True} for path, kind in details.items()}
    return {
        "resourcePreEvent": {"metadata": {"op": op, "urn": of["urn"], "type": of["type"], "detailedDiff": detailed}}
    }


def read(*events: dict[str, Any], known: Masker | None = None) -> Findings:
    return findings(map(json.dumps, [*events, SUCCEEDED]), known)


def outside_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", text)


def drifted(name: str, before: str, now: str, action: Action = "update") -> Findings:
    urn = f"urn:pulumi:gke::rdma-ray::{POOL}::{name}"
    difference = Difference(f'labels["{name}"]', before, now, set_back=True)
    return Findings((Drifted(urn=urn, type=POOL, gone=False, differences=(difference,), action=action),), ())


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("action", ["update", "nothing", "replace"])
def test_hostile_text_stays_in_its_cell(text: str, action: Action) -> None:
    shown = report(text, drifted(text, text, text, action))
    harmless = report("gke", drifted("gke", "a", "b", action))
    assert len(shown.splitlines()) == len(harmless.splitlines())
    assert outside_code(shown).replace("¦", "") == outside_code(harmless)


@given(st.text(), st.text())
def test_no_text_leaves_code(one: str, other: str) -> None:
    shown = value(one + other)
    assert re.fullmatch(r"`[^`\n|]+`( … \d+ more characters)?", shown)
    assert shown.isprintable()


def test_long_values_and_many_resources_have_a_limit_and_the_worst_is_kept() -> None:
    old = [resource(POOL, f"pool-{at:04}", {f"p{n}": "x" * 500 for n in range(40)}) for at in range(300)]
    events = [refreshed(each, {f"p{n}": "y" * 500 for n in range(40)}, *(f"p{n}" for n in range(40))) for each in old]
    steps = [step("update", each, p1="update") for each in old[:-1]] + [step("replace", old[-1], p1="update-replace")]
    text = report("gke", read(*events, *steps))
    assert len(text) <= LONGEST
    assert "300 resources, 1 by replacement or deletion" in text
    assert "🔴 REPLACE: `NodePool pool-0299`" in text
    assert "more parts have no room here" in text
    assert max(map(len, text.splitlines())) < 6000


def test_gone_resources_are_one_section_of_a_limited_length() -> None:
    old = [resource(CONFIG_MAP, f"config-{at}", {}) for at in range(5000)]
    events = [each for one in old for each in (refreshed(one, None), step("create", one))]
    text = report("gke", read(*events))
    assert text.count("CREATE AGAIN") == 1
    assert "… and 4900 more" in text
    assert len(text) <= LONGEST


@pytest.mark.parametrize(
    ("type_", "path", "before", "now"),
    [
        ("kubernetes:core/v1:Secret", "data.auth_token", None, "aHVudGVyMg=="),
        ("kubernetes:core/v1:Secret", "stringData.x", "[secret]", "hunter2"),
        (CONFIG_MAP, "data.x", "[secret]", "hunter2"),
        (CONFIG_MAP, "data.x", {"deep": ["[secret]"]}, {"deep": ["hunter2"]}),
        (CONFIG_MAP, "data.password", "hunter1", "hunter2"),
        (CONFIG_MAP, 'data["api-key"]', "hunter1", "hunter2"),
        (CONFIG_MAP, "data.url", "https://a:hunter1@example.com", "https://a:hunter2@example.com"),
        (CONFIG_MAP, "data.x", "nothing", "the phrase my-known-phrase"),
        (CONFIG_MAP, "data.x", "ghp_" + "a" * 36, "ghp_" + "b" * 36),
    ],
)
def test_secret_values_are_on_neither_side(type_: str, path: str, before: Any, now: Any) -> None:
    top, _, last = path.partition(".") if "[" not in path else ("data", "", "api-key")
    old = resource(type_, "thing", {top: {last: before}} if before is not None else {})
    found = read(refreshed(old, {top: {last: now}}, path), step("update", old), known=Masker(["my-known-phrase"]))
    text = report("gke", found)
    assert "| `a secret` | `another secret` |" in text
    assert not re.search("hunter|aHVud|my-known-phrase|ghp_", text)


@pytest.mark.parametrize("path", ["env[1].value", "env[1]", "env"])
def test_value_of_a_secret_variable_is_on_neither_side(path: str) -> None:
    """A person may have written it with kubectl, so no state knows that it is a secret."""
    before, now = (
        [{"name": "A", "value": "1"}, {"name": "WANDB_API_KEY", "value": each}] for each in ("one", "hunter2")
    )
    old = resource(CONFIG_MAP, "thing", {"env": before})
    text = report("gke", read(refreshed(old, {"env": now}, path), step("update", old)))
    assert "| `a secret` | `another secret` |" in text
    assert "hunter" not in text


def test_what_up_does_is_told_for_each_resource() -> None:
    pool, gone, kept, old_one, other = (
        resource(POOL, name, {"a": 1, "nodeCount": 1}, protect=True)
        for name in ("pool", "gone", "kept", "old", "other")
    )
    found = read(
        refreshed(pool, {"a": 2, "nodeCount": 2}, "a", "nodeCount"),
        refreshed(gone, None),
        refreshed(kept, {"a": 1, "nodeCount": 3}, "nodeCount"),
        refreshed(old_one, {"a": 3}, "a"),
        refreshed(other, {"a": 1, "nodeCount": 1}),
        step("same", kept),
        step("update", pool, a="update"),
        step("create", gone),
        step("delete", old_one),
        step("replace", other, a="update-replace"),
    )
    assert [(each.name, each.action) for each in found.drifted] == [
        ("NodePool old", "delete"),
        ("NodePool gone", "create"),
        ("NodePool pool", "update"),
        ("NodePool kept", "nothing"),
    ]
    assert found.others == (("replace", "NodePool other"),)
    text = report("gke", found)
    order = (
        "DELETE: `NodePool old`",
        "- `NodePool gone`",
        "SET BACK: `NodePool pool`",
        "| `NodePool kept` |",
        "replace `N",
    )
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert "sets the resource back in place, and leaves `nodeCount`." in text
    assert "`make up` is refused instead." in text


def test_only_what_up_acts_on_is_drift() -> None:
    old = resource(POOL, "pool", {"nodeCount": 1})
    assert read(refreshed(old, {"nodeCount": 2}, "nodeCount"), step("same", old)).acted_on == ()
    assert read(refreshed(old, {"nodeCount": 1}), step("update", old, a="update")).acted_on == ()


def test_failed_preview_tells_what_is_gone() -> None:
    """A cluster that is gone makes every preview fail, since nothing in it can be read."""
    cluster, inside = resource("gcp:container/cluster:Cluster", "cluster", {}), resource(CONFIG_MAP, "config", {"a": 1})
    events = [refreshed(cluster, None), refreshed(inside, {"a": 2}, "a"), {"summaryEvent": {"result": "failed"}}]
    found = findings(map(json.dumps, events))
    text = report("gke", found)
    assert [each.name for each in found.acted_on] == ["Cluster cluster"]
    assert "the preview failed, and the cloud no longer has 1 resource" in text
    assert "PULUMI_K8S_DELETE_UNREACHABLE=true" in text


@pytest.mark.parametrize("events", [[], [{"summaryEvent": {"result": "failed"}}]])
def test_unfinished_preview_is_no_report(events: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="failed"):
        findings(map(json.dumps, events))


def test_every_cause_has_a_source_with_a_date() -> None:
    for row in CAUSES:
        assert {"may", "types", "properties", "source"} <= row.keys() <= {*row, "outputs", "then"}
        assert re.search(r"\b20\d\d-\d\d", row["source"])


@pytest.mark.parametrize(("op", "status"), [("same", 0), ("update", DRIFTED)])
def test_exit_status_and_report_of_the_command(
    op: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = resource(POOL, "pool", {"a": 1})
    events = [refreshed(old, {"a": 2}, "a"), step(op, old, a="update"), SUCCEEDED]
    (tmp_path / "events").write_text("\n".join(map(json.dumps, events)) + "\n")
    # The log is the last argument.
    executable(tmp_path / "pulumi", f'#!/bin/sh\nfor last; do :; done\ncp {tmp_path}/events "$last"\n')
    monkeypatch.setattr(drift, "PULUMI", str(tmp_path / "pulumi"))
    out = tmp_path / "new" / "drift.json"
    assert drift.main(["--stack", "gke", "--out", str(out)]) == status
    written = json.loads(out.read_text())
    assert written["drifted"] is bool(status)
    assert written["text"] in capsys.readouterr().out


@pytest.mark.parametrize("status", [1, DRIFTED, 255])
def test_failed_preview_is_not_drift_and_its_output_is_printed(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine exits with 3 if it cannot sign in."""
    executable(tmp_path / "pulumi", f"#!/bin/sh\necho 'error: no stack named gke'\nexit {status}\n")
    monkeypatch.setattr(drift, "PULUMI", str(tmp_path / "pulumi"))
    assert drift.main(["--stack", "gke", "--out", str(tmp_path / "drift.json")]) == 1
    assert "no stack named gke" in capsys.readouterr().out
    assert not (tmp_path / "drift.json").exists()
