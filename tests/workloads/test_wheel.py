"""The wheel in an environment with its requirements only: no Pulumi, no Ray, no torch, and no clone around."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infra.project import version
from tests.workloads.client.fake_kubectl import Fake
from tests.workloads.client.test_outputs_secret import NAME, SHARED, secret
from tests.workloads.conftest import ROOT, Cluster
from tests.workloads.stack_outputs import TOKEN
from workloads.cli import app

UV = [sys.executable, "-m", "uv"]
ON_CLUSTER = {"ray", "torch", "torchvision", "sklearn", "pyarrow", "starlette"}
"""What modules import that run on nodes: the client sends them there."""
BENCH = ("bench nccl", "bench hunt", "bench judge", "bench compare", "bench job")
IMPORT_ALL = """
import importlib, json, pathlib, sys
tree = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(tree))
lacks = {}
for file in sorted(tree.rglob("*.py")):
    name = ".".join(file.relative_to(tree).with_suffix("").parts)
    if "_pod." not in name and file.stem not in ("__main__", "__init__"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            lacks[name] = error.name.partition(".")[0]
print(json.dumps(lacks))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a folder that is not in a clone."""

    environment: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.environment.glob("lib/python*/site-packages")
        return found

    def run_python(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-P", "-c", code, *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def rdma_ray(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        return subprocess.run(
            [self.environment / "bin" / "rdma-ray", *arguments],
            cwd=self.folder,
            env=kept | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def required(name: str, extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield a distribution of this environment, and those that it requires, by name."""
    yield name
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if any(requirement.marker is None or requirement.marker.evaluate({"extra": each}) for each in (*extras, "")):
            yield from required(requirement.name, frozenset(requirement.extras))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    found = Installed(folder / "venv", folder / "user")
    found.folder.mkdir()
    build = ["build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*UV, *build, "--out-dir", folder, ROOT], check=True)
    subprocess.run([*UV, "venv", "--quiet", "--python", sys.executable, found.environment], check=True)
    (wheel,) = folder.glob("*.whl")
    install = ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(found.python), str(wheel)]
    subprocess.run([*UV, *install], check=True)
    (metadata,) = found.packages.glob("rdma_ray-*.dist-info/METADATA")
    wanted = [line.partition(": ")[2] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    # Links into this environment, because an index is slow, or out of reach.
    for requirement in (Requirement(line) for line in wanted if "extra ==" not in line):
        for name in required(requirement.name):
            for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
                source, place = Path(str(distribution(name).locate_file(top))), found.packages / top
                if top.endswith(".dist-info"):  # uv finds no package by a link
                    shutil.copytree(source, place, dirs_exist_ok=True)
                elif not place.exists():
                    place.symlink_to(source)
    subprocess.run([*UV, "pip", "check", "--quiet", "--python", found.python], check=True)
    return found


@pytest.mark.parametrize("package", ["pulumi", "torch", "ray", "infra", "workloads"])
def test_the_environment_gets_neither_clouds_nor_gpus_nor_common_names(installed: Installed, package: str) -> None:
    done = installed.run_python(f"import {package}")
    assert f"No module named '{package}'" in done.stderr


def test_every_shipped_module_imports_there_or_runs_on_nodes(installed: Installed) -> None:
    tree = installed.packages / "rdma_ray" / "tree"
    done = installed.run_python(IMPORT_ALL, str(tree))
    lacks = json.loads(done.stdout)
    assert {*lacks.values()} <= ON_CLUSTER
    assert not [name for name in lacks if name.startswith("infra.") or "command" in name or name.endswith(".job")]
    shipped = {file.relative_to(tree) for file in tree.rglob("*.py")}
    assert {file.relative_to(ROOT) for file in (ROOT / "workloads").rglob("*.py")} <= shipped
    assert len([file for file in shipped if file.parts[0] == "infra"]) < len([*(ROOT / "infra").rglob("*.py")]) * 0.75


def test_every_command_has_its_help_there(installed: Installed) -> None:
    assert installed.rdma_ray("--version").stdout == f"{version()}\n"
    done = installed.rdma_ray("--help")
    assert all(name in done.stdout for name in app.resolved_commands() if not name.startswith("-")), done.stderr
    for command in ("run", "train gpt", "render rayjob", "slurm run", "top", "doctor", "evidence", "preflight", *BENCH):
        assert (done := installed.rdma_ray(*command.split(), "--help")).returncode == 0, done.stderr


def test_without_a_clone_the_ways_to_outputs_are_named(installed: Installed) -> None:
    done = installed.rdma_ray("status")
    assert done.returncode == 1
    for way in ("is not in a clone of this project", "--outputs", "RDMA_RAY_OUTPUTS", "secret:NAME", "a file"):
        assert way in done.stderr
    done = installed.rdma_ray("image", "build", "--stack-file", str(ROOT / "Pulumi.gke.yaml"))
    assert (done.returncode, "is not in a clone of this project" in done.stderr) == (1, True)
    done = installed.rdma_ray("plan", str(ROOT / "Pulumi.gke.yaml"))
    assert (done.returncode, "a3-ultragpu-8g" in done.stdout) == (0, True), done.stderr


def test_a_stack_is_read_by_the_engine_of_the_clone_around(installed: Installed) -> None:
    clone = installed.folder / "clone"
    (clone / "bin").mkdir(parents=True)
    (clone / "Pulumi.yaml").write_text("name: rdma-ray\n")
    engine = clone / "bin" / "pulumi"
    engine.write_text(f"#!/bin/sh\necho '{json.dumps(SHARED)}'\n")
    engine.chmod(0o700)
    done = subprocess.run(
        [installed.environment / "bin" / "rdma-ray", "outputs", "--stack", "gke"],
        cwd=clone / "bin",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["ray"]["cluster"] == "a3u"


def test_outputs_come_from_a_file_and_from_a_secret(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = Fake(tmp_path, monkeypatch)
    kubectl.has(secret(SHARED))
    file = tmp_path / "outputs.json"
    file.write_text(base64.b64decode(secret(SHARED)["secret"]["data"]["outputs.json"]).decode())
    for given, context in ((str(file), None), (f"{NAME}@theirs", "theirs")):
        done = installed.rdma_ray("outputs", "--outputs", given)
        assert (json.loads(done.stdout)["context"], TOKEN in done.stdout) == (context, False), done.stderr


def test_a_script_runs_on_the_cluster(installed: Installed, cluster: Cluster) -> None:
    code = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
    (installed.folder / "where.py").write_text(code)
    outputs = {"RDMA_RAY_OUTPUTS": str(cluster.file)}
    run = installed.rdma_ray("run", "--nodes", "2", "--detach", "--", "torchrun", "where.py", **outputs)
    assert run.returncode == 0, run.stderr
    (job,) = run.stdout.split()
    followed = installed.rdma_ray("logs", job, "--all", **outputs)
    assert followed.returncode == 0, followed.stderr
    assert "rank 0 of" in followed.stdout
    listed = json.loads(installed.rdma_ray("list", "--json", **outputs).stdout)["jobs"]
    assert [each["status"] for each in listed if each["id"] == job] == ["SUCCEEDED"]
    assert installed.rdma_ray("doctor", **outputs).returncode == 0
    # Without the stack, as after `down`.
    assert cluster.outputs.storage is not None
    kept = installed.rdma_ray("logs", job, "--all", "--from", str(cluster.outputs.storage.history))
    assert (kept.returncode, kept.stdout) == (0, followed.stdout), kept.stderr
