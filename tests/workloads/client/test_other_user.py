"""Another user listens where the stack's head or service was: no command sends anything there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import run
from tests.other_user import NOBODY, OtherUser, needs_root
from tests.unit.test_listener import free_port
from tests.workloads.stack_outputs import LOCAL, TOKEN
from workloads.exits import Exit

SECRET = "a-secret-of-this-user"
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("list",),
    ("logs", "some-job"),
    ("attach", "some-job"),
    ("stop", "some-job"),
    ("run", "--secret", "PLANTED", "--", "python", "train.py"),
    ("run", "--request-id", "mine", "--secret", "PLANTED", "--", "python", "train.py"),
    ("bench", "nccl"),
    ("train", "digits", "--checkpoint-dir", "checkpoints"),
    ("top", "--once"),
    ("dashboard", "--show-token"),
)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherUser]:
    """Another user at the address of the stack's head, as it is in the stack's outputs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print()")
    monkeypatch.setenv("PLANTED", SECRET)
    with OtherUser(("127.0.0.1", port := free_port())) as made:
        write_outputs(tmp_path, monkeypatch, f"http://127.0.0.1:{port}")
        yield made


def write_outputs(folder: Path, monkeypatch: pytest.MonkeyPatch, address: str, **ray: Any) -> None:
    found = LOCAL | {"ray": LOCAL["ray"] | {"jobs": address, "dashboard": address} | ray}
    (folder / "outputs.json").write_text(json.dumps(found))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(folder / "outputs.json"))


def refusal(text: str) -> str:
    """Return the one line that names the other user."""
    [line] = [line for line in text.splitlines() if "another user" in line]
    assert f"uid {NOBODY}" in line
    assert TOKEN not in text
    return line


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@needs_root
def test_command_sends_nothing_and_says_so_in_one_line(other: OtherUser, command: tuple[str, ...]) -> None:
    code, said, complained = run(*command)
    assert code == Exit.ERROR
    line = refusal(complained)
    assert complained.strip().splitlines()[-1] == line
    assert "nothing was sent to 127.0.0.1:" in line
    assert "make up" in line
    assert said == ""
    caught = other.ends()
    assert caught.connections >= 1
    assert caught.nothing, caught.received


@needs_root
def test_doctor_and_inspect_name_the_other_user(other: OtherUser, tmp_path: Path) -> None:
    """It is the cause of the one finding, and of the checks that could not run."""
    code, said, _ = run("doctor")
    assert code == 2
    refusal(said)
    run("inspect", "--out", tmp_path / "bundle.tar.gz")
    assert other.ends().nothing


@needs_root
def test_no_client_is_sent_to_another_users_service(
    other: OtherUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the token shown: the address in the outputs is that of the user's own port-forward or ingress."""
    address = json.loads((tmp_path / "outputs.json").read_text())["ray"]["jobs"]
    write_outputs(tmp_path, monkeypatch, address, mode="service", serve=address, serveToken=TOKEN)
    code, said, complained = run("serve", "--show-token")
    assert (code, said) == (Exit.ERROR, "")
    refusal(complained)
    assert other.ends().nothing
