"""What a GPU node is told, read back as its own tools read it: MIME, then YAML, then JSON."""

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
from infra.eks.launch_template import LUSTRE_SETUP, MEMLOCK_BYTES, lustre_over_efa, node_config, user_data


def read_back(text: str) -> dict[str, Any]:
    """The one document in a launch template's user data."""
    message = email.message_from_bytes(base64.b64decode(text, validate=True))
    (part,) = (part for part in message.walk() if not part.is_multipart())
    assert part.get_content_type() == "application/node.eks.aws"
    found: dict[str, Any] = yaml.safe_load(str(part.get_payload()))
    return found


def test_it_is_one_node_config() -> None:
    config = read_back(user_data(node_config()))
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert config == node_config()
    assert set(config["spec"]) == {"instance", "containerd"}, "EKS fills in the cluster, and merges"


def test_with_lustre_over_efa_a_script_comes_after_the_node_config() -> None:
    """What cloud-init makes of it: a part of the type that it runs, with a first line that names the shell."""
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
def test_the_script_stops_at_the_first_step_that_fails(tmp_path: Path, broken: str | None, reached: list[str]) -> None:
    """Real: bash and the script. Stand-ins: the programs that it calls, which write down that they were called."""
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


def test_the_local_disks_are_one() -> None:
    assert node_config()["spec"]["instance"]["localStorage"]["strategy"] == "RAID0"


def limits() -> dict[str, dict[str, Any]]:
    process = node_config()["spec"]["containerd"]["baseRuntimeSpec"]["process"]
    return {limit["type"]: limit for limit in process["rlimits"]}


def test_memory_can_be_locked_on_every_machine() -> None:
    memlock = limits()["RLIMIT_MEMLOCK"]
    assert memlock["soft"] == memlock["hard"] == MEMLOCK_BYTES
    assert all((machine.memory_mib or 0) * 2**20 < MEMLOCK_BYTES for machine in EKS_CATALOG.values())


def test_no_limit_is_lost_because_the_list_replaces_nodeadms() -> None:
    assert limits()["RLIMIT_NOFILE"] == {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576}


def test_limits_survive_a_reader_that_knows_only_floats() -> None:
    for limit in limits().values():
        through = json.loads(json.dumps(limit), parse_int=float)
        assert (int(through["soft"]), int(through["hard"])) == (limit["soft"], limit["hard"])
        assert through["hard"] < 2**64


def test_the_same_config_is_the_same_text() -> None:
    assert user_data(node_config()) == user_data(node_config())
