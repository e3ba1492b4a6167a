"""What stays after a stack is destroyed: each thing with its cost and a command, and `make down` prints them."""

from __future__ import annotations

import shlex

import pytest

from infra.remains import remains
from infra.settings import parse
from tests.unit.stacks import EKS, GKE, KUBERNETES, LOCAL, changed
from tools import stack as make

RESERVED = {"nodes.capacity": "reservation"}


@pytest.mark.parametrize(
    ("stack", "commands"),
    [
        (LOCAL, []),
        (changed(GKE, {"storage.bucket": None}), []),
        (changed(GKE, {"storage.bucket": "data"}), ["gcloud storage rm --recursive gs://data"]),
        (
            changed(GKE, {**RESERVED, "nodes.reservation": "projects/p/reservations/ours/reservationBlocks/b"}),
            ["gcloud compute reservations list --filter=name=ours"],
        ),
        (changed(GKE, {"fabric": "managed-dranet"}), ["gcloud compute networks list"]),
        (
            changed(EKS, {"storage.bucket": "data", "location": "us-east-2a", "network.secondZone": None}),
            [
                "aws s3 rb --force s3://data",
                "aws kms list-keys --region us-east-2",
                "aws logs delete-log-group --region us-east-2 --log-group-name /aws/eks/mine/cluster",
            ],
        ),
        (
            changed(EKS, {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0"}),
            ["aws ec2 describe-capacity-reservations", "aws kms list-keys", "aws logs delete-log-group"],
        ),
        (
            changed(KUBERNETES, {"storage": {"claim": "shared"}, "context": "a b"}),
            ["kubectl '--context=a b' --namespace=team-a get pvc shared"],
        ),
    ],
)
def test_each_thing_has_its_command(stack: dict[str, object], commands: list[str]) -> None:
    found = remains(parse(stack), "mine")
    assert len(found) == len(commands)
    for one, command in zip(found, commands, strict=True):
        assert one.command.startswith(command)
        assert shlex.split(one.command)
        assert one.what
        assert one.cost


def test_down_names_what_remains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, result in (("_select", None), ("_has_resources", False), ("_destroy", None)):
        monkeypatch.setattr(make.Stack, name, lambda _self, result=result: result)
    make.Stack("gke-first").down()
    said = capsys.readouterr().out
    assert "Stack gke-first is down: no resource of the stack is left.\n\nNot resources of the stack" in said
    assert "- Bucket my-bucket and its content, which the stack did not make. Storage by the GB" in said
