"""Reports of a rehearsal from hand-written deployments; no engine runs."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from rehearsal.durations import DURATIONS, UnknownDurationError, duration
from rehearsal.graph import Graph, GraphError
from rehearsal.report.golden import golden, masked
from rehearsal.report.labels import gist, span, spans_of_names
from rehearsal.report.markdown import markdown
from rehearsal.report.outcome import Change, Operation, Outcome, Phase, to_json
from rehearsal.report.picture import picture
from rehearsal.report.terminal import show
from tests.rehearsal.deployments import SECRET, SIGNATURE, Deployment, gke

CLUSTER, POOL = "gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"
NETWORK, SUBNETWORK = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
MEMBER = "gcp:projects/iAMMember:IAMMember"


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:gke::rdma-ray::{type_}::{name}"


def change(type_: str, name: str, op: Operation, *reasons: str) -> Change:
    return Change(urn=urn(type_, name), name=name, type=type_, op=op, reasons=reasons)


def outcome(*changes: Change, deployment: Deployment | None = None) -> Outcome:
    return Outcome(
        stack="gke",
        target="gke",
        seconds=12.3,
        parallel=16,
        phases=(
            Phase(name="up", ok=True, seconds=5.2, said="50 resources"),
            Phase(name="preview", ok=False, seconds=2, said="error: [red]not | <b>empty</b>"),
        ),
        graph=Graph.from_deployment((deployment or gke()).exported()),
        leftovers=("networks/b", "networks/a"),
        changes=changes,
        notes=("Kubernetes was in memory.",),
    )


def on_terminal(of: Outcome, *, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=120, force_terminal=colour, color_system="truecolor" if colour else None
    )
    show(of, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_report_contains_cluster_timeline() -> None:
    happened = replace(outcome(), timeline=((3.04, "Pod a is\nRunning on <n>"), (12.0, "node n granted to pool gpu")))
    assert "      3.0 s  Pod a is Running on <n>\n" in markdown(happened)
    assert to_json(happened)["timeline"][1] == {"seconds": 12.0, "what": "node n granted to pool gpu"}
    assert "what happened in the cluster" not in markdown(outcome())


class TestGraph:
    def test_dependencies_are_split_into_data_and_ordering(self) -> None:
        graph = Graph.from_deployment(gke().exported())
        pool = graph[urn(POOL, "system")]
        assert urn(CLUSTER, "cluster") in pool.data
        assert pool.ordering == {
            urn(MEMBER, "nodes-logs"),
            urn(MEMBER, "nodes-metrics"),
            urn("gcp:compute/routerNat:RouterNat", "cluster"),
        }
        installer = graph[urn("kubernetes:apps/v1:DaemonSet", "nccl-rdma-installer")]
        assert installer.provider == urn("pulumi:providers:kubernetes", "cluster")
        assert installer.deleted_with == urn(CLUSTER, "cluster")
        assert graph.managed_before(installer.urn) == {urn(CLUSTER, "cluster"): True}

    def test_dependencies_pass_through_instant_nodes(self) -> None:
        made = Deployment()
        first = made.resource(NETWORK, "first")
        part = made.component("a:b:Part", "part")
        made.resources[-1]["dependencies"] = [first]
        inside = made.resource(NETWORK, "inside", parent=part)
        last = made.resource(NETWORK, "last", after=[part])
        graph = Graph.from_deployment(made.exported())
        assert graph.managed_before(inside) == {first: False}
        assert graph.managed_before(last) == {first: False, inside: False}

    def test_graph_is_independent_of_registration_order(self) -> None:
        forwards, backwards = gke(), gke()
        backwards.resources.reverse()
        assert list(Graph.from_deployment(forwards.exported()).nodes) == list(
            Graph.from_deployment(backwards.exported()).nodes
        )

    def test_inner_and_empty_deployments_are_accepted(self) -> None:
        exported = gke().exported()
        assert Graph.from_deployment(exported["deployment"]) == Graph.from_deployment(exported)
        assert Graph.from_deployment({"deployment": {"resources": None}}).managed == []

    def test_urns_with_colons_and_parent_types_are_parsed(self) -> None:
        made = Deployment()
        made.resources.append(
            {"urn": "urn:pulumi:s::p::a:b:C$gcp:compute/network:Network::x::y", "type": NETWORK, "custom": True}
        )
        assert [node.name for node in Graph.from_deployment(made.exported()).managed] == ["x::y"]

    def test_pending_deletes_and_reads_are_not_created(self) -> None:
        made = Deployment()
        made.resource(NETWORK, "new")
        made.resources.append(dict(made.resources[-1], delete=True))
        made.resource(NETWORK, "read")
        made.resources[-1]["external"] = True
        assert [node.name for node in Graph.from_deployment(made.exported()).managed] == ["new"]

    def test_dangling_reference_is_reported(self) -> None:
        made = Deployment()
        made.resource(SUBNETWORK, "lost", data=["urn:pulumi:s::p::t::gone"])
        with pytest.raises(GraphError, match=r"Subnetwork lost refers to urn:pulumi:s::p::t::gone"):
            Graph.from_deployment(made.exported())

    def test_cycle_is_reported(self) -> None:
        made = Deployment()
        made.resource(NETWORK, "a", after=[urn(NETWORK, "b")])
        made.resource(NETWORK, "b", after=[urn(NETWORK, "a")])
        with pytest.raises(GraphError, match="wait for each other: a, b"):
            Graph.from_deployment(made.exported())


class TestDurations:
    def test_durations_have_sources(self) -> None:
        for type_, row in DURATIONS.items():
            for figure in (row.create, row.delete):
                assert figure.seconds > 0, type_
                assert figure.source, type_
                assert figure.date.startswith(("20", "read 20")), type_

    def test_stack_types_have_durations(self) -> None:
        for node in Graph.from_deployment(gke().exported()).managed:
            assert duration(node.type)

    def test_exact_duration_precedes_pattern(self) -> None:
        assert duration("kubernetes:helm.sh/v3:Release").create.seconds > duration("kubernetes:a/v1:B").create.seconds

    def test_type_without_duration_is_an_error(self) -> None:
        with pytest.raises(UnknownDurationError, match="gcp:sql/database:Database"):
            duration("gcp:sql/database:Database")


class TestDamage:
    def test_cluster_replacement_lists_gpu_pools_first(self) -> None:
        of = outcome(change(CLUSTER, "cluster", "replace", "datapathProvider"))
        falls = of.damage(of.changes[0]).falls
        assert [node.name for node in falls[:2]] == ["gpu", "system"]
        assert {node.type for node in falls} > {"kubernetes:ray.io/v1:RayCluster", "kubernetes:helm.sh/v3:Release"}
        assert not {node.type for node in falls} & {NETWORK, MEMBER}

    def test_network_replacement_includes_cluster(self) -> None:
        of = outcome(change(NETWORK, "cluster", "replace", "name"))
        assert [node.type for node in of.damage(of.changes[0]).falls[:3]] == [POOL, CLUSTER, POOL]

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


class TestWords:
    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0, "0 s"), (0.1, "0.1 s"), (22, "22 s"), (373, "6 min 13 s"), (59.7, "1 min"), (3900, "1 h 5 min")],
    )
    def test_times(self, seconds: float, words: str) -> None:
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
    def test_names(self, names: list[str], words: str) -> None:
        assert spans_of_names(names) == words

    def test_gist_is_first_error(self) -> None:
        assert gist("Stack:\n    error: no\n    error: never\n") == "error: no …"
        assert gist("all is well") == "all is well"


CHANGES = (change(CLUSTER, "cluster", "replace", "datapathProvider"), change(POOL, "system", "update"))


class TestTerminal:
    def test_every_screen_has_the_rehearsal_banner(self) -> None:
        titles = [line for line in on_terminal(outcome(*CHANGES)).splitlines() if "REHEARSAL" in line]
        assert len(titles) == 7

    def test_terminal_shows_all_sections(self) -> None:
        text = on_terminal(outcome(*CHANGES))
        for words in (
            "9 GKENetworkParamSet: gvnic-1-parameters, rdma-0…7-parameters",
            "replacing Cluster cluster takes down 29 resources:",
            "NodePool system waits for RouterNat cluster: no reason given",
            "left over after destroy: networks/a",
            "error: [red]not | <b>empty</b>",
            "Network cluster 22 s → Subnetwork cluster 16 s → Cluster cluster 6 min 13 s",
            "the ratio is 1.00",
        ):
            assert words in text

    def test_replacements_are_red_and_unexplained_waits_yellow(self) -> None:
        text = on_terminal(outcome(*CHANGES), colour=True)
        assert "\x1b[1;31mreplace\x1b[0m" in text
        assert "\x1b[33mNodePool system waits for" in text

    def test_empty_rehearsal_is_reported(self) -> None:
        nothing = replace(outcome(deployment=Deployment()), leftovers=())
        assert "REHEARSAL of stack gke failed" in on_terminal(nothing)
        assert "REHEARSAL failed" in markdown(nothing)
        assert "REHEARSAL: simulated clouds, nothing was created" in picture(nothing)


class TestMarkdown:
    def test_markdown_has_banner_and_marks_replacements(self) -> None:
        text = markdown(outcome(*CHANGES))
        assert text.startswith("## REHEARSAL failed")
        assert "| 🔴 **REPLACE** | `Cluster cluster` | `datapathProvider` |" in text
        assert "> 🔴 **Replacing `Cluster cluster` takes down 29 resources:**\n> - `GPU NodePool: gpu`" in text
        assert text.count("<details>") == text.count("</details>") == 2

    def test_foreign_text_is_escaped(self) -> None:
        text = markdown(outcome())
        assert "error: &#91;red&#93;not \\| &lt;b&gt;empty&lt;/b&gt;" in text

    def test_runs_differ_only_in_times(self) -> None:
        other = gke()
        other.resources.reverse()
        assert markdown(outcome(*CHANGES)) == markdown(outcome(*CHANGES[::-1], deployment=other))


class TestGolden:
    def test_parents_precede_children_once(self) -> None:
        graph = Graph.from_deployment(gke().exported())
        heads = [line for line in golden(graph).splitlines() if line and not line.startswith(" ")]
        assert len(heads) == len(graph.nodes)
        places = {head: place for place, head in enumerate(heads)}
        for node in graph.nodes.values():
            if node.parent:
                parent = graph[node.parent]
                assert places[f"{parent.type} {parent.name}"] < places[f"{node.type} {node.name}"]

    def test_golden_entry_has_context_and_inputs(self) -> None:
        block = golden(Graph.from_deployment(gke().exported())).partition(f"{POOL} system\n")[2].partition("\n\n")[0]
        assert block.splitlines() == [
            "  parent: rdma-ray:gke:GkeCluster cluster",
            "  provider: gcp default_10_2_0",
            "  waits for (ordering): gcp:compute/routerNat:RouterNat cluster",
            "  waits for (ordering): gcp:projects/iAMMember:IAMMember nodes-logs",
            "  waits for (ordering): gcp:projects/iAMMember:IAMMember nodes-metrics",
            "  inputs:",
            "    nodeConfig:",
            "      machineType: e2-standard-8",
        ]

    def test_golden_list_has_no_generated_ids(self) -> None:
        assert "id-of" not in golden(Graph.from_deployment(gke().exported()))

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
    for report in (text, markdown(of), on_terminal(of), picture(of), json.dumps(to_json(of))):
        assert "hunter2" not in report


def test_json_contains_the_report() -> None:
    data = json.loads(json.dumps(to_json(outcome(*CHANGES))))
    assert data["rehearsal"].startswith("REHEARSAL")
    assert data["ok"] is False
    assert data["resources"][SUBNETWORK] == 10
    assert data["predicted"]["ratio"] == 1
    assert data["changes"][0]["takesDown"][0]["name"] == "gpu"
    assert data["leftovers"] == ["networks/a", "networks/b"]


def test_rehearsal_without_phases_or_with_leftovers_fails() -> None:
    passed = replace(outcome(), phases=(Phase(name="up", ok=True, seconds=1, said=""),), leftovers=())
    assert passed.ok
    assert not replace(passed, phases=()).ok
    assert not replace(passed, leftovers=("x",)).ok
