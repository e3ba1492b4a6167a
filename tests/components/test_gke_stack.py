"""The Google Cloud stack under Pulumi's mocks: resources of each setting, outputs, and run time."""

from __future__ import annotations

from typing import Any

import pytest

from infra.outputs import Outputs
from infra.settings.problems import SettingsError
from tests.components.cloud_mocks import Deployed, deployed
from tests.unit.stacks import GKE, changed

CLUSTER = ("gcp:container/cluster:Cluster", "cluster")
POOL = "gcp:container/nodePool:NodePool"
WHOLE = {"storage.bucket": "ours", "computeClass": True, "nodes.fallback": "spot", "nodes.max": 4}


def made(changes: dict[str, Any]) -> Deployed:
    return deployed(changed(GKE, changes))


def test_program_takes_less_than_a_second() -> None:
    """The best of three runs, in seconds of CPU time."""
    made(WHOLE)  # Triggers the lazy imports of the SDKs.
    assert min(made(WHOLE).seconds for _ in range(3)) <= 1.0


@pytest.mark.parametrize("changes", [{}, WHOLE, {"fabric": "dranet"}, {"fabric": "managed-dranet"}])
def test_outputs_match_the_contract(changes: dict[str, Any]) -> None:
    outputs = Outputs.model_validate(made(changes).outputs)
    assert outputs.target == "gke"
    assert (outputs.nodes.gpus_per_node, outputs.fabric.nics, outputs.fabric.gbps_per_nic) == (8, 8, 400)
    assert outputs.fabric.floors
    assert outputs.ray.cluster == "test-ray"
    assert outputs.ray.token.get_secret_value() == "x" * 43
    assert outputs.kubeconfig is not None
    assert (outputs.storage is not None) == ("storage.bucket" in changes)


def test_private_control_plane_is_reached_by_name_and_public_one_by_address() -> None:
    closed, opened = made({}), made({"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32"]})
    assert "gke-1.us-central1.gke.goog" in closed.outputs["kubeconfig"]
    assert "https://10.0.0.2" in opened.outputs["kubeconfig"]
    assert closed.made[CLUSTER].inputs["privateClusterConfig"]["enablePrivateEndpoint"] is True
    assert opened.made[CLUSTER].inputs["privateClusterConfig"]["enablePrivateEndpoint"] is False
    blocks = opened.made[CLUSTER].inputs["masterAuthorizedNetworksConfig"]["cidrBlocks"]
    assert blocks == [{"cidrBlock": "203.0.113.7/32"}]


def test_fallback_is_a_second_pool_of_its_own_capacity() -> None:
    stack = made(WHOLE).made
    first, second = stack[POOL, "pool-gpu"].inputs["nodeConfig"], stack[POOL, "pool-fallback"].inputs["nodeConfig"]
    assert (first["flexStart"], first.get("spot")) == (True, None)
    assert (second.get("flexStart"), second["spot"]) == (None, True)
    assert "maxRunDuration" not in second
    (rules,) = (
        one.inputs["spec"]["priorities"]
        for one in stack.values()
        if one.type.startswith("kubernetes:") and one.type.endswith(":ComputeClass")
    )
    assert rules == [{"nodepools": ["gpu"]}, {"nodepools": ["fallback"]}]


def test_pool_uses_the_named_reservation() -> None:
    pool = made({"nodes.capacity": "reservation", "nodes.reservation": "mine", "nodes.min": 1}).made[POOL, "pool-gpu"]
    assert pool.inputs["nodeConfig"]["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["mine"],
    }
    assert pool.inputs["autoscaling"]["totalMinNodeCount"] == pool.inputs["initialNodeCount"] == 1


def test_only_ray_pods_have_access_to_the_bucket() -> None:
    members = [one.inputs for one in made(WHOLE).made.values() if one.type.endswith(":BucketIAMMember")]
    assert {member["role"] for member in members} == {"roles/storage.objectUser"}
    assert {member["member"].rpartition("/subject/")[2] for member in members} == {
        "ns/ray/sa/ray-head",
        "ns/ray/sa/ray-worker",
    }


def test_dranet_has_no_network_objects_and_managed_dranet_no_networks() -> None:
    claims, managed = made({"fabric": "dranet"}).made, made({"fabric": "managed-dranet"}).made
    for stack in (claims, managed):
        assert not [one for one in stack if one[0].startswith("kubernetes:networking.gke.io/")]
    networks = [name for type_, name in managed if type_ == "gcp:compute/network:Network"]
    assert networks == ["cluster"]
    assert managed[POOL, "pool-gpu"].inputs["networkConfig"]["acceleratorNetworkProfile"] == "auto"
    assert len(claims[POOL, "pool-gpu"].inputs["networkConfig"]["additionalNodeNetworkConfigs"]) == 9


def test_missing_project_is_reported_before_anything_registers() -> None:
    with pytest.raises(SettingsError) as refused:
        deployed(GKE, config={})
    assert [problem.settings[0] for problem in refused.value.problems] == ["gcp:project"]
    assert all(problem.fix for problem in refused.value.problems)
