"""Predictions and pictures of hand-written and random graphs; no engine runs."""

from __future__ import annotations

import itertools
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehearsal.durations import duration
from rehearsal.graph import Graph
from rehearsal.report.layout import BOX_HEIGHT, LARGE, MEDIUM, PADDING, SMALL, Layout, fit, layout, width
from rehearsal.report.list_schedule import Task, timetable
from rehearsal.report.outcome import Outcome
from rehearsal.report.picture import picture
from rehearsal.report.schedule import predict
from tests.rehearsal.deployments import Deployment, gke

CLUSTER, POOL = "gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"
MEMBER, RAY = "gcp:projects/iAMMember:IAMMember", "kubernetes:ray.io/v1:RayCluster"
TYPES = (
    CLUSTER,
    POOL,
    MEMBER,
    RAY,
    "gcp:compute/network:Network",
    "kubernetes:networking.gke.io/v1:GKENetworkParamSet",
    "random:index/randomPassword:RandomPassword",
)
NAMES = ("a", "rdma", "nccl-rdma-installer-with-a-name-that-no-box-can-hold", "öffentlich")


@st.composite
def deployments(draw: st.DrawFn, explained: bool = False) -> Deployment:
    """Deployments of up to 24 resources; in `explained` ones every ordering edge has a reason."""
    made = Deployment()
    component = made.component("rdma-ray:gke:Part", "part")
    earlier: list[tuple[str, str]] = []
    for number in range(draw(st.integers(0, 24))):
        type_ = draw(st.sampled_from(TYPES))
        urns = [urn for urn, _ in earlier]
        reasoned = [urn for urn, other in earlier if (type_, other) == (POOL, MEMBER)]
        before = st.lists(st.sampled_from(urns), unique=True, max_size=4) if urns else st.just([])
        choice = reasoned if explained else urns
        after = draw(st.lists(st.sampled_from(choice), unique=True, max_size=4)) if choice else []
        urn = made.resource(
            type_,
            f"{draw(st.sampled_from(NAMES))}-{number}",
            parent=draw(st.sampled_from([component, *urns])),
            provider=made.provider("kubernetes", f"provider-{number}", draw(before)) if draw(st.booleans()) else None,
            data=draw(before),
            after=after,
            deleted_with=draw(st.sampled_from([None, *urns])),
        )
        earlier.append((urn, type_))
    return made


def graph_of(made: Deployment) -> Graph:
    return Graph.from_deployment(made.exported())


def seconds(graph: Graph) -> dict[str, float]:
    return {node.urn: duration(node.type).create.seconds for node in graph.managed}


# A busy machine is slow, which is no failure.
quickly = settings(max_examples=50, deadline=None)
hands = st.one_of(st.none(), st.integers(1, 5))


class TestPredictionsAtRandom:
    @quickly
    @given(deployments(), hands)
    def test_prediction_is_not_below_bound(self, made: Deployment, parallel: int | None) -> None:
        graph = graph_of(made)
        prediction = predict(graph, parallel)
        assert prediction.bound <= prediction.up.makespan
        assert prediction.up.makespan <= sum(seconds(graph).values()) + 1e-6
        assert prediction.ratio >= 1

    @quickly
    @given(deployments(explained=True))
    def test_unlimited_explained_prediction_equals_bound(self, made: Deployment) -> None:
        prediction = predict(graph_of(made), None)
        assert prediction.unexplained == ()
        assert prediction.up.makespan == prediction.bound

    @quickly
    @given(deployments())
    def test_serial_schedule_takes_the_sum(self, made: Deployment) -> None:
        graph = graph_of(made)
        assert predict(graph, 1).up.makespan == pytest.approx(sum(seconds(graph).values()))

    @quickly
    @given(deployments(), hands)
    def test_tasks_start_after_dependencies(self, made: Deployment, parallel: int | None) -> None:
        graph = graph_of(made)
        prediction = predict(graph, parallel)
        up, destroy = prediction.up.spans, prediction.destroy.spans
        for node in graph.nodes.values():
            for before in node.depends:
                assert up[before].finish <= up[node.urn].start
                assert destroy[node.urn].finish <= destroy[before].start

    @quickly
    @given(deployments(), st.integers(1, 4))
    def test_parallel_tasks_do_not_exceed_workers(self, made: Deployment, parallel: int) -> None:
        prediction = predict(graph_of(made), parallel)
        for when in (prediction.up, prediction.destroy):
            running = [span for span in when.spans.values() if span.finish > span.start]
            for moment in running:
                assert sum(other.start <= moment.start < other.finish for other in running) <= parallel

    @quickly
    @given(deployments(), hands)
    def test_critical_path_is_contiguous(self, made: Deployment, parallel: int | None) -> None:
        for when in (predict(graph_of(made), parallel).up, predict(graph_of(made), parallel).destroy):
            path = [when.spans[urn] for urn in when.critical]
            assert [span.start for span in path] == [0.0, *[span.finish for span in path]][: len(path)]
            assert when.makespan == (path[-1].finish if path else 0)

    @quickly
    @given(deployments())
    def test_waves_follow_every_edge(self, made: Deployment) -> None:
        graph = graph_of(made)
        waves = predict(graph, None).waves
        number = {node.urn: wave for wave, nodes in enumerate(waves, 1) for node in nodes}
        assert number.keys() == {node.urn for node in graph.managed}
        for urn, wave in number.items():
            before = graph.managed_before(urn)
            assert wave == 1 + max((number[other] for other in before), default=0)


class TestPredictions:
    def test_gke_prediction(self) -> None:
        prediction = predict(graph_of(gke()), 16)
        assert [len(wave) for wave in prediction.waves] == [5, 14, 2, 13, 15, 1]
        assert prediction.up.makespan == prediction.bound == 22 + 16 + 373 + 94 + 45 + 1
        assert [(edge.waits.name, edge.until.type) for edge in prediction.unexplained] == [
            ("system", "gcp:compute/routerNat:RouterNat")
        ]

    def test_unexplained_wait_raises_the_ratio(self) -> None:
        made = Deployment()
        first = made.resource(CLUSTER, "first")
        made.resource(CLUSTER, "second", after=[first])
        prediction = predict(graph_of(made), 16)
        assert (prediction.up.makespan, prediction.bound, prediction.ratio) == (746, 373, 2)

    def test_implied_wait_needs_no_reason(self) -> None:
        made = Deployment()
        first = made.resource(CLUSTER, "first")
        second = made.resource(POOL, "second", data=[first])
        made.resource(POOL, "third", data=[second], after=[first])
        assert predict(graph_of(made), 16).ordering == ()

    def test_deleted_with_takes_no_time_to_destroy(self) -> None:
        graph = graph_of(gke())
        destroy = predict(graph, 16).destroy
        assert [graph[urn].name for urn in destroy.critical] == ["system", "cluster", "gvnic-internal", "rdma"]
        ray = destroy.spans["urn:pulumi:gke::rdma-ray::kubernetes:ray.io/v1:RayCluster::ray"]
        assert ray.finish == ray.start == 0

    def test_destroy_prediction_uses_engine_groups(self) -> None:
        made = Deployment()
        network = made.resource("gcp:compute/network:Network", "network")
        made.resource(CLUSTER, "cluster", data=[network])
        account = made.resource("gcp:serviceaccount/account:Account", "account")
        member = made.resource(MEMBER, "member", data=[account])
        # The account could be deleted after 8 s; its group waits for the cluster in the group before.
        spans = predict(graph_of(made), 16).destroy.spans
        assert spans[member].finish == 8
        assert spans[account].start == 204

    def test_worker_count_and_cycles_are_validated(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            timetable({}, 0)
        with pytest.raises(ValueError, match="wait for each other: a, b"):
            timetable({"a": Task(("a",), 1, frozenset("b")), "b": Task(("b",), 1, frozenset("a"))}, None)


def check(plan: Layout) -> None:
    """Nothing overlaps, all text fits, and no line crosses a box."""
    for one, other in itertools.combinations(plan.boxes, 2):
        apart_across = one.right <= other.x or other.right <= one.x
        apart_down = one.bottom <= other.y or other.bottom <= one.y
        assert apart_across or apart_down, (one.lines, other.lines)
    for box in plan.boxes:
        assert box.x >= 0
        assert box.right <= plan.width
        assert box.bottom <= plan.height + 1e-6
        inner = box.width - 2 * PADDING + 1e-6
        assert width(box.lines[0], LARGE, bold=True) <= inner
        assert width(box.lines[1], MEDIUM) <= inner
        assert width(box.lines[2], SMALL) <= inner
    for line in plan.lines:
        assert line.source.right <= line.target.x
        for (left, y), (right, end) in _crossings(line.points):
            assert y == end
            for box in plan.boxes:
                assert right <= box.x or box.right <= left or not box.y < y < box.y + BOX_HEIGHT


def _crossings(points: tuple[tuple[float, float], ...]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the straight parts of a line within columns."""
    return list(zip(points[1:-1:2], points[2:-1:2], strict=True))


def outcome(made: Deployment, **more: Any) -> Outcome:
    return Outcome(stack="gke", target="gke", seconds=1, parallel=16, phases=(), graph=graph_of(made), **more)


class TestPicture:
    @quickly
    @given(deployments())
    def test_picture_is_well_formed_without_overlaps(self, made: Deployment) -> None:
        of = outcome(made)
        check(layout(of.graph, of.prediction))
        root = ElementTree.fromstring(picture(of))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"

    def test_gke_picture_is_readable(self) -> None:
        of = outcome(gke())
        plan = layout(of.graph, of.prediction)
        check(plan)
        assert {box.lines for box in plan.boxes if box.stacked} == {
            ("rdma-0…7", "Subnetwork", "8, 16 s each"),
            ("rdma-0…7", "Kubernetes Network", "8, 1 s each"),
            ("rdma-0…7-parameters", "GKENetworkParamSet", "8, 1 s each"),
        }
        # About as wide as a README on a wide screen, so that it is hardly scaled down.
        assert plan.width < 1012

    def test_critical_path_is_drawn_completely(self) -> None:
        of = outcome(gke())
        plan = layout(of.graph, of.prediction)
        drawn = [(line.source.lines[1], line.target.lines[1]) for line in plan.lines if line.critical]
        kinds = ["Network", "Subnetwork", "Cluster", "NodePool", "Release", "RayCluster"]
        assert sorted(drawn) == sorted(itertools.pairwise(kinds))

    def test_picture_has_banner(self) -> None:
        text = "".join(ElementTree.fromstring(picture(outcome(gke()))).itertext())
        for words in (
            "REHEARSAL: simulated clouds, nothing was created",
            "ordering only",
            "critical path",
            "wave 6",
        ):
            assert words in text
        assert "stroke-dasharray" in picture(outcome(gke()))

    def test_picture_is_deterministic(self) -> None:
        other = gke()
        other.resources.reverse()
        assert picture(outcome(gke())) == picture(outcome(other))

    @quickly
    @given(st.text(), st.floats(20, 200))
    def test_text_is_shortened_to_fit(self, text: str, most: float) -> None:
        assert width(fit(text, LARGE, most), LARGE) <= most
