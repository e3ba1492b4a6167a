"""`run` and the commands of jobs against a head that only records: what is sent, shown and returned."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from infra.terminal import UNPRINTABLE
from tests.workloads.stack_outputs import LOCAL
from workloads import sealed
from workloads.cli import main
from workloads.client import run as client
from workloads.client.api import Job, JobsApi, UnreachableError
from workloads.client.connection import Connection
from workloads.exits import Exit
from workloads.results.events import MARK
from workloads.results.lines import RankLine
from workloads.secrecy import Masker

SECRET = "value-that-must-stay-secret"
RESULT = {
    "schema": "rdma-ray/run/1",
    "started": 1.0,
    "finished": 2.0,
    "exit_code": 0,
    "reason": "every rank succeeded",
    "mode": "ranks",
    "nodes": [],
    "exit_codes": [0, 0],
    "restarts": 0,
    "seconds": {},
}


class Head(JobsApi):
    """Knows the jobs that were submitted. They end with this status and code as soon as they are followed.

    `driver` is the key of the driver of each job, which its log has, and `keys` are others' in the log.
    """

    def __init__(self, log: str = "", code: int = 0) -> None:
        super().__init__("http://127.0.0.1:1", SecretStr("token"), "test")
        self.log, self.code = log, code
        self.known: dict[str, dict[str, Any]] = {}
        self.packages: list[tuple[str, bytes]] = []
        self.pinned: list[str] = []
        self.driver = sealed.Key()
        self.keys = [self.driver.public]

    def call(self, path: str, method: str = "GET", body: Any = None, *, read: Any = json.loads, **_: object) -> Any:
        name = path.rpartition("/")[2]
        if method == "PUT":
            self.packages.append((name, body))
        elif path.startswith("/api/packages/"):
            self.pinned.append(name)
        elif (method, path) == ("POST", "/api/jobs/"):
            if body["submission_id"] in self.known:
                raise UnreachableError("answered 500: a job with this ID exists", 500)
            status = {"status": "FAILED" if self.code else "SUCCEEDED", "driver_exit_code": self.code}
            self.known[body["submission_id"]] = {"start_time": 1000, "end_time": 3000, **status, **body}
        elif path == "/api/jobs/":
            return list(self.known.values())
        elif path.startswith("/api/jobs/"):
            return self.known[name]
        return read(b'{"ray_version": "2.60.0"}')

    once = call

    def logs(self, _: str | Job) -> str:
        return "".join(event(sealed.KIND, key=key) + "\n" for key in self.keys) + self.log

    def sealed_by(self, job: dict[str, Any]) -> tuple[str, list[bytes]]:
        """Return the public key of the client of a job, and what it has sealed."""
        client = json.loads(shlex.split(job["entrypoint"])[-1])["client_key"]
        return client, [body for name, body in self.packages if name == sealed.package(client)]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a script, a credential and the outputs of a local stack of two nodes."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    (folder / ".env").write_text(f"HF_TOKEN={SECRET}\nA=filed\n")
    (tmp_path / "outputs.json").write_text(json.dumps(LOCAL))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(tmp_path / "outputs.json"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def head(user: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    assert user.is_dir()
    found = Head()
    monkeypatch.setattr(Connection, "api", found)
    return found


def lines(*texts: tuple[int, float, str] | str) -> str:
    return "".join(f"{text if isinstance(text, str) else RankLine(*text)}\n" for text in texts)


def event(kind: str, **fields: Any) -> str:
    return MARK + json.dumps({"kind": kind, **fields})


def test_a_gang_gets_the_command_its_place_and_its_code(head: Head) -> None:
    head.log = lines(event("result", result=RESULT))
    arguments = ["--nodes", "2", "--per-node", "2", "--env", "B=2", "--grace", "90", "--name", "naïve [/x]"]
    assert main(["run", *arguments, "--", "torchrun", "train.py", "--json", "--lr=1"]) == Exit.OK
    [job] = head.known.values()
    *program, request = shlex.split(job["entrypoint"])
    assert program == ["exec", sys.executable, "-P", "-m", "workloads.run.driver"]
    assert json.loads(request) == {
        "nodes": 2,
        "per_node": 2,
        "grace_s": 90,
        "command": ["torchrun", "train.py", "--json", "--lr=1"],
        "mode": "torchrun",
        "environment": {"B": "2"},
    }
    assert job["metadata"]["name"] == "naïve [/x]"
    runtime_env = job["runtime_env"]
    assert runtime_env["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "105"
    assert "B" not in runtime_env["env_vars"]
    assert runtime_env["working_dir"] not in runtime_env["py_modules"]


def test_a_driver_s_variables_reach_its_actors(head: Head) -> None:
    head.log = "one\n\x1b[31mtwo\n"
    assert main(["run", "--env", "A=1", "--", "python", "train.py"]) == Exit.OK
    [job] = head.known.values()
    assert job["runtime_env"]["env_vars"]["A"] == "1"
    assert job["metadata"]["name"] == "train.py"


WITH_SECRET = ("--env-file", ".env", "--secret", "HF_TOKEN", "--", "python", "train.py")


def test_secrets_are_in_nothing_but_a_package_for_the_driver(head: Head, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--json", "-", *WITH_SECRET]) == Exit.OK
    assert head.packages == []
    assert main(["run", *WITH_SECRET]) == Exit.OK
    [job] = head.known.values()
    client, [box] = head.sealed_by(job)
    assert head.driver.opened(box, client) == {"HF_TOKEN": SECRET}
    assert sealed.package(client) in head.pinned, "Ray does not delete it by itself"
    assert head.packages[-1][1] == box
    said = capfd.readouterr()
    assert head.driver.public not in said.out + said.err
    assert "HF_TOKEN" in json.dumps(job)
    masker = Masker([SECRET])
    for text in (json.dumps(job), said.out, said.err, *(body.decode("latin-1") for _, body in head.packages)):
        assert masker.text(text) == text


def test_secrets_stay_with_the_client_if_no_driver_runs(head: Head) -> None:
    """Its environment failed, or somebody stopped the job while it was pending."""
    head.keys, head.code = [], 1
    assert main(["run", *WITH_SECRET]) == Exit.ERROR
    [job] = head.known.values()
    assert head.sealed_by(job)[1] == []


def test_a_wrong_key_in_the_log_is_refused_in_one_line(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.keys = ["00" * 32, "\x1b[2J", "x" * 10**6, *head.keys]
    assert main(["run", *WITH_SECRET]) == Exit.OK
    said = [line for line in capsys.readouterr().err.splitlines() if "refused" in line]
    assert len(said) == 3
    assert all("its log has a key for secrets that is refused: " in line and len(line) < 200 for line in said)
    [job] = head.known.values()
    assert len(head.sealed_by(job)[1]) == 1


def test_two_clients_with_one_request_id_start_one_job_with_the_secrets_of_the_first(
    head: Head, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one sees no job, and is slower."""
    run = ["run", "--request-id", "nightly-7", "--secret", "HF_TOKEN", "--", "python", "train.py"]
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert main(run) == Exit.OK
    first, packages = dict(head.known["nightly-7"]), len(head.packages)
    capsys.readouterr()

    looks: Iterator[list[Job]] = iter([[]])
    monkeypatch.setattr(head, "jobs", lambda: next(looks, JobsApi.jobs(head)))
    monkeypatch.setenv("HF_TOKEN", "another value")
    assert main(run) == Exit.OK
    said = capsys.readouterr().err
    assert "job nightly-7 exists (SUCCEEDED): nothing is started, with the secrets of the client" in said
    assert head.known == {"nightly-7": first}
    assert "another value" not in repr(head.packages[packages:])


def test_the_same_request_id_starts_one_job(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "--request-id", "nightly-7", "--detach"]
    assert main([*run, "--", "python", "train.py"]) == Exit.OK
    assert capsys.readouterr().out == "nightly-7\n"
    first = dict(head.known["nightly-7"])
    assert main([*run, "--", "python", "train.py"]) == Exit.OK
    assert "exists (SUCCEEDED): nothing is started" in capsys.readouterr().err
    assert main([*run, "--", "python", "other.py"]) == Exit.ERROR
    assert "a different command, options or code" in capsys.readouterr().err
    Path("train.py").write_text("print(2)")
    assert main([*run, "--", "python", "train.py"]) == Exit.ERROR
    assert "options or code (SUCCEEDED): use another ID" in capsys.readouterr().err
    assert head.known == {"nightly-7": first}


def test_a_dry_run_sends_nothing_and_shows_what_would_run(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Connection, "api", property(lambda _: pytest.fail("connected")))
    assert main(["run", "--dry-run", "--nodes", "2", "--pip", "einops", "--", "python", "train.py"]) == Exit.OK
    said = capsys.readouterr().out
    for shown in ("2 nodes with 1 ranks each, a CPU per rank (ranks)", "einops", f"1 file, 1 KiB of {user}", ".env"):
        assert shown in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--nodes 3 -- x", "at most 2"),
        ("--nodes 1 --per-node 3 -- x", "2 CPUs"),
        ("--nodes 0 -- x", "greater than or equal to 1"),
        ("--max-restarts 2 -- x", "add --nodes 1"),
        ("--request-id a/b -- x", "--request-id a/b"),
        ("--rank 1 --all -- x", "only one of them"),
        ("--rank -1 -- x", "count from 0"),
        ("--nodes 1 --since yesterday -- x", "--since yesterday: write a number"),
        ("--since 5m -- x", "has no ranks"),
        ("python train.py --lr 1", "come after `--`"),
        ("--working-dir nowhere -- x", "no such folder"),
        (f"-- x {'y' * 130_000}", "Ray's shell accepts 120000"),
        ("--name", "requires an argument"),
        ("--env", "requires an argument"),
        ("--check -- python train.py", "--check: without --nodes the command runs once on the head"),
        ("--nodes 1 --check -- python train.py", "--check: 1 node has no other one"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(
    head: Head, arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments.split()]) == Exit.ERROR
    assert says in capsys.readouterr().err
    assert (head.known, head.packages) == ({}, [])


FOUR = lines(
    event("waiting", text="1 of 2 nodes ready", seconds=2),
    "2026-11-23 11:00:00,000\tINFO job_manager.py:1 -- start",
    "a line of Ray",
    "torchrun on h: a warning",
    (0, 100.0, "first"),
    (1, 100.5, "other"),
    (0, 200.0, "20%"),
    (3, 201.0, MARK + '{"kind":"result","result":{}}'),
)


def submitted(head: Head, mode: str = "ranks") -> str:
    head.call("/api/jobs/", "POST", {"submission_id": "j", "metadata": {"workload": "run", "mode": mode, "grace": "x"}})
    return "j"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "first\n20%\n"),
        ("--rank 1", "other\n"),
        ("--rank 1 --rank 0", "rank 0 | first\nrank 1 | other\nrank 0 | 20%\n"),
        ("--all --since 1970-01-01T00:03:00Z", f'rank 0 | 20%\nrank 3 | {MARK}{{"kind":"result","result":{{}}}}\n'),
        ("--tail 1", "20%\n"),
        ("--tail 0", ""),
        ("--since 1970-01-01T00:10:00Z", ""),
    ],
)
def test_logs_show_chosen_lines_on_stdout_and_notes_on_stderr(
    head: Head, arguments: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head.log = FOUR + lines(event("result", result=RESULT))
    assert main(["logs", submitted(head), *arguments.split()]) == Exit.OK
    said = capsys.readouterr()
    assert said.out == shown
    assert "every rank succeeded" in said.err
    assert ("a line of Ray" in said.err) == ("--since" not in arguments and "--tail" not in arguments)
    assert "waiting for the nodes for 2 s: 1 of 2 nodes ready" in said.err
    assert "job_manager" not in said.err
    assert "a warning" not in said.err


def test_the_failing_rank_s_traceback_comes_last(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    failed = RESULT | {"exit_code": 9, "reason": "rank 3 on h failed with exit code 9"}
    head.code = 9
    head.log = lines(
        (3, 1.0, "hidden"),
        event("failure", rank=3, host="h", code=9, text="Traceback\nValueError: \x1b[2Jx"),
        event("restart", number=1, of=1),
        (0, 2.0, "again"),
        event("failure", rank=2, host="g", code=9, text="Traceback\nKeyError"),
        (0, 3.0, "late"),
        event("result", result=failed),
    )
    assert main(["logs", submitted(head)]) == 9
    said = capsys.readouterr()
    notes = said.err.splitlines()
    assert notes[:4] == [
        "rank 3 on h failed with exit code 9; its last lines:",
        "Traceback",
        "ValueError: \\x1b[2Jx",
        "starting again, 1 of 1 times",
    ]
    assert notes[-4:] == [
        "rank 2 on g failed with exit code 9; its last lines:",
        "Traceback",
        "KeyError",
        "rank 3 on h failed with exit code 9",
    ]
    assert said.out == "again\nlate\n"


def test_with_json_on_stdout_every_line_is_on_stderr(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.log = "the command's line\n"
    assert main(["logs", submitted(head, "driver"), "--json"]) == Exit.OK
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["schema"], document["exit_code"], document["kind"]) == ("rdma-ray/job/1", 0, "run")
    assert "the command's line" in said.err


@pytest.mark.parametrize("command", ["status", "list", "stop j", "logs j", "attach j", "outputs", "run --dry-run -- x"])
def test_every_command_has_a_json_document_with_a_schema(
    head: Head, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(head, "nodes", list, raising=False)
    submitted(head, "driver")
    words = command.split()
    end = words.index("--") if "--" in words else len(words)
    assert main([*words[:end], "--json", "-", *words[end:]]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["schema"].startswith("rdma-ray/")


def test_a_job_that_runs_is_shown_without_waiting(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.log = FOUR
    head.known[submitted(head)]["status"] = "RUNNING"
    assert main(["logs", "j", "--no-follow", "--tail", "1"]) == Exit.OK
    assert capsys.readouterr().out == "20%\n"


def test_ctrl_c_leaves_the_job_running(
    head: Head, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "follow", interrupted)
    assert main(["attach", submitted(head)]) == Exit.STOPPED
    assert "job j keeps running: rdma-ray attach j follows it, rdma-ray stop j ends it" in capsys.readouterr().err


def test_a_reader_that_leaves_ends_the_command_quietly(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        def fileno(self) -> int:
            return 99

    head.log = "one\n"
    duplicated: list[int] = []
    monkeypatch.setattr("os.dup2", lambda _, number: duplicated.append(number))
    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["logs", submitted(head, "driver")]) == 141
    assert duplicated == [99]


def test_any_id_and_name_are_listed(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.known["[/x]\x1b"] = {
        "status": "FAILED",
        "driver_exit_code": 3,
        "metadata": {"name": "[bold]\x9b", "workload": "x"},
    }
    head.known["[/x]\x1b"]["submission_id"] = "[/x]\x1b"
    assert main(["list"]) == Exit.OK
    said = capsys.readouterr().out
    assert not UNPRINTABLE.search(said)
    assert "[/x]" in said
    assert "[bold]" in said
    assert "FAILED 3" in said
