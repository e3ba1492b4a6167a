"""The EFA image's Dockerfile and the rest of the project name the same versions. No test builds the image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from infra.eks.pod import LIBRARIES
from tests.unit.stacks import eks

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "images" / "ray-efa" / "Dockerfile").read_text(encoding="utf-8")
CODE = "\n".join(line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#"))
PINS = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, flags=re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("pin", "package"),
    [
        ("RAY_VERSION", "ray"),
        ("TORCH_VERSION", "torch"),
        ("TORCHVISION_VERSION", "torchvision"),
        ("SCIKIT_LEARN_VERSION", "scikit-learn"),
    ],
)
def test_packages_are_those_of_the_project(pin: str, package: str) -> None:
    workloads = PROJECT["optional-dependencies"]["workloads"]
    pinned = {re.split(r"[\[=]", line)[0]: line.rpartition("==")[2] for line in workloads}
    assert PINS[pin] == pinned[package]


def test_ray_is_the_version_that_stacks_get_with_an_image_of_their_own() -> None:
    assert eks().ray.version == PINS["RAY_VERSION"]


def test_python_is_the_projects() -> None:
    (minor,) = re.findall(r"-py3(\d+)-", CODE)
    assert PROJECT["requires-python"] == f">=3.{minor}"


def test_cuda_is_that_of_the_locked_torch() -> None:
    locked = (ROOT / "requirements-workloads.txt").read_text(encoding="utf-8")
    (runtime,) = re.findall(r"^nvidia-cuda-runtime==(\d+)\.", locked, flags=re.MULTILINE)
    (base,) = re.findall(r"^FROM \S+-cu(\d{2})\d$", CODE, flags=re.MULTILINE)
    assert base == runtime


def test_a_tag_as_the_comment_names_it_is_legal() -> None:
    (tag,) = set(re.findall(r"REPOSITORY/ray-efa:(\S+)", DOCKERFILE))
    image = f"111122223333.dkr.ecr.us-east-1.amazonaws.com/ray-efa:{tag}"
    assert eks({"ray.image": image, "nodes.machine": "p6-b200.48xlarge"}).ray.image == image


def test_nothing_floats_and_nothing_runs_unverified() -> None:
    assert "latest" not in CODE
    assert re.fullmatch(r"[0-9a-f]{64}", PINS["EFA_INSTALLER_SHA256"])
    assert re.fullmatch(r"[0-9A-F]{40}", PINS["EFA_KEY_FINGERPRINT"])
    order = [
        CODE.index(step) for step in ("sha256sum --check", "gpg --batch --status-fd", "tar -xf", "efa_installer.sh")
    ]
    assert order == sorted(order)


def test_the_installer_leaves_the_kernel_alone() -> None:
    assert {"--skip-kmod", "--skip-limit-conf", "--no-verify"} <= set(CODE.split())


def test_pods_and_image_look_for_the_libraries_in_the_same_places() -> None:
    (image,) = re.findall(r"LD_LIBRARY_PATH=(\S+):\$", CODE)
    assert set(image.split(":")) <= set(LIBRARIES)
