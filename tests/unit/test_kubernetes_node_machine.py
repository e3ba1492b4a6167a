"""The machine of namespaces with plain processes: its programs, its end, and the end of its owner. Namespaces, mounts
and links are fakes (namespaces.py); tests/pods has the real ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.clone import wait_until
from tests.unit.namespaces import StandIns
from tools.kubernetes.node_machine import Machine, bind, identity_of, overlay
from tools.process import ProgramEnded, plain_environment

ROOT = Path(__file__).resolve().parents[2]
MakeMachine = Callable[..., Machine]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    found = StandIns(tmp_path)
    monkeypatch.setenv("PATH", found.path)
    return found


@pytest.fixture
def make(stand_ins: StandIns, tmp_path: Path) -> Iterator[MakeMachine]:
    assert stand_ins
    made: list[Machine] = []

    def machine(name: str = "gpu-0", **options: Any) -> Machine:
        made.append(Machine(name, tmp_path / "logs", identity="abc123", **options))
        return made[-1]

    yield machine
    for each in made:
        each.stop()


def ended(machine: Machine) -> str:
    """Wait until `check` raises, and return its message."""
    said: list[str] = []

    def looked() -> bool:
        try:
            machine.check()
        except ProgramEnded as problem:
            said.append(str(problem))
        return bool(said)

    wait_until(looked, "the machine says that something ended")
    return said[0]


def test_machine_gets_namespaces_mounts_and_a_name(make: MakeMachine, stand_ins: StandIns) -> None:
    make(mounts=[bind(Path("/what"), "/where"), bind(Path("/text"), "/proc/sys/kernel/panic")])
    unshare, *inside = stand_ins.asked
    assert unshare.startswith(
        "unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc --propagation=private"
    )
    assert inside == [
        "mount -t tmpfs tmpfs /run",
        "mount --bind /what /where",
        "mount --bind /text /proc/sys/kernel/panic",
        "mount --make-rshared /",
        "hostname gpu-0",
        "ip link set lo up",
    ]


def test_an_overlay_gets_its_folders(make: MakeMachine, stand_ins: StandIns, tmp_path: Path) -> None:
    upper, work = tmp_path / "a" / "upper", tmp_path / "a" / "work"
    make(mounts=[overlay("/home", tmp_path / "a")])
    assert upper.is_dir()
    assert work.is_dir()
    assert f"mount -t overlay overlay -o lowerdir=/home,upperdir={upper},workdir={work} /home" in stand_ins.asked


def test_programs_are_started_with_their_environment_and_ended(make: MakeMachine, tmp_path: Path) -> None:
    machine = make()
    machine.start("prints", ["sh", "-c", "echo $WORD; sleep 600"], plain_environment() | {"WORD": "here"})
    wait_until(lambda: machine.tail("prints") == "here", "the program runs")
    machine.stop("prints")
    assert machine.running() == {}
    # A program that was stopped is no failure.
    machine.check()
    machine.start("next", ["sh", "-c", "exit 3"])
    assert "next on gpu-0 ended with status 3" in ended(machine)
    assert (tmp_path / "logs" / "gpu-0-prints.log").read_text() == "here\n"


def test_program_starts_with_default_signals(make: MakeMachine) -> None:
    """The machine's first process ignores some; a program that inherited that could not be stopped."""
    machine = make()
    machine.start("signals", ["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"])
    wait_until(lambda: "SigIgn" in machine.tail("signals"), "it prints")
    blocked, ignored = (int(line.split()[1], 16) for line in machine.tail("signals").splitlines())
    usual = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
    assert [number.name for number in usual if (blocked | ignored) >> (number - 1) & 1] == []


def test_programs_that_end_at_once_are_all_reported(make: MakeMachine) -> None:
    machine = make()
    for number in range(20):
        machine.start(f"quick-{number}", ["false"])
        assert f"quick-{number} on gpu-0 ended with status 1" in ended(machine)
        machine.stop(f"quick-{number}")


def test_program_that_ends_is_reported_with_the_end_of_its_log(make: MakeMachine) -> None:
    machine = make()
    machine.start("fails", ["sh", "-c", "echo the reason; exit 7"])
    assert ended(machine) == "fails on gpu-0 ended with status 7; the last lines of its log:\nthe reason"


def test_missing_program_is_reported(make: MakeMachine) -> None:
    machine = make()
    with pytest.raises(ProgramEnded) as caught:
        machine.start("absent", ["/no/such/program"])
    assert "absent on gpu-0 could not be started" in str(caught.value)
    assert "No such file or directory: '/no/such/program'" in str(caught.value)


def test_machine_that_cannot_be_created_reports_why(make: MakeMachine, stand_ins: StandIns) -> None:
    stand_ins.write("unshare", "#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
    with pytest.raises(ProgramEnded, match="gpu-0 could not be created:\nunshare failed: Operation not permitted"):
        make()


def test_machine_removes_its_folders_only(make: MakeMachine, tmp_path: Path) -> None:
    for name in ("its", "another"):
        (tmp_path / name / "deep").mkdir(parents=True)
    machine = make(remove=[tmp_path / "its"])
    assert (tmp_path / "its").exists()
    first = psutil.Process(machine.pid)
    machine.stop()
    assert not (tmp_path / "its").exists()
    assert (tmp_path / "another" / "deep").exists()
    assert not first.is_running()
    with pytest.raises(ProgramEnded, match="gpu-0 has ended"):
        machine.start("late", ["true"])


def test_failed_command_on_a_machine_is_reported(make: MakeMachine, stand_ins: StandIns) -> None:
    machine = make()
    machine.run(["ip", "route"], spaces=("net", "mount"))
    assert stand_ins.asked[-1] == f"nsenter --target={machine.pid} --net --mount -- ip route"
    stand_ins.write("nsenter", "#!/bin/sh\necho no such link >&2; exit 1\n")
    with pytest.raises(RuntimeError, match="on gpu-0: ip link show x: no such link"):
        machine.run(["ip", "link", "show", "x"])


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
    (tmp_path / "its").mkdir()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        first = psutil.Process(int(owner.stdout.readline()))
        unshare = first.parent()
        assert unshare is not None
        guard = unshare.parent()
        assert guard is not None
        owner.send_signal(number)
        owner.wait(timeout=60)
        wait_until(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE, "the guard has ended")
    finally:
        owner.kill()
        owner.communicate()
    assert not first.is_running()
    assert not (tmp_path / "its").exists()


def test_machine_ignores_sigint(make: MakeMachine) -> None:
    """The guard and the machine have sessions of their own, and ignore the signal."""
    machine = make()
    first = psutil.Process(machine.pid)
    unshare = first.parent()
    assert unshare is not None
    guard = unshare.parent()
    assert guard is not None
    for each in (first, guard):
        each.send_signal(signal.SIGINT)
    machine.start("works", ["sh", "-c", "echo still"])
    wait_until(lambda: machine.tail("works") == "still", "the machine obeys")


def test_identity_is_short_and_unique_per_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert identity_of(tmp_path / "a") == identity_of(tmp_path / "b") != identity_of(tmp_path)
    assert len(identity_of(tmp_path)) == 6


def test_programs_inherit_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "https_proxy", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    assert {"PATH", "HOME", "LANG"} <= set(plain_environment()) <= {"PATH", "HOME", "LANG", "TMPDIR", "TZ"}
