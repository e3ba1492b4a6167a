"""Reports of a rehearsal from hand-written deployments; no engine runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rehearsal.graph import Graph
from rehearsal.report.durations import DURATIONS
from rehearsal.report.golden import golden, masked
from rehearsal.report.labels import gist, span, spans_of_names
from rehearsal.report.markdown import markdown
from rehearsal.report.mermaid import mermaid
from rehearsal.report.outcome import Change, Operation, Outcome, Phase
from tests.rehearsal.deployments import SECRET, SIGNATURE, Deployment, gke

CLUSTER, POOL = "gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"
NETWORK, MEMBER = "gcp:compute/network:Network", "gcp:projects/iAMMember:IAMMember"


def change(type_: str, name: str, op: Operation, *reasons: str) -> Change:
    return Change(urn=f"urn:pulumi:gke::rdma-ray::{type_}::{name}", name=name, type=type_, op=op, reasons=reasons)


def outcome(*changes: Change, deployment: Deployment | None = None) -> Outcome:
    return Outcome(
        stack="gke",
        target="gke",
        seconds=12.3,
        phases=(
            Phase(name="up", ok=True, seconds=5.2, said="50 resources"),
            Phase(name="preview", ok=False, seconds=2, said="error: [red]not | <b>empty</b>"),
        ),
        graph=Graph.from_deployment((deployment or gke()).exported()),
        leftovers=("networks/b", "networks/a"),
        changes=changes,
        notes=("Kubernetes was in memory.",),
    )


CHANGES = (change(CLUSTER, "cluster", "replace", "datapathProvider"), change(POOL, "system", "update"))


class TestSchedule:
    def test_waves_follow_every_dependency(self) -> None:
        waves = outcome().schedule.waves
        assert [len(wave) for wave in waves] == [3, 9, 1, 11, 1, 1]
        number = {node.urn: wave for wave, nodes in enumerate(waves) for node in nodes}
        graph = outcome().graph
        for urn, wave in number.items():
            before = graph.managed_before(urn)
            assert wave == max((number[other] + 1 for other in before), default=0)

    def test_critical_path_counts_published_durations_only(self) -> None:
        up = outcome().schedule.up
        assert [node.name for node in up.nodes] == [
            "cluster",
            "cluster",
            "cluster",
            "system",
            "kuberay-operator",
            "ray",
        ]
        assert up.seconds == sum(
            figure.seconds
            for node in up.nodes
            if node.type in DURATIONS and (figure := DURATIONS[node.type].create) is not None
        )
        assert "Release kuberay-operator (not published)" in markdown(outcome())

    def test_deleted_with_takes_no_time_to_destroy(self) -> None:
        assert outcome().schedule.destroy.seconds == 257 + 204 + 13 + 22

    def test_durations_have_sources(self) -> None:
        for type_, row in DURATIONS.items():
            for figure in filter(None, (row.create, row.delete)):
                assert figure.seconds > 0, type_
                assert figure.source, type_
                assert figure.date.startswith(("20", "read 20")), type_


class TestMermaid:
    def test_similar_resources_share_a_box(self) -> None:
        text = mermaid(outcome().graph, outcome().schedule)
        assert '["8 × Subnetwork<br>rdma-0…7<br>16 s"]' in text
        assert '["8 × Kubernetes Network<br>rdma-0…7"]' in text
        assert text.count("subgraph") == text.count("  end\n") == len(outcome().schedule.waves)

    def test_arrows_show_data_order_and_critical_path(self) -> None:
        text = mermaid(outcome().graph, outcome().schedule)
        assert text.count("==>") == 5
        assert " --> " in text
        assert " -.-> " in text

    def test_names_are_escaped(self) -> None:
        hostile = Deployment()
        hostile.resource(NETWORK, 'a"]<b>')
        of = outcome(deployment=hostile)
        assert "a&quot;]&lt;b&gt;" in mermaid(of.graph, of.schedule)


class TestDamage:
    def test_replacement_lists_what_falls_with_it(self) -> None:
        of = outcome(change(CLUSTER, "cluster", "replace"), change(NETWORK, "cluster", "replace"))
        falls = of.damage(of.changes[0]).falls
        assert [node.name for node in falls[:2]] == ["gpu", "system"]
        assert {node.type for node in falls} > {"kubernetes:ray.io/v1:RayCluster", "kubernetes:helm.sh/v3:Release"}
        assert not {node.type for node in falls} & {NETWORK, MEMBER}
        assert [node.type for node in of.damage(of.changes[1]).falls[:3]] == [POOL, CLUSTER, POOL]

    def test_ordering_dependents_stay(self) -> None:
        of = outcome(change(MEMBER, "nodes-logs", "replace", "role"))
        damage = of.damage(of.changes[0])
        assert damage.falls == ()
        assert {"gpu", "system", "kuberay-operator"} <= {node.name for node in damage.waits}

    def test_in_place_changes_remove_nothing(self) -> None:
        of = outcome(change(CLUSTER, "cluster", "update"), change(CLUSTER, "other", "replace"))
        assert [of.damage(one).falls for one in of.changes] == [(), ()]

    def test_worst_changes_come_first(self) -> None:
        of = outcome(
            change(NETWORK, "new", "create"),
            change(NETWORK, "rdma", "replace"),
            change(CLUSTER, "cluster", "replace"),
            change(POOL, "gpu", "replace"),
            change(POOL, "system", "delete"),
        )
        assert [one.name for one in of.sorted_changes] == ["gpu", "cluster", "rdma", "system", "new"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.1, "0.1 s"), (22, "22 s"), (373, "6 min 13 s"), (59.7, "1 min"), (3900, "1 h 5 min")],
)
def test_times_are_formatted(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"rdma-{n}" for n in range(11)] + ["gvnic-1"], "gvnic-1, rdma-0…10"),
        ([f"rdma-{n}-parameters" for n in range(3)], "rdma-0…2-parameters"),
        (["a-1", "a-3"], "a-1, a-3"),
        (["a-01", "a-02", "a-03", "{}-1"], "a-01, a-02, a-03, {}-1"),
    ],
)
def test_numbered_names_are_shortened(names: list[str], words: str) -> None:
    assert spans_of_names(names) == words


def test_gist_is_first_error() -> None:
    assert gist("Stack:\n    error: no\n    error: never\n") == "error: no …"
    assert gist("all is well") == "all is well"


class TestMarkdown:
    def test_report_has_banner_marks_replacements_and_draws_the_graph(self) -> None:
        text = markdown(outcome(*CHANGES))
        assert text.startswith("## REHEARSAL failed")
        assert "| 🔴 **REPLACE** | `Cluster cluster` | `datapathProvider` |" in text
        assert "> 🔴 **Replacing `Cluster cluster` takes down 13 resources:**\n> - `GPU NodePool: gpu`" in text
        assert "- `networks/a`\n- `networks/b`" in text
        assert text.count("<details>") == text.count("</details>") == 3
        assert "```mermaid\nflowchart LR\n" in text

    def test_terminal_report_has_no_html_and_no_graph(self) -> None:
        text = markdown(replace(outcome(*CHANGES), timeline=((3.04, "Pod a is\nRunning"),)), terminal=True)
        assert "<details>" not in text
        assert "flowchart" not in text
        assert "### events in the cluster\n       3.0 s  Pod a is Running\n" in text

    def test_foreign_text_is_escaped(self) -> None:
        assert "error: &#91;red&#93;not \\| &lt;b&gt;empty&lt;/b&gt;" in markdown(outcome())

    def test_empty_rehearsal_is_reported(self) -> None:
        nothing = replace(outcome(deployment=Deployment()), leftovers=())
        assert "REHEARSAL failed" in markdown(nothing)
        assert "Critical path" not in markdown(nothing)


class TestGolden:
    def test_other_marks_are_distinguished_from_secrets(self) -> None:
        resource = {SIGNATURE: "5cf8f73096256a8f31e491e813e4eb8e", "urn": "urn"}
        unknown = {SIGNATURE: "d0e6a833031e9bbcd3f4e8bde6ca49a4", "value": "hunter2"}
        assert masked([resource, unknown, {"a": SECRET, "__defaults": []}]) == [
            "[resource]",
            "[secret]",
            {"a": "[secret]"},
        ]


def test_reports_contain_no_secrets() -> None:
    made = gke()
    made.resource("kubernetes:core/v1:Secret", "plain", inputs={"stringData": {"token": "hunter2"}})
    made.resources[-1]["outputs"] = {"stringData": {"token": "hunter2"}}
    of = outcome(*CHANGES, deployment=made)
    text = golden(of.graph)
    assert text.count("[secret]") == 3
    for report in (text, markdown(of), markdown(of, terminal=True)):
        assert "hunter2" not in report


def test_rehearsal_without_phases_or_with_leftovers_fails() -> None:
    passed = replace(outcome(), phases=(Phase(name="up", ok=True, seconds=1, said=""),), leftovers=())
    assert passed.ok
    assert not replace(passed, phases=()).ok
    assert not replace(passed, leftovers=("x",)).ok
