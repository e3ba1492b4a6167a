"""Output for invalid stack files: every problem at once, from the engine and from `make`."""

from __future__ import annotations

import shutil

import pytest

from rehearsal.engine.workspace import ROOT
from tests.clone import Clone, executable
from workloads.exits import Exit

FIVE_MISTAKES = """config:
  rdma-ray:target: gke
  rdma-ray:loction: us-central1-b
  rdma-ray:nodes:
    machine: a3-ultragpu-8g
    capacity: flex-start
    maxRunHours: 200
    max: many
  rdma-ray:computeClass: true
  rdma-ray:fabric: efa
  rdma-ray:ray:
    image: rayproject/ray:2.60.0-gpu
"""

EXPECTED = (
    # setting, value, a word of the reason, a word of the fix
    ("loction", "us-central1-b", "no setting", "did you mean location"),
    ("nodes.maxRunHours", "200", "168", "168"),
    ("nodes.max", "many", "must be a whole number", "write a whole number"),
    ("fabric", "efa", "gke has no fabric efa", "multi-network"),
    ("ray.image", "rayproject/ray:2.60.0-gpu", "CUDA", "cu128"),
)


@pytest.fixture(scope="module")
def wrong(clone: Clone) -> Clone:
    (clone.path / "Pulumi.wrong.yaml").write_text(FIVE_MISTAKES)
    clone.environment["PULUMI_CONFIG_PASSPHRASE"] = "test"
    clone.pulumi("stack", "init", "--no-select", stack="wrong")
    return clone


@pytest.mark.parametrize("command", ["pulumi preview", "make preview", "make up", "rdma-ray plan"])
def test_five_problems_are_reported_at_once(wrong: Clone, command: str) -> None:
    match command:
        case "pulumi preview":
            said = wrong.pulumi("preview", stack="wrong", check=False)
        case "rdma-ray plan":
            said = wrong.run("bin/rdma-ray", "plan", "Pulumi.wrong.yaml", check=False)
        case _:
            said = wrong.run("make", command.split()[1], "STACK=wrong", check=False)
    flat = " ".join(said.split())
    assert "has 5 problems" in flat
    for words in EXPECTED:
        assert [word for word in words if word not in flat] == [], said
    # The engine prints a message where it occurs and again in its summary.
    assert flat.count("Fix:") == (10 if command == "pulumi preview" else 5)
    assert "Traceback" not in flat


def test_unknown_stack_lists_known_ones(clone: Clone) -> None:
    said = clone.run("make", "up", "STACK=locl", check=False)
    assert "there is no Pulumi.locl.yaml" in said
    assert "local" in said


def test_missing_google_cloud_settings_are_reported_first(clone: Clone) -> None:
    """A warning about a setting does not hide them."""
    (clone.path / "Pulumi.cloud.yaml").write_text(
        "config:\n  rdma-ray:target: gke\n  rdma-ray:location: us-central1-b\n"
        "  rdma-ray:nodes: {machine: a3-ultragpu-8g, max: 4}\n"
        "  rdma-ray:ray: {image: 'rayproject/ray:2.60.0-py311-cu128'}\n"
    )
    clone.pulumi("stack", "select", "--create", stack="cloud")
    said = " ".join(clone.pulumi("preview", stack="cloud", check=False).split())
    for words in ("gcp:project", "pulumi config set gcp:project YOUR-PROJECT-ID"):
        assert words in said
    # Where it occurs, and again in the engine's summary.
    assert said.count("This image has neither torch nor libnl") == 2
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nodes.cont=3", "did you mean nodes.count?"),
        ("nodes.count=many", "whole number"),
        ("nodes.count", "SETTING=VALUE"),
    ],
)
def test_wrong_change_is_refused_and_leaves_the_stack_file_alone(clone: Clone, change: str, message: str) -> None:
    before = (clone.path / "Pulumi.local.yaml").read_text()
    said = clone.run("make", "up", f"SET={change}", check=False)
    assert message in " ".join(said.split())
    assert (clone.path / "Pulumi.local.yaml").read_text() == before
    assert clone.resources() == {}


@pytest.mark.parametrize(
    ("status", "arguments", "asked", "goes_on"),
    [
        (Exit.BELOW, (), True, False),
        (Exit.NOT_AS_ASKED, (), True, True),
        (Exit.BELOW, ("PREFLIGHT=skip",), False, True),
    ],
)
def test_first_up_on_a_cloud_asks_the_account(
    fresh_clone: Clone, status: Exit, arguments: tuple[str, ...], asked: bool, goes_on: bool
) -> None:
    """Whatever it says, the engine here has no plugin for a cloud, so nothing is created."""
    shutil.copy(ROOT / "Pulumi.gke.yaml", fresh_clone.path)
    executable(fresh_clone.path / "bin" / "rdma-ray", f"#!/bin/sh\necho asked: $*\nexit {status}\n")
    fresh_clone.environment["PULUMI_CONFIG_PASSPHRASE"] = "x"
    said = fresh_clone.run("make", "up", "STACK=gke", *arguments, check=False)
    assert ("asked: preflight gke" in said) == asked, said
    assert ("Updating (gke)" in said) == goes_on, said
    assert ("Nothing was created. Fix what is not ok" in said) != goes_on, said
    assert fresh_clone.resources("gke") == {}
