"""images/Dockerfile and the rest of the project name the same versions and places. No test builds an image."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from infra.catalog.fabrics import LIBRARIES
from infra.catalog.pins import OWN_TAG, RAY
from infra.settings import CloudSettings
from tests.clone import executable
from tests.unit.stacks import eks, gke

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "images" / "Dockerfile").read_text(encoding="utf-8")
CODE = "\n".join(line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#"))
PINS = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, flags=re.MULTILINE))
LOCK = ROOT / "requirements-workloads.txt"


def test_base_image_is_the_pinned_one() -> None:
    (base,) = re.findall(r"^FROM docker\.io/rayproject/ray:(\S+) AS", CODE, flags=re.MULTILINE)
    assert base.replace("${RAY_VERSION}", PINS["RAY_VERSION"]) == OWN_TAG


def test_python_and_cuda_are_the_projects() -> None:
    python, cuda = re.findall(r"-py3(\d+)-cu(\d\d)\d$", OWN_TAG)[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">=3.{python}"
    assert re.findall(r"^nvidia-cuda-runtime==(\d+)\.", LOCK.read_text(), flags=re.MULTILINE) == [cuda]


def test_locked_torch_has_code_for_every_supported_gpu() -> None:
    # H200 and B200, by NVIDIA's table of compute capabilities (CUDA programming guide, read 2026-11).
    assert {"sm_90", "sm_100"} <= set(str(torch._C._cuda_getArchFlags()).split())


def test_constraints_are_the_locked_versions_without_hashes(tmp_path: Path) -> None:
    """The line of the Dockerfile, run on the lock."""
    (step,) = re.findall(r"grep '\^\[A-Za-z\]' .* > /tmp/constraints\.txt", CODE)
    step = step.replace("/tmp/requirements.txt", str(LOCK)).replace("/tmp/constraints.txt", "constraints.txt")
    subprocess.run(["/bin/sh", "-c", step], cwd=tmp_path, check=True)
    found = (tmp_path / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s\\]+( ; [^\\]+)?", line) for line in found)
    names = {line.partition("==")[0] for line in found}
    (asked,) = re.findall(r"--constraint /tmp/constraints\.txt \\\n\s+(.+) \\", CODE)
    assert set(asked.split()) <= names
    assert f"ray=={RAY}" in found


@pytest.mark.parametrize(("settings", "machine"), [(gke, "a4-highgpu-8g"), (eks, "p6-b200.48xlarge")])
def test_tag_is_legal(settings: Callable[[dict[str, str]], CloudSettings], machine: str) -> None:
    image = f"example.com/ray:{OWN_TAG}"
    assert settings({"ray.image": image, "nodes.machine": machine}).ray.image == image


def test_nothing_floats_and_nothing_runs_unverified() -> None:
    assert "latest" not in CODE
    assert re.fullmatch(r"[0-9a-f]{64}", PINS["EFA_INSTALLER_SHA256"])
    assert re.fullmatch(r"[0-9A-F]{40}", PINS["EFA_SIGNER_FINGERPRINT"])
    steps = ("sha256sum --check", "gpg --batch --status-file", 'grep "VALIDSIG', "tar -xf", "efa_installer.sh")
    order = [CODE.index(step) for step in steps]
    assert order == sorted(order)
    # The shell of a builder has no `pipefail`: a pipe would hide the failure of all but its last command.
    assert CODE.count(" | ") == 2


def test_installer_leaves_the_kernel_alone() -> None:
    assert {"--skip-kmod", "--skip-limit-conf", "--no-verify"} <= set(CODE.split())


def test_pods_and_image_look_for_the_libraries_in_the_same_places() -> None:
    (image,) = re.findall(r"LD_LIBRARY_PATH=(\S+):\$", CODE)
    assert set(image.split(":")) <= set(LIBRARIES)


def test_command_runs_from_the_code_that_the_image_contains(tmp_path: Path) -> None:
    """The image's `rdma-ray`, with its PYTHONPATH and without the packages that it leaves out."""
    (written,) = re.findall(r"^RUN (printf .*?) > /usr/local/bin/rdma-ray", CODE, flags=re.MULTILINE)
    command = executable(tmp_path / "rdma-ray", subprocess.check_output(["/bin/sh", "-c", written], text=True))
    for name in re.findall(r"^COPY --chown=ray (\w+) /opt/rdma-ray/\1$", CODE, flags=re.MULTILINE):
        (tmp_path / "opt").mkdir(exist_ok=True)
        (tmp_path / "opt" / name).symlink_to(ROOT / name)
    missing = ["pulumi", "pulumi_kubernetes", "psutil", "textual", "jsonschema", "detect_secrets", "pathspec"]
    (tmp_path / "opt" / "sitecustomize.py").write_text(f"import sys; sys.modules |= dict.fromkeys({missing})")
    environment = {"PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "opt")}
    for arguments in (["bench", "nccl", "--help"], ["train", "convnext", "--help"], ["run", "--help"]):
        subprocess.run([command, *arguments], cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
