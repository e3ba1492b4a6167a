"""The machine of namespaces with plain processes: its programs, its end, and the end of its owner. Namespaces, mounts
and links are fakes (namespaces.py); tests/pods has the real ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.clone import wait_until
from tests.unit.tools.kubernetes.namespaces import StandIns
from tools.kubernetes.node_machine import Machine

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    found = StandIns(tmp_path)
    monkeypatch.setenv("PATH", found.path)
    return found


OWNER = """
import sys, time
from pathlib import Path
from tools.kubernetes.node_machine import Machine
folder = Path(sys.argv[1])
machine = Machine("left", folder / "logs", identity="abc123", remove=[folder / "its"])
print(machine.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_machine_ends_with_its_owner(stand_ins: StandIns, tmp_path: Path, number: signal.Signals) -> None:
    """The pipe from the owner closes, also after SIGKILL."""
    assert stand_ins
    for name in ("its", "another"):
        (tmp_path / name / "deep").mkdir(parents=True)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        first = psutil.Process(int(owner.stdout.readline()))
        _unshare, guard, *_ = first.parents()
        owner.send_signal(number)
        owner.wait(timeout=60)
        wait_until(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE, "the guard has ended")
    finally:
        owner.kill()
        owner.communicate()
    assert not first.is_running()
    assert not (tmp_path / "its").exists()
    assert (tmp_path / "another" / "deep").exists()


def test_machine_ignores_sigint(stand_ins: StandIns, tmp_path: Path) -> None:
    """The guard and the machine have sessions of their own, and ignore the signal."""
    assert stand_ins
    with Machine("gpu-0", tmp_path / "logs", identity="abc123") as machine:
        first = psutil.Process(machine.pid)
        _unshare, guard, *_ = first.parents()
        for each in (first, guard):
            each.send_signal(signal.SIGINT)
        machine.start("works", ["sh", "-c", "echo still"])
        wait_until(lambda: machine.tail("works") == "still", "the machine obeys")
