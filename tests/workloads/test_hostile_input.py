"""Broken and hostile logs, events, job ids and results end in an error or a verdict, in time and bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hostile import ESCAPES, bounded_memory, bounded_time, mutated, run, special_files
from tests.workloads.hostile_cluster import HEAD, HostileHead, served
from tests.workloads.nccl.corpus.cases import FOLDER
from tests.workloads.nccl.hunt_simulator import Fabric, Fault, play, search_options
from tests.workloads.nccl.results import functional
from tests.workloads.nccl.test_hunt_results import as_result
from tests.workloads.stack_outputs import LOCAL
from tests.workloads.train.test_result import RUN
from tests.workloads.train.training import result
from workloads.exits import Exit, WorkloadError
from workloads.nccl.hunt.report import HuntView
from workloads.results.events import MARK
from workloads.results.files import write_file
from workloads.results.lines import RankLine
from workloads.run.result import RunResult
from workloads.terminal.console import Terminal
from workloads.terminal.progress import View
from workloads.train import journal
from workloads.train.checkpoints import RunFolder
from workloads.train.report import TrainView

JUDGE = ("bench", "judge", "--machine", "a3-ultragpu-8g", "--nodes", "2")
BENCH, TRAIN = functional(), result(RUN)
RUN_RESULT = RunResult.of(
    {
        "schema": "rdma-ray/run/1",
        "started": 1,
        "finished": 2,
        "exit_code": 0,
        "reason": "",
        "mode": "ranks",
        "nodes": [{"host": "vm", "ip": "127.0.0.2", "node_id": "a", "ranks": [0]}],
        "exit_codes": [0],
        "restarts": 0,
        "seconds": {"run": 1.0},
    },
    "",
)
HUNT = as_result(play(4, Fabric([Fault("nic", 2, 0.6, rail=3)], 0.01, 7), search_options(rails=8, full=True)), 4)
EVENTS: list[dict[str, Any]] = [
    {"kind": "phase", "name": "placement"},
    {"kind": "waiting", "seconds": 1, "text": "2 of 4"},
    {"kind": "plan", "rows": 3, "ranks": 4, "steps": 10, "step": 5, "workers": 2, "done": 1, "epochs": 2},
    {"kind": "row", "op": "all_reduce", "variant": None, "size": 1024},
    {"kind": "round", "stages": ["pairs"], "tests": 2},
    {"kind": "look", "step": 2, "loss": 0.5, "seconds": 0.1},
    {"kind": "epoch", "epoch": 1, "loss": 0.5, "seconds": 1.5, "accuracy": 0.9},
    {"kind": "failure", "preemption": True, "ranks": [1]},
    {"kind": "failure", "rank": 3, "host": "vm (127.0.0.2)", "code": 1, "text": "KeyError"},
    {"kind": "restart", "number": 1, "of": 2},
    {"kind": "note", "text": "the port is taken"},
    {"kind": "preempted", "reason": "maintenance", "step": 3},
    {"kind": "result", "result": json.loads(BENCH.as_json())},
    {"kind": "result", "result": json.loads(TRAIN.as_json())},
    {"kind": "result", "result": json.loads(HUNT.as_json())},
    {"kind": "result", "result": json.loads(RUN_RESULT.as_json())},
]
JOB_LOG = "".join(f"some text\n{RankLine(0, 1.0, 'x')}\n{MARK}{json.dumps(event)}\n" for event in EVENTS[:-4]).encode()
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**18,
    10**23,
    1e308,
    -0.5,
    "",
    "x",
    "nan",
    "[/x]",
    ESCAPES,
    "9" * 5000,
    [],
    {},
    [[]],
    [None],
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Outputs of a stack whose Ray is `HostileHead`."""
    with served(tmp_path_factory.mktemp("outputs")) as file:
        yield file


@pytest.fixture(scope="module", autouse=True)
def _memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    write_file(tmp_path_factory.getbasetemp() / "train.json", TRAIN.as_json())
    with bounded_memory(1024):
        yield


def place_of(document: Any, path: list[int]) -> tuple[Any, Any]:
    """The container and the key at the end of a path, which names children by numbers."""
    at, key = document, None
    while isinstance(children := at if key is None else at[key], dict | list) and children and path:
        names = list(children) if isinstance(children, dict) else range(len(children))
        at, key = children, names[path.pop(0) % len(names)]
    return at, key


READY = {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:16:45Z"}
OBJECTS = {
    "items": [
        {"kind": "Pod", "metadata": {"name": "a"}, "status": {"conditions": [READY]}},
        {"kind": "Node", "metadata": {"name": "n"}},
        {"kind": "Event", "reason": "Pulled"},
    ]
}
DOCUMENTS = {"bench": [json.loads(BENCH.as_json())], "train": [json.loads(TRAIN.as_json())], "objects": [OBJECTS]}


@st.composite
def spoiled(draw: st.DrawFn, name: str = "events") -> bytes:
    """A valid JSON document with up to three values replaced or removed."""
    documents = DOCUMENTS.get(name, EVENTS)
    document = json.loads(json.dumps(documents[draw(st.integers(0, len(documents) - 1))]))
    for _ in range(draw(st.integers(1, 3))):
        at, key = place_of(document, draw(st.lists(st.integers(0, 50), min_size=1, max_size=8)))
        if key is not None and draw(st.integers(0, 5)):
            at[key] = json.loads(json.dumps(VALUES[draw(st.integers(0, len(VALUES) - 1))]))
        elif key is not None:
            del at[key]
    return json.dumps(document).encode()


def follow(outputs: Path, kind: str, log: bytes) -> int:
    """The exit code of `rdma-ray logs` for a job of this kind with this log."""
    metadata = {"workload": kind, "mode": "ranks"}
    its = {"submission_id": "[/x]", "status": "SUCCEEDED", "metadata": metadata, "message": ESCAPES}
    HostileHead.reset(job=json.dumps(HEAD["job"] | its).encode())
    HostileHead.log = log
    return run("logs", "[/x]", "--outputs", outputs)[0]


KINDS = ("nccl", "multigpu", "hunt", "train", "run", "[/x]")
events = spoiled().map(lambda event: MARK.encode() + event + b"\n")


@settings(max_examples=80)
@given(st.sampled_from(KINDS), mutated([JOB_LOG]) | st.lists(events, min_size=1, max_size=6).map(b"".join))
@example("train", MARK.encode() + b'{"kind":"epoch"}\n')
@example("nccl", MARK.encode() + b'{"kind":"result"}\n')
@example("nccl", MARK.encode() + b'{"kind":"phase","name":' + b"[" * 100_000 + b"\n")
@example("nccl", MARK.encode() + b'{"kind":"plan","rows":' + b"9" * 5000 + b',"ranks":1}\n')
@example("run", b"9999-12-31T23:59:59.999Z rank 999999 | x\n9999-99-99T23:59:59.999Z rank 1 | x\n")
@example("run", MARK.encode() + b'{"kind":"note","text":"' + b"\\n" * 100_000 + b'"}\n')
@example("[/x]", b"x" * 10_000_000)
def test_any_job_log_is_followed(outputs: Path, kind: str, log: bytes) -> None:
    assert follow(outputs, kind, log) in range(256)


@pytest.mark.parametrize(
    "job", ["[/x]", "[bold]", ":bug:", ESCAPES, "a b", "a\nb", "a/../b", "ü\udcff", "?", "%", "", "x" * 5000]
)
def test_any_job_id_is_listed_and_followed(outputs: Path, job: str) -> None:
    its = {"submission_id": job, "status": ESCAPES, "metadata": {"workload": job}}
    HostileHead.reset(jobs=json.dumps([HEAD["job"] | its]).encode())
    code, said, _ = run("list", "--outputs", outputs)
    assert code == Exit.OK
    assert job[:20] in said or job not in ("[/x]", "[bold]", ":bug:")
    failed = HEAD["job"] | {"submission_id": job, "status": "FAILED", "driver_exit_code": 1}
    HostileHead.reset(job=json.dumps(failed).encode(), jobs=json.dumps([failed]).encode())
    assert run("logs", job, "--outputs", outputs)[0] == Exit.ERROR


@pytest.mark.parametrize("view", [HuntView, TrainView])
def test_events_are_text_on_a_terminal(view: type[View]) -> None:
    file = StringIO()
    with view(Terminal(file=file, force_terminal=True, color_system=None)) as shown:  # type: ignore[call-arg]
        for text in ("[/x]", ESCAPES):
            shown.event({"kind": "waiting", "seconds": 1, "text": text})
            shown.event({"kind": "look", "step": 10**23, "loss": 0.5, "seconds": 1})
            shown.note(text)
    assert "[/x]" in file.getvalue()
    assert not {"\x1b]", "\x9b", "\u202e"} & {
        file.getvalue()[at : at + n] for at in range(len(file.getvalue())) for n in (1, 2)
    }


LOGS = [(FOLDER / name).read_bytes() for name in ("gib.log", "socket.log")]
TABLES = [
    (FOLDER / name).read_bytes() for name in ("gib-good.txt", "efa-good.json", "own-good.json", "gib-good-mpirun.txt")
]


@settings(max_examples=100)
@given(mutated(TABLES), mutated(LOGS))
@example(b"# size count type " * 50_000, b"\x1b[31m" * 200_000)
@example(TABLES[0].replace(b"1073741824", b"9" * 5000), b"x" * 5_000_000)
@example(b'{"schema": "rdma-ray/nccl/3", "x": ' + b"[" * 100_000, b"\0" * 1_000_000)
@example(b'{"schema": "rdma-ray/nccl/3", "x": ' + b"9" * 5000 + b"}", b"NCCL WARN " * 200_000)
@example(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"x" * 100, b"\x1f\x8b")
def test_any_measurement_is_judged(tmp_path_factory: pytest.TempPathFactory, table: bytes, log: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "table").write_bytes(table)
    (folder / "log").write_bytes(log)
    assert run(*JUDGE, "--results", folder / "table", "--log", folder / "log")[0] in {*Exit}


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for name, file in special_files(tmp_path).items():
        for command in ((*JUDGE, "--log"), ("bench", "compare", file), ("train", "report"), ("outputs", "--outputs")):
            code, said, message = run(*command, file)
            assert code == Exit.ERROR or (name, command[1]) == ("pipe", "judge")
            assert str(file) in said + message or name == "pipe"


@settings(max_examples=60)
@given(spoiled("bench") | mutated([BENCH.as_json().encode()]))
def test_any_result_is_compared(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    a, b = (tmp_path_factory.getbasetemp() / name for name in ("a.json", "b.json"))
    a.write_text(BENCH.as_json())
    b.write_bytes(data)
    assert run("bench", "compare", a, b)[0] in {*Exit}
    assert run("bench", "compare", b, a, "--anyway")[0] in {*Exit}
    assert run(*JUDGE, "--results", b)[0] in {*Exit}


@settings(max_examples=60)
@given(spoiled("train") | mutated([TRAIN.as_json().encode()]))
def test_any_training_result_is_reported(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "result.json"
    file.write_bytes(data)
    assert run("train", "report", file)[0] in {*Exit}


@settings(max_examples=40)
@given(spoiled("objects"))
def test_any_objects_are_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "objects.json").write_bytes(data)
    assert run("train", "report", folder / "train.json", "--objects", folder / "objects.json")[0] in {*Exit}


@settings(max_examples=60)
@given(mutated([json.dumps(LOCAL).encode()]))
def test_any_outputs_are_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "outputs.json"
    file.write_bytes(data)
    assert run("outputs", "--outputs", file)[0] in {*Exit}


@settings(max_examples=60)
@given(
    st.sampled_from(["attempt", "failure", "doom"]),
    mutated(
        [
            b'{"job":1,"worker":2,"world":1,"resumed_from":0,"last":9,"spans":[{"first":0,"end":2,"seconds":1,"wait_s":0}]}'
        ]
    ),
)
def test_any_journal_is_read(tmp_path_factory: pytest.TempPathFactory, kind: str, data: bytes) -> None:
    storage = tmp_path_factory.getbasetemp()
    file = storage / "run" / "journal" / f"{kind}-1.000000.json"
    write_file(file, data)
    folder = RunFolder(str(storage), "run")
    for read in (journal.read, lambda folder: journal.doomed(folder, 1.0)):
        with bounded_time(), suppress(WorkloadError):
            read(folder)
    file.unlink()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, file = tmp_path / "link", tmp_path / "result.json"
    write_file(file, "old")
    file.chmod(0o600)
    link.symlink_to(file)
    assert write_file(link, "new") == link
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("new", 0o600, True)

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WorkloadError, match=r"cannot write .*: No space left"):
        write_file(link, "newer")
    assert file.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_pipe_is_written_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, "result")
    assert os.read(reader, 100) == b"result"
    os.close(reader)
    assert pipe.is_fifo()
