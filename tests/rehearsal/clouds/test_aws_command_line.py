"""The rehearsal's AWS CLI: one command, for processes of a rehearsal only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rehearsal.clouds.aws import command_line, tokens
from rehearsal.engine.state import State
from rehearsal.engine.workspace import FOLDER, PROGRAMS, Workspace
from tools.recovery import Tagged, list_command, tagged

TAGS = {"rdma-ray-stack": "eks", "Name": "eks-x", "rdma-ray-owner": "0a1b"}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A rehearsal in which AWS has a VPC, a NAT gateway, a role, a VPC in another region, and one of another stack."""
    stack = tmp_path / "Pulumi.eks.yaml"
    stack.write_text("config: {}\n")
    made = Workspace(tmp_path / "rehearsal")
    made.begin("eks", stack)
    here = {"region": "us-east-2", "tagsAll": TAGS}
    with State(made.cloud_state).transaction() as state:
        state.put(tokens.VPC, "vpc-1", {**here, "arn": "arn:aws:ec2:us-east-2:123456789012:vpc/vpc-1"})
        state.put(tokens.VPC, "vpc-2", {**here, "region": "us-east-1", "arn": "arn:aws:ec2:us-east-1:1:vpc/vpc-2"})
        others = {**TAGS, "rdma-ray-stack": "other"}
        state.put(tokens.VPC, "vpc-3", {**here, "tagsAll": others, "arn": "arn:aws:ec2:us-east-2:1:vpc/vpc-3"})
        state.put(tokens.NAT, "nat-1", here)
        state.put(tokens.ROLE, "eks-nodes", {**here, "arn": "arn:aws:iam::123456789012:role/eks-nodes"})
    return made


def test_tagged_resources_of_the_region_are_listed(workspace: Workspace) -> None:
    """With the call of recovery, in the environment of a rehearsal."""
    assert sorted(tagged("eks", "us-east-2", workspace.environment()), key=lambda each: each.arn) == [
        Tagged("arn:aws:ec2:us-east-2:123456789012:natgateway/nat-1", "eks-x", "0a1b"),
        Tagged("arn:aws:ec2:us-east-2:123456789012:vpc/vpc-1", "eks-x", "0a1b"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["eks", "get-token", "--cluster-name", "eks"],
        ["ec2", "delete-vpc", "--vpc-id", "vpc-1"],
        list_command("eks", "us-east-2")[1:-1],
        [*list_command("eks", "us-east-2")[1:6], "nonsense", "--output", "json"],
        [],
    ],
)
def test_other_commands_are_refused(
    words: list[str], workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in workspace.environment().items():
        monkeypatch.setenv(key, value)
    assert command_line.main(words) == command_line.REFUSED
    said = capsys.readouterr()
    assert "REHEARSAL" in said.err
    assert said.out == ""


def test_cli_refuses_to_run_outside_rehearsal() -> None:
    plain = {key: value for key, value in os.environ.items() if key != FOLDER}
    assert str(PROGRAMS) not in plain.get("PATH", "")
    done = subprocess.run(
        [PROGRAMS / "aws", *list_command("eks", "us-east-2")[1:]], env=plain, capture_output=True, text=True
    )
    assert done.returncode == command_line.NOT_OURS
    assert "REHEARSAL" in done.stderr
    assert "it serves `make rehearse` only" in done.stderr
    assert done.stdout == ""
