"""Interface layout of every instance type, from AWS' pages and EC2's limits; user data of a GPU node, parsed as its
readers do."""

from __future__ import annotations

import base64
import email
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from infra.catalog.machines import EKS_CATALOG, EksMachine
from infra.eks.interfaces import Interface, Kind, interfaces
from infra.eks.launch_template import LUSTRE_SETUP, MEMLOCK_BYTES, lustre_over_efa, node_config, user_data

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


def test_interfaces_fit_instance_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """By moto's copy of EC2's DescribeInstanceTypes, which is independent of the catalog."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="us-east-1")
        types = ec2.describe_instance_types(InstanceTypes=[*EKS_CATALOG])["InstanceTypes"]
    networks = {one["InstanceType"]: one["NetworkInfo"] for one in types}
    for name, wide in (*((name, False) for name in EKS_CATALOG), ("p5.48xlarge", True), ("p5e.48xlarge", True)):
        layout, network = interfaces(EKS_CATALOG[name], bandwidth_optimized=wide), networks[name]
        room = {card["NetworkCardIndex"]: card["MaximumNetworkInterfaces"] for card in network["NetworkCards"]}
        efas = [one.card for one in layout if one.kind != "interface"]
        assert len(efas) == len(set(efas)) == network["EfaInfo"]["MaximumEfaInterfaces"], name
        assert len(room) == network["MaximumNetworkCards"], name
        assert all(one.device < room[one.card] for one in layout), name


def test_lustre_over_efa_adds_a_script() -> None:
    """cloud-init runs a part of this type, whose first line names the shell."""
    message = email.message_from_bytes(base64.b64decode(user_data(node_config(), lustre_over_efa()), validate=True))
    config, script = (part for part in message.walk() if not part.is_multipart())
    assert yaml.safe_load(str(config.get_payload())) == node_config()
    assert script.get_content_type() == "text/x-shellscript"
    assert str(script.get_payload()) == lustre_over_efa()
    assert lustre_over_efa().startswith("#!/bin/bash\n")


@pytest.mark.parametrize(
    ("broken", "reached"),
    [
        (None, ["dnf", "curl", "unzip", "setup", "lnetctl"]),
        ("dnf", ["dnf"]),
        ("curl", ["dnf", "curl"]),
        ("setup", ["dnf", "curl", "unzip", "setup"]),
    ],
)
def test_script_stops_at_first_failed_step(tmp_path: Path, broken: str | None, reached: list[str]) -> None:
    """Runs bash and the script. The programs that the script calls are replaced by ones that record the call."""
    called, programs = tmp_path / "called", tmp_path / "programs"
    programs.mkdir()
    setup = f"mkdir {LUSTRE_SETUP} && cp {programs}/setup {LUSTRE_SETUP}/setup.sh"
    for name, does in {"dnf": "", "curl": "", "unzip": setup, "setup": "", "lnetctl": "echo 'nid: 10@efa'"}.items():
        program = programs / name
        program.write_text(f"#!/bin/bash\necho {name} >> {called}\n{does}\nexit {int(name == broken)}\n")
        program.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", lustre_over_efa()], env=environment, capture_output=True, check=False)
    assert (done.returncode != 0) == (broken is not None), done.stderr
    assert called.read_text().split() == reached


def limits() -> dict[str, dict[str, Any]]:
    process = node_config()["spec"]["containerd"]["baseRuntimeSpec"]["process"]
    return {limit["type"]: limit for limit in process["rlimits"]}


def test_locked_memory_limit_exceeds_every_machine() -> None:
    memlock = limits()["RLIMIT_MEMLOCK"]
    assert memlock["soft"] == memlock["hard"] == MEMLOCK_BYTES
    assert all((machine.memory_mib or 0) * 2**20 < MEMLOCK_BYTES for machine in EKS_CATALOG.values())
