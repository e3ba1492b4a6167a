"""Verification patterns: sums are exact in any order, and every error is detected."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.nccl import pattern
from workloads.nccl.kinds import COLLECTIVES, BenchKind, RankPosition
from workloads.nccl.operations import DTYPES, Operation
from workloads.nccl.pattern import ReductionPattern, count_wrong, flip, moved, spoil
from workloads.nccl.units import REDUCTIONS

CPU = torch.device("cpu")
dtypes = st.sampled_from([dtype for dtype in DTYPES.values() if dtype.is_floating_point])  # those that hold sums
all_dtypes = st.sampled_from(list(DTYPES.values()))
worlds = st.integers(2, 64)
salts = st.integers(0, 10**6)


def contributions(world: int, dtype: torch.dtype, salt: int, count: int) -> list[torch.Tensor]:
    sums = ReductionPattern(world, dtype, CPU)
    return [sums.contribution(rank, salt)(0, count) for rank in range(world)]


@settings(deadline=None)
@given(dtypes, st.integers(1, 600), salts, st.randoms(use_true_random=False), st.integers(1, 300))
def test_sums_are_exact_in_any_order(dtype: torch.dtype, world: int, salt: int, random, count: int) -> None:  # type: ignore[no-untyped-def]  # hypothesis does not type its Random
    parts = contributions(world, dtype, salt, count)
    while len(parts) > 1:  # a random tree of sums, in the type itself
        a, b = (parts.pop(random.randrange(len(parts))) for _ in range(2))
        parts.append(a + b)
    assert count_wrong(parts[0], ReductionPattern(world, dtype, CPU).total(salt)) == 0


@given(all_dtypes, salts, st.integers(0, 63), st.integers(0, 31))
def test_a_flipped_bit_counts_once(dtype: torch.dtype, salt: int, where: int, bit: int) -> None:
    want = moved(0, 1, salt, dtype, CPU)
    got = want(0, 64)
    pattern.bits(got)[where] ^= 1 << (bit % (8 * dtype.itemsize - 1))
    assert count_wrong(got, want) == 1
    flip(got, where)
    assert count_wrong(got, want) == (0 if bit % (8 * dtype.itemsize - 1) == 0 else 1)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.is_floating_point])
def test_the_sign_of_zero_counts(dtype: torch.dtype) -> None:
    assert count_wrong(-torch.zeros(3, dtype=dtype), lambda _start, count: torch.zeros(count, dtype=dtype)) == 3


@given(all_dtypes, salts, st.integers(-1, 63), st.integers(-1, 63))
def test_spoiled_data_is_wrong_at_every_position(dtype: torch.dtype, salt: int, source: int, destination: int) -> None:
    want = moved(source, destination, salt, dtype, CPU)
    other, right = moved(source, destination, salt + 1, dtype, CPU)(0, 64), want(0, 64)
    for buffer in (other, right):
        for _ in range(2):  # the second time, it holds the poison
            spoil(buffer, want)
            assert count_wrong(buffer, want) == 64


@given(dtypes, worlds, salts)
def test_every_ranks_contribution_counts(dtype: torch.dtype, world: int, salt: int) -> None:
    assert all(part.any() for part in contributions(world, dtype, salt, 64))


@given(dtypes, worlds, salts)
def test_the_previous_verifications_sum_is_wrong_everywhere(dtype: torch.dtype, world: int, salt: int) -> None:
    sums = ReductionPattern(world, dtype, CPU)
    stale = sums.total(salt)(0, 64)
    wrong = count_wrong(stale, sums.total(salt + 1))
    # Where the period divides the ranks every position has one and the same sum; the poison is what shows then.
    assert wrong == (0 if world % sums.period == 0 else 64)


@pytest.mark.parametrize(("dtype", "ranks"), [(torch.float32, 4096), (torch.float16, 256), (torch.bfloat16, 32)])
def test_rank_limit_for_detecting_stale_sums(dtype: torch.dtype, ranks: int) -> None:
    assert not [n for n in range(2, ranks + 1) if n % ReductionPattern(n, dtype, CPU).period == 0]


@settings(deadline=None)
@given(dtypes, st.integers(2, 600), salts)
def test_sums_do_not_depend_on_chunks(dtype: torch.dtype, world: int, salt: int) -> None:
    total = ReductionPattern(world, dtype, CPU).total(salt)
    whole = total(0, 2000)  # longer than the period of the narrow types, which is looked up
    assert torch.equal(whole[300:], ReductionPattern(world, dtype, CPU).total(salt, offset=300)(0, 1700))
    pieces = torch.cat([total(start, end - start) for start, end in pairwise([0, 1, 7, 300, 2000])])
    assert torch.equal(whole, pieces)


@given(all_dtypes, worlds, salts, st.data())
def test_moved_data_differs_between_sources_destinations_and_salts(
    dtype: torch.dtype, world: int, salt: int, data: st.DataObject
) -> None:
    source, destination = (data.draw(st.integers(-1, world - 1)) for _ in range(2))
    want = moved(source, destination, salt, dtype, CPU)
    others = [(source + 1, destination, salt), (source, destination + 1, salt), (source, destination, salt + 1)]
    if source != destination:
        others.append((destination, source, salt))
    for other in others:
        assert count_wrong(moved(*other, dtype, CPU)(0, 64), want) > 48
    assert count_wrong(want(1, 64), want) > 48  # shifted by one


def test_count_wrong_covers_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "CHUNK", 10)
    want = moved(0, 1, 2, torch.float32, CPU)
    buffer = torch.empty(35)
    pattern.fill(buffer, want)
    assert count_wrong(buffer, want) == 0
    buffer[[0, 9, 10, 34]] = -1
    assert count_wrong(buffer, want) == 4


def gang(kind: BenchKind, world: int, per_node: int, dtype: torch.dtype, size: int = 4096) -> list[Operation]:
    ranks = [Operation(kind, RankPosition(rank, world, per_node), size, dtype, CPU) for rank in range(world)]
    for rank in ranks:
        rank.fill(salt=1)
    return ranks


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(k, d) for k in COLLECTIVES.values() for d in DTYPES.values() if d.is_floating_point or k.op not in REDUCTIONS],
)
def test_received_data_is_wrong_before_the_run(kind: BenchKind, dtype: torch.dtype) -> None:
    for rank in gang(kind, 4, 2, dtype):
        expected = sum(buffer.numel() for buffer, _ in rank.checks())
        if kind.op == "broadcast" and rank.place.rank == 0:
            assert rank.wrong() == 0  # the root has its own data
        elif kind.op in REDUCTIONS and kind.op != "reduce_scatter" and expected:
            assert rank.wrong() > 0.7 * expected  # in place: what is there is this rank's own share
        else:
            assert rank.wrong() == expected


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(
    "kind", [kind for kind in COLLECTIVES.values() if kind.op not in REDUCTIONS], ids=lambda k: k.op
)
def test_armed_buffers_are_wrong_whatever_they_held(kind: BenchKind, dtype: torch.dtype) -> None:
    """The poison (no warm-up run), right data (the usual case), or the data of an earlier row."""
    for rank in gang(kind, 4, 2, dtype):
        received = [] if kind.in_place and rank.destinations else rank.checks()
        for content in ("poison", "right", "stale"):
            for buffer, want in received:
                if content == "right":
                    pattern.fill(buffer, want)
                elif content == "stale":
                    buffer.copy_(1 - want(0, len(buffer)))
            rank.arm()
            assert rank.wrong() == sum(buffer.numel() for buffer, _ in received), content


@pytest.mark.parametrize("op", ["all_reduce", "reduce"])
@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.is_floating_point])
def test_restored_sums_neither_vanish_nor_grow(op: str, world: int, dtype: torch.dtype) -> None:
    """Every timed run adds the same data, of which no rank's is zero, and leaves a sum that is checked bit by bit."""
    ranks = gang(COLLECTIVES[op], world, 1, dtype)
    inputs = [rank.received.clone() for rank in ranks]
    assert all(own.ne(0).float().mean() > 0.7 for own in inputs)
    for _ in range(3):
        for rank, own in zip(ranks, inputs, strict=True):
            assert rank.restore is not None
            rank.restore()
            assert torch.equal(rank.received, own)
        assert ranks[0].wrong() > 0.7 * ranks[0].count  # nothing was reduced
        total = torch.stack([rank.received for rank in ranks]).sum(0).to(dtype)
        for rank in ranks:
            rank.received.copy_(total)  # gloo's reduce also writes to the other ranks' buffers
        assert [rank.wrong() for rank in ranks] == [0] * world
    flip(ranks[0].received, -1)
    assert ranks[0].wrong() == 1


def test_sums_of_a_period_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "CHUNK", 500)
    sums = ReductionPattern(3, torch.bfloat16, CPU)
    computed: list[int] = []
    values = ReductionPattern._values

    def counted(self: ReductionPattern, positions: torch.Tensor, rank: int) -> torch.Tensor:
        computed.append(len(positions))
        return values(self, positions, rank)

    monkeypatch.setattr(ReductionPattern, "_values", counted)
    buffer = torch.zeros(5000, dtype=torch.bfloat16)
    pattern.fill(buffer, sums.total(1))
    assert count_wrong(buffer, sums.total(1)) == 0
    assert computed == [sums.period] * 3  # of each rank


@pytest.mark.parametrize("kind", COLLECTIVES.values(), ids=COLLECTIVES)
def test_sizes_follow_nccl_tests(kind: BenchKind) -> None:
    assert {rank.size for rank in gang(kind, 4, 2, torch.float32, 4096)} == {4096}
    assert gang(kind, 3, 1, torch.float32, 4096)[0].size == (4092 if kind.pieces(RankPosition(0, 3, 1)) == 3 else 4096)
    assert gang(kind, 3, 1, torch.float32, 1)[0].count == 1
