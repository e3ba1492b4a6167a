"""The applications of `workloads/serving`: what they make of their arguments, and the digits' model.

tests/pods/test_service_in_pods.py serves the digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workloads.serving.checkpoint import trained
from workloads.exits import WorkloadError
from workloads.serving import digits, llm


def test_model_of_a_run_reads_digits(tmp_path: Path) -> None:
    images, labels = trained(tmp_path, steps=40).test
    model = digits.Model(f"{tmp_path}/digits/")
    assert model.step == 40
    right = [model.digit((image[0] * 16).tolist()) == int(label) for image, label in zip(images, labels, strict=True)]
    assert sum(right) > 0.9 * len(right)


@pytest.mark.parametrize("image", [None, "a", [[1, 2], [3]], [[0] * 8] * 7, [[17] * 8] * 8, [[float("nan")] * 8] * 8])
def test_other_images_are_refused(tmp_path_factory: pytest.TempPathFactory, image: object) -> None:
    folder = tmp_path_factory.getbasetemp() / "untrained"
    if not folder.exists():
        trained(folder, steps=0)
    with pytest.raises(ValueError, match="the image"):
        digits.Model(f"{folder}/digits").digit(image)


def test_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=f"no checkpoint in {tmp_path}/digits: choose the folder"):
        digits.Model(f"{tmp_path}/digits")


@pytest.mark.parametrize(
    ("arguments", "says"), [({}, "set checkpoint=FOLDER"), ({"checkpoint": "/a", "batch": "2"}, "has no batch")]
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        digits.app(arguments | {"gpus_per_replica": 1})


def test_ranks_of_a_language_model_are_on_one_node() -> None:
    config = llm.llm_config({"model": "qwen", "source": "/m", "max_model_len": "32768", "gpus_per_replica": 4})
    assert config["engine_kwargs"] == {"tensor_parallel_size": 4, "max_model_len": 32768}
    assert config["placement_group_config"] == {"bundle_per_worker": {"CPU": 1, "GPU": 1}, "strategy": "STRICT_PACK"}
    with pytest.raises(WorkloadError, match="set model=NAME and source=FOLDER"):
        llm.llm_config({"model": "qwen", "gpus_per_replica": 4})
