"""Interface layout of every instance type, from AWS' pages and EC2's limits; user data of a GPU node, parsed as its
readers do."""

from __future__ import annotations

import base64
import email
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from infra.catalog.machines import EKS_CATALOG, EksMachine, cpu_machine_vcpus
from infra.eks.interfaces import Interface, Kind, interfaces
from infra.eks.launch_template import LUSTRE_OVER_EFA, MEMLOCK_BYTES, node_config, user_data
from tests.clone import executable

Place = tuple[int, int, Kind]

PRIMARY: Place = (0, 0, "interface")


def efas(cards: range, device: int = 0) -> list[Place]:
    return [(card, device, "efa-only") for card in cards]


TABLE: dict[str, list[Place]] = {
    # The older layout: the primary interface is itself an EFA.
    "p4d.24xlarge": [(0, 0, "efa"), (1, 1, "efa-only"), (2, 1, "efa-only"), (3, 1, "efa-only")],
    "p4de.24xlarge": [(0, 0, "efa"), (1, 1, "efa-only"), (2, 1, "efa-only"), (3, 1, "efa-only")],
    # The newer layout: card 0 has an interface for IP and an EFA.
    "p5.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 32))],
    "p5e.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 32))],
    "p5en.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 16))],
    "p6-b200.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 8))],
    # Seventeen cards, of which the first has no EFA.
    "p6-b300.48xlarge": [PRIMARY, *efas(range(1, 17))],
    # One card.
    **{key: [PRIMARY, (0, 1, "efa-only")] for key in ("g6.8xlarge", "g6e.8xlarge", "g7e.8xlarge", "p5.4xlarge")},
}


@pytest.mark.parametrize("machine", EKS_CATALOG.values(), ids=lambda machine: machine.name)
def test_layout_matches_table(machine: EksMachine) -> None:
    assert [(one.card, one.device, one.kind) for one in interfaces(machine)] == TABLE[machine.name]


@pytest.mark.parametrize("name", ["p5.48xlarge", "p5e.48xlarge"])
def test_bandwidth_optimized_adds_seven_interfaces(name: str) -> None:
    plain, wide = interfaces(EKS_CATALOG[name]), interfaces(EKS_CATALOG[name], bandwidth_optimized=True)
    added = [one for one in wide if one not in plain]
    assert added == [Interface(card, 1, "interface") for card in (4, 8, 12, 16, 20, 24, 28)]
    assert [one for one in wide if one in plain] == list(plain)
    assert sum(one.kind == "interface" for one in wide) == 8


@pytest.fixture
def instance_types(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """moto's copy of EC2's DescribeInstanceTypes, which is independent of the catalog."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        pages = boto3.client("ec2", region_name="us-east-1").get_paginator("describe_instance_types").paginate()
        return {one["InstanceType"]: one for page in pages for one in page["InstanceTypes"]}


def test_cpu_nodes_are_x86_of_nitro_without_gpus_and_with_memory(instance_types: dict[str, dict[str, Any]]) -> None:
    accepted = {name: one for name, one in instance_types.items() if cpu_machine_vcpus("eks", name)}
    assert {"m5.2xlarge", "m6i.2xlarge", "m7i-flex.2xlarge", "r6a.4xlarge", "t3a.2xlarge"} <= set(accepted)
    for name, one in accepted.items():
        vcpus, processor = cpu_machine_vcpus("eks", name), one["ProcessorInfo"]["SupportedArchitectures"]
        facts = one["VCpuInfo"]["DefaultVCpus"], processor, one["Hypervisor"], "GpuInfo" in one
        assert facts == (vcpus, ["x86_64"], "nitro", False), name
        assert one["MemoryInfo"]["SizeInMiB"] >= 4096 * vcpus, name


def test_interfaces_fit_instance_type(instance_types: dict[str, dict[str, Any]]) -> None:
    networks = {name: instance_types[name]["NetworkInfo"] for name in EKS_CATALOG}
    for name, wide in (*((name, False) for name in EKS_CATALOG), ("p5.48xlarge", True), ("p5e.48xlarge", True)):
        layout, network = interfaces(EKS_CATALOG[name], bandwidth_optimized=wide), networks[name]
        room = {card["NetworkCardIndex"]: card["MaximumNetworkInterfaces"] for card in network["NetworkCards"]}
        efas = [one.card for one in layout if one.kind != "interface"]
        assert len(efas) == len(set(efas)) == network["EfaInfo"]["MaximumEfaInterfaces"], name
        assert len(room) == network["MaximumNetworkCards"], name
        assert all(one.device < room[one.card] for one in layout), name


def test_lustre_over_efa_adds_a_script_for_every_boot() -> None:
    message = email.message_from_bytes(base64.b64decode(user_data(node_config(), LUSTRE_OVER_EFA), validate=True))
    config, script = (part for part in message.walk() if not part.is_multipart())
    assert yaml.safe_load(str(config.get_payload())) == node_config()
    assert script.get_content_type() == "text/x-shellscript-per-boot"
    assert str(script.get_payload()) == LUSTRE_OVER_EFA
    assert LUSTRE_OVER_EFA.startswith("#!/bin/bash\n")


@pytest.fixture
def calls(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Returns a function that runs the script on a node with EFA devices, and returns its status and what it calls."""

    def run(count: int, broken: str | None = None) -> tuple[int, list[str]]:
        called, programs, devices = tmp_path / "called", tmp_path / "programs", tmp_path / "infiniband"
        devices.mkdir()
        for driver, bus in (("mlx5_core", 0), *(("efa", bus) for bus in range(1, count + 1))):
            place = tmp_path / "pci" / f"0000:{bus:02x}:00.0"
            place.mkdir(parents=True)
            (tmp_path / driver).mkdir(exist_ok=True)
            (place / "driver").symlink_to(tmp_path / driver)
            (devices / f"rdmap{bus}s0").mkdir()
            (devices / f"rdmap{bus}s0" / "device").symlink_to(place)
        prints = {"ip": "default via 10.0.0.1 dev ens1 proto dhcp", "lnetctl": "nid: 10@efa"}
        for name in ("rpm", "dnf", "ip", "modprobe", "lnetctl"):
            text = f"#!/bin/bash\necho {name} $* >> {called}\necho '{prints.get(name, '')}'\n"
            # The client is not installed yet.
            executable(programs / name, f'{text}[[ "{name} $*" != "{broken}"* && {name} != rpm ]]\n')
        script = LUSTRE_OVER_EFA.replace("/sys/class/infiniband", str(devices))
        environment = {"PATH": f"{programs}:/usr/bin:/bin"}
        done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, check=False)
        return done.returncode, called.read_text().splitlines()

    return run


@pytest.mark.parametrize(("count", "step"), [(32, 4), (16, 2), (8, 1), (1, 1)])
def test_lustre_uses_eight_devices_along_the_bus(
    calls: Callable[..., tuple[int, list[str]]], count: int, step: int
) -> None:
    status, called = calls(count)
    added = [line.split()[6] for line in called if "net add --net efa" in line]
    assert (status, added) == (0, [f"rdmap{bus}s0" for bus in range(1, count + 1, step)])
    assert called.index("modprobe kefalnd ipif_name=ens1") < called.index("lnetctl lnet configure")
    assert called[-2:] == ["modprobe lustre", "lnetctl net show"]


@pytest.mark.parametrize("broken", ["dnf install", "modprobe kefalnd", "lnetctl net add --net efa"])
def test_script_stops_at_first_failed_step(calls: Callable[..., tuple[int, list[str]]], broken: str) -> None:
    """The kubelet starts nevertheless, and mounts load Lustre's modules for TCP."""
    status, called = calls(8, broken)
    assert status != 0
    assert called[-1].startswith(broken)


def limits() -> dict[str, dict[str, Any]]:
    process = node_config()["spec"]["containerd"]["baseRuntimeSpec"]["process"]
    return {limit["type"]: limit for limit in process["rlimits"]}


def test_locked_memory_limit_exceeds_every_machine() -> None:
    memlock = limits()["RLIMIT_MEMLOCK"]
    assert memlock["soft"] == memlock["hard"] == MEMLOCK_BYTES
    assert all((machine.memory_mib or 0) * 2**20 < MEMLOCK_BYTES for machine in EKS_CATALOG.values())
