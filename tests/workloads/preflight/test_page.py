"""The examples of docs/preflight.md: what the commands print, with the recorded answers of a project."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.console import BLOCK, agrees, commands
from tests.workloads.conftest import ROOT
from tests.workloads.preflight.test_capacity import SEVERAL
from tests.workloads.preflight.test_gke import RECORDINGS, on_path, recordings
from workloads.cli import main
from workloads.exits import Exit

PAGE = ROOT / "docs" / "preflight.md"
QUOTA = "PREEMPTIBLE_NVIDIA_H200_GPUS"


@pytest.mark.parametrize(("name", "code"), [("preflight", Exit.BELOW), ("capacity", Exit.OK)])
def test_example_is_what_the_command_prints(
    name: str, code: Exit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The project's quota of H200 is 16 GPUs, the stack needs 32."""
    text = PAGE.read_text(encoding="utf-8")
    [command] = [each for _, block in BLOCK.findall(text) for each in commands(block) if f" {name} " in each.text]
    region = copy.deepcopy(RECORDINGS["regions"]["document"])
    next(each for each in region["quotas"] if each["metric"] == QUOTA)["limit"] = 16.0
    on_path(tmp_path, monkeypatch, recordings({**SEVERAL, "regions": {"document": region}}))
    monkeypatch.setenv("COLUMNS", "120")
    assert main([name, str(ROOT / f"Pulumi.{command.text.split()[-1]}.yaml")]) == code
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert agrees(command.shown, printed), "\n".join(printed)
