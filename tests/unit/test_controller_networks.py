"""Conditions of GKE's parameter sets: each reason of the source, and none for a valid one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rehearsal.clouds.gcp import tokens as gcp
from rehearsal.clouds.kind import Json
from rehearsal.cluster.controllers.device_networks import unfit
from rehearsal.cluster.controllers.snapshot import Cluster, Snapshot
from tools.kubernetes.api import Api

GOOD = {"vpc": "rdma", "vpcSubnet": "rdma-0", "deviceMode": "RDMA"}


def snapshot() -> Snapshot:
    return Snapshot(
        api=cast(Api, None),
        now=0.0,
        cluster=Cluster(type=gcp.CLUSTER, id="c", live={"network": "projects/p/global/networks/own"}),
        others={
            gcp.NETWORK: [{"name": "rdma"}, {"name": "own"}],
            gcp.SUBNETWORK: [{"name": "rdma-0"}, {"name": "own-0"}],
        },
    )


def parameters(spec: Json, name: str = "rdma-0", made: str = "2026-11-21T00:00:00Z") -> Json:
    return {"metadata": {"name": name, "creationTimestamp": made}, "spec": spec}


def test_parameter_set_with_existing_references_is_ready() -> None:
    assert unfit(parameters(GOOD), [parameters(GOOD)], snapshot()) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vpc": ""}, "GNPConfigInvalid"),
        ({"vpcSubnet": "nowhere"}, "SubnetNotFound"),
        ({"vpc": "nowhere"}, "VPCNotFound"),
        ({"vpc": "own", "vpcSubnet": "own-0"}, "DeviceModeCantUseDefaultVPC"),
        ({"deviceMode": None}, "SecondaryRangeAndDeviceModeUnspecified"),
        ({"podIPv4Ranges": {"rangeNames": ["pods"]}}, "DeviceModeCantBeUsedWithSecondaryRange"),
    ],
)
def test_invalid_parameter_set_reports_reason(change: dict[str, Any], reason: str) -> None:
    found = unfit(parameters({**GOOD, **change}), [], snapshot())
    assert found is not None
    assert found[0] == reason


def test_subnet_belongs_to_first_parameter_set() -> None:
    first, second = parameters(GOOD), parameters(GOOD, "again", "2026-11-21T00:00:05Z")
    assert unfit(first, [first, second], snapshot()) is None
    found = unfit(second, [first, second], snapshot())
    assert found is not None
    assert found[0] == "DeviceModeSubnetAlreadyInUse"
    assert found[1].endswith("is already in use by 'rdma-0'")
