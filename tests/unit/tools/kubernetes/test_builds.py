"""tools/kubernetes/builds.py: what is found, what is built when, and the message on a machine that cannot build."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.pins import KUBERNETES_BUILT
from tests.clone import executable, wait_until
from tools import go_build, setup
from tools.kubernetes import builds

# Replaces `go build`: writes an empty program for each package, or fails as a compiler does.
_COMPILER = """#!/bin/sh
case "$1" in
  version) echo "go version go{version} linux/amd64"; exit;;
  mod) echo "no route to the module" >&2; exit 1;;
esac
echo "$@" >> {log}
while [ "$1" != -o ]; do shift; done
folder=$2
shift 2
for package; do
  case "$package" in *.io/*|*.com/*) echo "$package" >&2; : > "$folder${{package##*/}}";; esac
done
{last}
"""


class Machine:
    """An empty cache, and a PATH with only the programs of the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bin"
        self.path.mkdir()
        self.cache = folder / "cache"
        self.log = folder / "go.log"

    def go(self, version: str = "1.26.8", *, last: str = "exit 0") -> None:
        """Put a compiler on PATH."""
        executable(self.path / "go", _COMPILER.format(version=version, log=self.log, last=last))

    def calls(self) -> int:
        """Number of builds."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(machine.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine.cache))
    monkeypatch.delenv("GOMODCACHE", raising=False)
    return machine


def test_program_is_built_once_with_progress(machine: Machine) -> None:
    machine.go()
    said: list[str] = []
    found = builds.programs("kwok", say=said.append)
    assert found["kwok"].is_file()
    assert found["kwok"].is_relative_to(machine.cache / "rdma-ray")
    assert any("kwok" in line and "packages" in line for line in said), said
    again = builds.programs("kwok", say=lambda text: pytest.fail(f"says {text}"))
    assert again == found
    assert machine.calls() == 1


def test_only_what_is_missing_is_built(machine: Machine) -> None:
    """The kubelet is in the API server's module, which is not built again for it."""
    machine.go()
    builds.programs("kube-apiserver", say=lambda _: None)
    builds.programs("kube-apiserver", "kubelet", say=lambda _: None)
    first, second = machine.log.read_text().splitlines()
    assert "kube-apiserver" in first
    assert "kube-apiserver" not in second
    assert "k8s.io/kubernetes/cmd/kubelet" in second
    assert f"gitVersion=v{KUBERNETES_BUILT}" in second


@pytest.mark.parametrize(
    ("version", "seen"), [(None, "there is no 'go' on PATH"), ("1.22.1", "the one on PATH is 1.22.1")]
)
def test_missing_go_is_reported_with_what_runs_without_it(machine: Machine, version: str | None, seen: str) -> None:
    if version:
        machine.go(version)
    with pytest.raises(builds.BuildError) as problem:
        builds.programs("kueue", say=lambda _: None)
    message = str(problem.value)
    assert "Go 1.26 or later is missing" in message
    assert seen in message
    assert "https://go.dev/dl/" in message
    assert "'make test' and 'make rehearse'" in message


def test_failed_build_is_reported_and_leaves_no_partial_program(machine: Machine) -> None:
    machine.go(last="echo 'undefined: Missing' >&2; exit 1")
    with pytest.raises(
        builds.BuildError, match=r"(?s)tools/kubernetes/modules/kueue/go.mod.*undefined: Missing.*make test"
    ):
        builds.programs("kueue", say=lambda _: None)
    assert not list(machine.cache.rglob("kueue"))
    assert not list(machine.cache.rglob("partial"))
    machine.go()
    assert builds.programs("kueue", say=lambda _: None)["kueue"].is_file()


def test_missing_etcd_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(builds.BuildError, match="etcd is missing: it is part of the 'dev' extra"):
        builds.programs("etcd")


def test_another_pin_is_another_folder(tmp_path: Path) -> None:
    copies = tmp_path / "modules"
    shutil.copytree(builds.FOLDER, copies)
    module = builds.MODULES[0]
    copy = replace(module, manifest=copies / module.manifest.name)
    assert builds.folder_of(copy) == builds.folder_of(module)
    with (copy.manifest / "go.sum").open("a") as sums:
        sums.write("example.com/new v1.0.0 h1:abc=\n")
    assert builds.folder_of(copy) != builds.folder_of(module)


def test_two_processes_build_one_after_the_other(machine: Machine, tmp_path: Path) -> None:
    """The second waits and uses what the first built."""
    mark = tmp_path / "compiling"
    # Only what the shell has built in: PATH has nothing else. It goes on when its partner is seen waiting.
    machine.go(last=f": > {mark}; while [ ! -e {tmp_path}/waiting ]; do :; done")
    command = [sys.executable, "-m", "tools.kubernetes.builds", "kwok"]
    first = subprocess.Popen(command, cwd=setup.ROOT, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: mark.exists() or first.poll() is not None, "the first compiles")
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            if "waiting for another process" in text:
                (tmp_path / "waiting").touch()

        assert builds.programs("kwok", say=say)["kwok"].is_file()
    finally:
        (tmp_path / "waiting").touch()
        first.communicate(timeout=60)
    assert first.returncode == 0
    assert any("waiting for another process" in text for text in said), said
    assert machine.calls() == 1


def test_unavailable_module_is_reported(machine: Machine) -> None:
    machine.go()
    with pytest.raises(
        builds.BuildError, match=r"(?s)sigs.k8s.io/kueue could not be downloaded.*no route to the module"
    ):
        builds.module_folder("sigs.k8s.io/kueue")
    with pytest.raises(KeyError, match=r"pins example\.com/none"):
        builds.module_folder("example.com/none")


def test_module_folder_is_spelled_as_go_does(machine: Machine) -> None:
    place = machine.cache / "rdma-ray/go-modules/github.com/!azure/go-ansiterm@v0.0.0-20230124172434-306776ec8161"
    place.mkdir(parents=True)
    assert builds.module_folder("github.com/Azure/go-ansiterm") == place


def test_module_folder_of_a_staging_module_is_its_replacement(machine: Machine) -> None:
    version = KUBERNETES_BUILT.replace("1.", "0.", 1)
    place = machine.cache / f"rdma-ray/go-modules/k8s.io/pod-security-admission@v{version}"
    place.mkdir(parents=True)
    assert builds.module_folder("k8s.io/pod-security-admission") == place


def test_staging_modules_have_the_version_of_kubernetes() -> None:
    kubernetes = (builds.FOLDER / "kubernetes" / "go.mod").read_text()
    minor = KUBERNETES_BUILT.removeprefix("1.")
    assert set(re.findall(r"=> k8s.io/\S+ v0\.(\S+)", kubernetes)) == {minor}


def test_every_program_is_pinned_as_a_tool() -> None:
    for module in builds.MODULES:
        manifest = (module.manifest / "go.mod").read_text()
        for package in module.packages.values():
            assert re.search(rf"^(tool |\t){re.escape(package)}$", manifest, re.MULTILINE), package
        assert f"go {'.'.join(map(str, go_build.GO_VERSION))}" in manifest
