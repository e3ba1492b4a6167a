"""The hunt's driver and its ranks without a cluster: doubles of Ray's calls and of torch's process group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

from infra.outputs import Outputs
from tests.workloads.stack_outputs import LOCAL
from workloads.exits import Exit, WorkloadError
from workloads.nccl import rank as ranks
from workloads.nccl.gang import NO_ANSWER
from workloads.nccl.hunt import before, driver
from workloads.nccl.hunt import rank as hunt_rank
from workloads.nccl.hunt.driver import HuntGang
from workloads.nccl.hunt.options import HuntOptions, request_of
from workloads.nccl.hunt.rank import HuntRank
from workloads.nccl.hunt.result import Answer, GroupProbe, Report, Round, Unit
from workloads.nccl.kinds import RankPosition
from workloads.nccl.result import Member

CLOSED = "[tcp/pair.cc:561] Connection closed by peer [10.0.0.2]:1"
REMOTE = "NCCL error: remote process exited or there was a network error\nLast error:\n10.0.0.2<1>"
SILENT = object()
new_error: Callable[..., RayTaskError] = RayTaskError  # untyped in Ray


def failure(text: str) -> RayTaskError:
    error: RayTaskError = new_error("take_part", f"Traceback\nRuntimeError: {text}", RuntimeError(text))
    return error


class Method:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call

    def options(self, **_: str) -> Method:
        return self


class Actor:
    """An actor whose calls return their answers as references; SILENT never comes."""

    def __init__(self, ray: Ray, rank: int, report: Any, stage: Any) -> None:
        self.ray, self.rank, self.report, self.stage = ray, rank, report, stage

    @property
    def call(self) -> Method:
        return Method(lambda name, *_: self.answer(name))

    def answer(self, name: str) -> list[Any]:
        if name == "abort":
            self.ray.did.append(f"abort {self.rank}")
        found = {"abort": self.stage, "describe": self.ray.members[self.rank], "watch": None, "serve": 1}
        return [found.get(name, self.report)]


class Ray:
    """Double of the calls that a gang makes, in which actors answer at once or never. `did` lists aborts and kills."""

    def __init__(self, members: list[Member]) -> None:
        self.members, self.dead, self.did = members, set[str](), list[str]()

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        done = [reference for reference in references if reference[0] is not SILENT]
        return done, [reference for reference in references if reference[0] is SILENT]

    def get(self, reference: Any, **_: Any) -> Any:
        if isinstance(reference, list) and reference and isinstance(reference[0], list):
            return [self.get(each) for each in reference]
        if reference[0] is SILENT:
            raise GetTimeoutError
        if isinstance(reference[0], Exception):
            raise reference[0]
        return reference[0]

    def kill(self, actor: Actor) -> None:
        self.did.append(f"kill {actor.rank}")

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": member.node_id, "Alive": member.node_id not in self.dead} for member in self.members]


class Reference(list[Any]):
    """Hashable, unlike a list, as Ray's references are."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Answer, list[str], HuntGang]]:
    def play(reports: list[Any], stages: list[Any], dead: set[str] = frozenset()) -> tuple[Answer, list[str], HuntGang]:  # type: ignore[assignment]
        members = [
            Member(
                rank=i, node=i, host=f"h{i}", machine="m", ip=f"10.0.0.{i}", node_id=f"n{i}", device="", gpu=None, pid=i
            )
            for i in range(len(reports))
        ]
        fake = Ray(members)
        fake.dead = set(dead)
        for name in ("wait", "get", "kill", "nodes"):
            monkeypatch.setattr(ray, name, getattr(fake, name))
        monkeypatch.setattr(Actor, "answer", lambda self, name, answer=Actor.answer: Reference(answer(self, name)))
        gang = HuntGang(HuntOptions(nodes=len(reports), per_node=1, size="1K", timeout_s=1, wait_s=1))
        gang.members = members
        gang.actors.handles = [Actor(fake, i, *pair) for i, pair in enumerate(zip(reports, stages, strict=True))]
        gang.actors._remotes = [Method(lambda *_, i=i: Actor(fake, i, SILENT, "")) for i in range(len(reports))]
        monkeypatch.setattr(driver, "CHECK_S", 0)
        [answer] = gang.answer((GroupProbe("pair", tuple(range(len(reports))), "t"),))
        return answer, fake.did, gang

    return play


GOOD = Report([0.001], 0)


@pytest.mark.parametrize(
    ("reports", "stages", "broken", "detail"),
    [
        (
            [SILENT, SILENT],
            ["in sample 1 of 3", NO_ANSWER],
            "hang",
            "no answer within 1 s from rank 1 on h1 (10.0.0.1): does",
        ),
        (
            [SILENT, SILENT],
            ["in sample 1 of 3", "forming its group"],
            "hang",
            "1 of 3; rank 1 on h1 (10.0.0.1): forming",
        ),
        ([failure(CLOSED), SILENT], ["", "in sample 1 of 3"], "hang", "no answer within 1 s from rank 1 on h1"),
        ([failure(CLOSED), ActorDiedError()], ["", ""], "error", "rank 1 on h1 (10.0.0.1): "),
        ([failure(REMOTE), ActorDiedError()], ["", ""], "error", "rank 1 on h1 (10.0.0.1): "),
        ([SILENT, ActorDiedError()], ["in sample 1 of 3", ""], "error", "rank 1 on h1 (10.0.0.1): "),
        (
            [SILENT, failure("CUDA error: out of memory")],
            ["", ""],
            "error",
            "rank 1 on h1 (10.0.0.1): RuntimeError: CUDA",
        ),
        ([failure(CLOSED), failure(CLOSED)], ["", ""], "error", "rank 0 on h0"),
        ([GOOD, GOOD], ["", ""], None, ""),
    ],
    ids=["stopped", "hung", "hung-alone", "died", "died-on-nccl", "died-peer-waits", "failed", "link", "healthy"],
)
def test_rank_at_fault_is_named_and_not_its_partner(
    play: Callable[..., Any], reports: list[Any], stages: list[Any], broken: str | None, detail: str
) -> None:
    answer, did, _ = play(reports, stages)
    assert answer.broken == broken
    assert detail in answer.detail
    assert did.index("abort 1") < did.index("kill 0") if reports[1] is SILENT else "abort 1" not in did


def test_rank_on_dead_node_fails_later_tests_at_once(play: Callable[..., Any]) -> None:
    _, did, gang = play([failure(CLOSED), ActorDiedError()], ["", ""], {"n1"})
    assert gang.gone == {1: "its node left the cluster"}
    assert did == ["kill 0", "kill 1", "kill 1"]  # the second one: so that no other node takes its place
    [answer] = gang.answer((GroupProbe("pair", (0, 1), "t"),))
    assert (answer.broken, answer.detail) == ("error", "rank 1 on h1 (10.0.0.1): its node left the cluster")


def test_silent_rank_is_named_by_its_number(play: Callable[..., Any]) -> None:
    _, _, gang = play([GOOD, GOOD], ["", "in sample 1 of 3"])
    gang.actors.handles[1].report = SILENT
    with pytest.raises(WorkloadError, match=r"1 of 2 ranks\n  rank 1 on h1 \(10.0.0.1\): in sample 1 of 3\n"):
        gang._ask("burn", {1: ()}, "the burn", 1)


def test_ranks_wait_longer_than_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else NCCL's watchdog ends the process when the driver's time is up: a hang would look like an error."""
    found: list[float] = []
    monkeypatch.setattr(ranks, "connect", lambda _address, _port, timeout_s: found.append(timeout_s))
    monkeypatch.setattr(dist, "init_process_group", lambda *_, timeout, **__: found.append(timeout.total_seconds()))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    rank = HuntRank(use_gpu=False)
    monkeypatch.setattr(rank, "_measure", lambda *_: GOOD)
    rank.take_part(HuntOptions(timeout_s=120), 1, RankPosition(1, 2, 1), "127.0.0.1", 1)
    assert found == [150, 150]


@pytest.fixture
def rank() -> Iterator[HuntRank]:
    yield HuntRank(use_gpu=False)
    assert not dist.is_initialized(), "a test left its process group behind"


def test_rank_forms_one_group_after_another(rank: HuntRank) -> None:
    address, options = "127.0.0.1", HuntOptions(size="64K", iterations=2, timeout_s=20)
    rank.watch(RankPosition(0, 1, 1), address)
    for _ in range(3):
        report = rank.take_part(options, 3, RankPosition(0, 1, 1), address, rank.serve(address, options.timeout_s))
        assert report.wrong == 0
        assert len(report.samples) == 3
        assert all(sample > 0 for sample in report.samples)


def test_burn_multiplies_random_data_and_counts_a_flipped_bit(rank: HuntRank, monkeypatch: pytest.MonkeyPatch) -> None:
    multiply, seen = torch.matmul, []

    def flipping(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        multiply(left, right, out=out)
        seen.append((left, right))
        if len(seen) == 3:
            out.view(torch.int32)[7, 7] ^= 1

    monkeypatch.setattr(hunt_rank, "BURN_S", {False: 0.01})
    assert rank.burn(2).wrong == 0
    monkeypatch.setattr(torch, "matmul", flipping)
    report = rank.burn(3)
    assert (report.wrong, len(report.samples)) == (1, 3)
    for matrix in seen[0]:
        assert matrix.std() == pytest.approx(1, abs=0.05)
        assert len(set(matrix.flatten().tolist())) > 0.99 * matrix.numel()


@pytest.mark.parametrize(
    ("nodes", "bad", "code", "said"),
    [
        (2, None, None, "checked 2 nodes in"),
        (4, None, None, "no unit is accused"),
        (2, "wrong", Exit.WRONG_DATA, "--check: undecided: node-0, node-1 .*: wrong: as planted"),
        (2, "hang", Exit.HANG, "--check: undecided: node-0, node-1 .*: hang: as planted"),
        (4, "hang", Exit.HANG, "--check: node-1 .*does not answer in time"),
        (4, "slow", Exit.BELOW, "--check: node-1 .*slow on the network"),
    ],
)
def test_check_before_a_run_names_the_bad_node(
    nodes: int, bad: Any, code: Exit | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes alone have no reference, which is no fault. The nodes stay reserved."""

    class Fleet:
        gone: dict[int, str] = {}  # noqa: RUF012
        evidence = None

        def __init__(self, options: HuntOptions, reserved: Any) -> None:
            assert (options.nodes, reserved) == (nodes, "reserved")

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def units(self) -> list[Unit]:
            place: dict[str, Any] = {"host": "h", "ip": "10.0.0.1", "machine": "m", "node_id": "n", "gpu": None}
            return [Unit(unit=unit, name=f"node-{unit}", rails=[], **place) for unit in range(nodes)]

        def answer(self, tests: Round) -> list[Answer]:
            return [self._of(test) for test in tests]

        def _of(self, test: GroupProbe) -> Answer:
            if 1 not in test.units or bad is None:
                return Answer([10.0] * test.count)
            return Answer([1.0] * test.count) if bad == "slow" else Answer(broken=bad, detail="as planted")

    monkeypatch.setattr(before, "HuntGang", Fleet)
    notes: list[str] = []
    reserved: Any = "reserved"
    request = request_of(nodes, 1, 60, Outputs.model_validate(LOCAL | {"nodes": LOCAL["nodes"] | {"max": 4}}))
    if code is None:
        before.check_nodes(request, reserved, notes.append)
        [note] = notes
        assert re.search(said, note)
    else:
        with pytest.raises(WorkloadError, match=said) as error:
            before.check_nodes(request, reserved, notes.append)
        assert (error.value.code, notes) == (code, [])
