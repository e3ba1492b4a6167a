"""User data of a GPU node, parsed as its readers do: MIME, then YAML, then JSON."""

from __future__ import annotations

import base64
import email
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.machines import EKS_CATALOG
from infra.catalog.pins import NODEADM_API
from infra.eks.launch_template import LUSTRE_SETUP, MEMLOCK_BYTES, lustre_over_efa, node_config, user_data


def read_back(text: str) -> dict[str, Any]:
    """Return the only document in the user data of a launch template."""
    message = email.message_from_bytes(base64.b64decode(text, validate=True))
    (part,) = (part for part in message.walk() if not part.is_multipart())
    assert part.get_content_type() == "application/node.eks.aws"
    found: dict[str, Any] = yaml.safe_load(str(part.get_payload()))
    return found


def test_user_data_is_one_node_config() -> None:
    config = read_back(user_data(node_config()))
    assert (config["apiVersion"], config["kind"]) == (NODEADM_API, "NodeConfig")
    assert config == node_config()
    assert set(config["spec"]) == {"instance", "containerd"}, "EKS adds the cluster"


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


def test_local_disks_form_one_volume() -> None:
    assert node_config()["spec"]["instance"]["localStorage"]["strategy"] == "RAID0"


def limits() -> dict[str, dict[str, Any]]:
    process = node_config()["spec"]["containerd"]["baseRuntimeSpec"]["process"]
    return {limit["type"]: limit for limit in process["rlimits"]}


def test_locked_memory_limit_exceeds_every_machine() -> None:
    memlock = limits()["RLIMIT_MEMLOCK"]
    assert memlock["soft"] == memlock["hard"] == MEMLOCK_BYTES
    assert all((machine.memory_mib or 0) * 2**20 < MEMLOCK_BYTES for machine in EKS_CATALOG.values())


def test_limits_include_nodeadm_default() -> None:
    assert limits()["RLIMIT_NOFILE"] == {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576}


def test_limits_survive_conversion_to_float() -> None:
    for limit in limits().values():
        through = json.loads(json.dumps(limit), parse_int=float)
        assert (int(through["soft"]), int(through["hard"])) == (limit["soft"], limit["hard"])
        assert through["hard"] < 2**64


def test_user_data_is_deterministic() -> None:
    assert user_data(node_config()) == user_data(node_config())
