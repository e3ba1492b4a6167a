"""The Triton kernels against torch, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workloads.kernel_checks import SHAPES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found() -> Any:
    """Results of kernel_checks.py."""
    interpret = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.workloads.kernel_checks"],
        env={**os.environ, **interpret},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", list(SHAPES))
def test_forward_and_gradients_are_conv2ds(found: Any, name: str) -> None:
    """Compare with a fp64 convolution, relative to the largest element; bf16 has 8 bits."""
    case = found["cases"][name]
    kind = SHAPES[name][1]
    assert case["kind"] == str(kind)
    assert case["channels_last"]
    narrow = 1e-5 if kind == torch.float32 else 8e-3
    # Parameters and their gradients are fp32 in both.
    assert {key: value < (1e-5 if key in ("weight", "bias") else narrow) for key, value in case["errors"].items()} == {
        "output": True, "images": True, "weight": True, "bias": True
    }, case["errors"]  # fmt: skip


def test_the_operator_keeps_torchs_contract(found: Any) -> None:
    """torch.compile relies on this contract."""
    assert set(found["contract"].values()) == {"SUCCESS"}
    assert len(found["contract"]) >= 4


def test_the_model_takes_them_under_autocast(found: Any) -> None:
    """The output is bf16, as in the eager layer, which also rounds its weights: the last bits differ."""
    assert found["autocast"]["kinds"] == ["torch.bfloat16"] * 2
    assert found["autocast"]["error"] < 2e-2


def test_without_a_gpu_the_kernels_are_rejected() -> None:
    """This process does not use Triton's interpreter."""
    from workloads.exits import WorkloadError
    from workloads.train.convnext import depthwise

    with pytest.raises(WorkloadError, match="use kernels=eager"):
        depthwise.check(torch.device("cpu"))
