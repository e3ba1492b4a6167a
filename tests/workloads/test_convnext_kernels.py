"""The Triton kernels against torch: by Triton's interpreter where there is no GPU, so right, not fast."""

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
    """What kernel_checks.py saw."""
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
    """Against a convolution in fp64, relative to the largest element: what is stored in bf16 has 8 bits."""
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
    """What torch.compile relies on."""
    assert set(found["contract"].values()) == {"SUCCESS"}
    assert len(found["contract"]) >= 4


def test_the_model_takes_them_under_autocast(found: Any) -> None:
    """bf16 out, as the eager layer has it; the eager one rounds its weights, too, so they differ in the last bits."""
    assert found["autocast"]["kinds"] == ["torch.bfloat16"] * 2
    assert found["autocast"]["error"] < 2e-2


def test_without_a_gpu_the_kernels_are_rejected() -> None:
    """In this process nothing is interpreted."""
    from workloads.exits import WorkloadError
    from workloads.train.convnext import depthwise

    with pytest.raises(WorkloadError, match="use kernels=eager"):
        depthwise.check(torch.device("cpu"))
