"""Placement of a gang: what it waits for, and whether it can ever be placed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.gang.placement import GangRequest, LiveNode, NodeGroup, Scheduling, autoscaling, never, spots_of, waiting

TWO = GangRequest(2, "GPU", 8)
HEAD = LiveNode("10.0.0.1", 0, 0)
FREE = LiveNode("10.0.0.2", 8, 8)
HELD = LiveNode("10.0.0.3", 8, 2)


def state(*nodes: LiveNode, groups: list[NodeGroup] | None = None, **more: Any) -> Scheduling:
    bare = Scheduling(list(nodes), groups, starting=[], failed=[], refused=False)
    return replace(bare, **more)


def test_a_fixed_cluster_with_too_few_nodes_never_fits() -> None:
    said = never(TWO, state(HEAD, FREE), elastic=False)
    assert said is not None
    assert "the run needs 2 nodes with 8 free GPU each" in said
    assert "10.0.0.2: 8 of 8 GPU free" in said
    assert "--nodes" in said


def test_nodes_held_by_others_may_become_free() -> None:
    assert never(TWO, state(HEAD, FREE, HELD), elastic=False) is None


def test_an_elastic_cluster_may_grow() -> None:
    assert never(TWO, state(HEAD), elastic=True) is None  # its autoscaler's groups are unknown
    assert never(TWO, state(HEAD, groups=[NodeGroup("gpu", 8, None)]), elastic=True) is None


@given(st.integers(1, 20), st.lists(st.builds(NodeGroup, st.just("g"), st.sampled_from([0, 4, 8]), st.integers(0, 9))))
def test_it_never_fits_only_with_too_few_possible_nodes(nodes: int, groups: list[NodeGroup]) -> None:
    possible = sum(group.most or 0 for group in groups if group.amount >= 8)
    said = never(GangRequest(nodes, "GPU", 8), state(HEAD, groups=groups), elastic=True)
    assert (said is None) == (possible >= nodes)
    assert said is None or f"at most {possible} such nodes" in said


def test_the_wait_names_what_is_missing() -> None:
    said = waiting(TWO, state(HEAD, FREE, HELD, starting=["gpu 10.0.0.9"], failed=["gpu: no capacity"], refused=True))
    assert said == (
        "1 of 2 nodes with 8 free GPU each ready; held by others: 10.0.0.3 (2 of 8 free);"
        " starting: gpu 10.0.0.9; not started: gpu: no capacity"
    )
    assert waiting(TWO, state(refused=True)).endswith("cannot fit it now")
    assert waiting(GangRequest(1, "CPU", 2), state(FREE, FREE)).startswith("1 of 1 nodes")


def test_workers_anywhere_need_slots_and_no_nodes() -> None:
    eight = GangRequest(8, "GPU", 1, spread=False)
    assert never(eight, state(FREE), elastic=False) is None
    said = never(GangRequest(9, "GPU", 1, spread=False), state(HEAD, FREE), elastic=False)
    assert said is not None
    assert "the run needs 9 workers with 1 free GPU each" in said
    assert "--workers" in said
    grown = never(GangRequest(17, "GPU", 1, spread=False), state(groups=[NodeGroup("gpu", 8, 2)]), elastic=True)
    assert "at most 16 such workers" in str(grown)
    assert waiting(eight, state(HELD)).startswith("2 of 8 workers with 1 free GPU each ready; held by others: 10.0.0.3")


def test_nodes_are_in_the_order_of_place_and_numeric_address() -> None:
    def node(address: str, **labels: str) -> dict[str, Any]:
        of = {"block": "rdma-ray/topology-1", "host": "rdma-ray/topology-2"}
        named = {of.get(name, f"ray.io/{name.replace('_', '-')}"): value for name, value in labels.items()}
        return {"NodeID": address, "NodeManagerAddress": address, "NodeManagerHostname": address, "Labels": named}

    wanted = [
        node("10.0.0.2"),
        node("10.0.0.10"),
        node("10.0.0.1", node_group="gpu"),
        node("10.0.0.4", availability_zone="a", node_group="gpu"),
        node("10.0.0.3", availability_zone="a", node_group="spare"),
        node("10.0.0.9", availability_zone="b", node_group="gpu", block="1", host="7"),
        node("10.0.0.0", availability_zone="b", node_group="gpu", block="1", host="8"),
        node("10.0.0.8", availability_zone="b", node_group="gpu", block="2", host="1"),
    ]
    placed = {bundle: each["NodeID"] for bundle, each in enumerate(reversed(wanted))}
    found = spots_of(placed, wanted)
    assert [spot.address for spot in found] == [each["NodeID"] for each in wanted]
    assert found[0].bundle == len(wanted) - 1


def test_rays_messages_are_parsed() -> None:
    proto = pytest.importorskip("ray.core.generated.autoscaler_pb2")
    reply = proto.GetClusterStatusReply()
    reply.autoscaling_state.pending_instances.add(ray_node_type_name="gpu", ip_address="10.0.0.9")
    reply.autoscaling_state.pending_instance_requests.add(ray_node_type_name="gpu", count=2)
    reply.autoscaling_state.failed_instance_requests.add(ray_node_type_name="gpu", count=1, reason="stockout")
    reply.autoscaling_state.infeasible_gang_resource_requests.add(details="abc:STRICT_SPREAD|PENDING")
    config = proto.ClusterConfig()
    config.node_group_configs.add(name="gpu", max_count=4, resources={"GPU": 8})
    config.node_group_configs.add(name="other-group", max_count=4, resources={"GPU": 8})
    config.node_group_configs.add(name="any", max_count=-1, resources={"CPU": 8})
    seen = autoscaling(reply, config, [FREE], "GPU", "abc")
    assert seen.groups == [NodeGroup("gpu", 8, 4), NodeGroup("any", 0, None)]
    assert seen.starting == ["2 of gpu", "gpu 10.0.0.9"]
    assert seen.failed == ["gpu: stockout"]
    assert seen.refused
    assert not autoscaling(reply, config, [FREE], "GPU", "def").refused
    bare = autoscaling(proto.GetClusterStatusReply(), None, [FREE], "GPU", "abc")
    assert (bare.groups, bare.starting, bare.failed, bare.refused) == (None, [], [], False)
