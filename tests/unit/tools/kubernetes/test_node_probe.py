"""Check whether real pods can run here: the message names what is missing and the alternative. All programs are fakes.

Every test in tests/pods shows that the probe passes where pods run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.kubernetes.namespaces import StandIns
from tools.kubernetes import containers, node_probe
from tools.kubernetes.containers import Missing
from tools.kubernetes.node_machine import Machine

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIns]:
    """Plain processes as the machine, without cgroups."""
    found = StandIns(tmp_path)
    # It runs what it is given, outside of any namespace: nothing but stand-ins and a harmless shell.
    found.write("nsenter", '#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\n"$@"\n')
    found.write("sh", '#!/bin/dash\n[ "$1" = -c ] && [ "${2#echo 1 >}" != "$2" ] && exit 0\nexec /bin/sh "$@"\n')
    monkeypatch.setenv("PATH", found.path)
    node_probe.probe.cache_clear()
    yield found
    node_probe.probe.cache_clear()


def machine(*arguments: Any, cgroups: bool, **options: Any) -> Machine:
    assert cgroups
    return Machine(*arguments, **options)


def test_capable_machine_passes_and_nothing_is_left(stand_ins: StandIns) -> None:
    node_probe.probe(machine)
    asked = stand_ins.asked
    assert [line.split()[0] for line in asked].count("unshare") == 1
    assert any(line.startswith("mount -t overlay overlay -o lowerdir=") for line in asked)
    assert "ip link add bridge type bridge" in asked
    assert "ip link add one type veth peer name other" in asked
    [rules] = [line.removeprefix("nft -f ") for line in asked if line.startswith("nft")]
    assert not Path(rules).parent.exists()


@pytest.mark.parametrize(
    ("program", "script", "what", "reason"),
    [
        (
            "unshare",
            "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1",
            "namespaces, mounts and cgroups for a machine",
            "unshare: unshare failed: Operation not permitted",
        ),
        (
            "mount",
            "case $* in *overlay*) echo 'mount: wrong fs type.' >&2; exit 32;; esac",
            "namespaces, mounts and cgroups for a machine",
            "mount: wrong fs type.; subprocess.CalledProcessError",
        ),
        (
            "ip",
            "case $* in *bridge*) echo 'Error: Unknown device type.' >&2; exit 2;; esac",
            "a bridge",
            "Error: Unknown device type.",
        ),
        ("sh", "echo 'cannot create: Read-only file system' >&2; exit 2", "forwarding", "Read-only file system"),
    ],
)
def test_missing_capability_is_named(stand_ins: StandIns, program: str, script: str, what: str, reason: str) -> None:
    stand_ins.write(program, f"#!/bin/dash\n{script}\n")
    with pytest.raises(Missing) as caught:
        node_probe.probe(machine)
    said = str(caught.value)
    assert said.startswith(f"Root cannot create {what}")
    assert reason in said
    assert "Traceback" not in said
    assert "`--privileged`" in said
    assert "`KUBECONFIG=… make test-pods`" in said


def test_only_success_is_cached(stand_ins: StandIns) -> None:
    stand_ins.write("nft", "#!/bin/sh\nexit 1\n")
    with pytest.raises(Missing):
        node_probe.probe(machine)
    stand_ins.write("nft", "#!/bin/sh\n")
    node_probe.probe(machine)
    asked = len(stand_ins.asked)
    node_probe.probe(machine)
    assert len(stand_ins.asked) == asked


def test_without_root_the_alternative_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing, match="Real pods need root on Linux"):
        node_probe.ready_to_run()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Missing, match="`make test-kubernetes` needs neither"):
        node_probe.ready_to_run()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(containers, "_PLUGINS", (tmp_path,))
    with pytest.raises(Missing) as caught:
        node_probe.ready_to_run()
    said = str(caught.value)
    assert "need containerd, containerd-shim-runc-v2, ctr, runc, nft" in said
    assert "the CNI plugins ptp and host-local" in said
    assert f"apt-get install -y {containers.PACKAGES}" in said


def test_command_prints_the_reason_and_sets_the_status(tmp_path: Path) -> None:
    """With an empty PATH the packages are missing; without root, root is."""
    command = [sys.executable, "-m", "tools.kubernetes.node_probe"]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == node_probe.NOT_READY
    assert done.stdout.startswith("Real pods need ")
    assert done.stderr == ""
