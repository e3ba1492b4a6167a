"""Goodput over attempts: every second is in one part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.train.journal import Attempt, Span, goodput
from workloads.train.result import AttemptFailure


def attempt(
    job: float, worker: float, ready: float, spans: list[Span], resumed: int = 0, pause: float = 0.0
) -> Attempt:
    trained = sum(span.seconds for span in spans)
    return Attempt(job, worker, 2, resumed, ready + trained + pause, ready, spans, {"checkpoint": pause})


def test_one_attempt() -> None:
    share, survival = goodput([attempt(0, 20, 30, [Span(0, 10, 50, 5), Span(10, 20, 10, 0)], pause=10)])
    assert (share.wall_s, share.share) == (100, 0.55)
    spent = {name: seconds for name, seconds in share.parts_s.items() if seconds}
    assert spent == {"productive": 55, "provisioning": 20, "start": 10, "data": 5, "checkpoint": 10}
    assert (survival.attempts, survival.lost_steps, survival.mttr_s, survival.between_jobs_s) == (1, 0, None, 0)


def test_a_failure_costs_the_steps_after_the_checkpoint_and_the_time_to_the_next_step() -> None:
    # 20 steps of 1 s are trained; the next attempt resumes at 15, and steps 40 s after the last sign of life.
    first = attempt(0, 10, 20, [Span(0, 10, 10, 0), Span(10, 20, 10, 1)])
    second = attempt(0, 70, 80, [Span(15, 30, 15, 0)], resumed=15)
    failures = [AttemptFailure(45, False, {0: "killed"}), AttemptFailure(46, True, {})]
    share, survival = goodput([first, second], failures)
    assert (share.wall_s, survival.lost_steps, survival.mttr_s) == (95, 5, 40)
    assert (share.parts_s["lost_steps"], share.parts_s["recovery"]) == (5, 40)
    assert share.parts_s["data"] == pytest.approx(0.5)
    assert share.parts_s["productive"] == pytest.approx(10 + 4.5 + 15)
    assert (survival.failures, survival.preemptions) == (1, 1)


def test_the_time_between_two_jobs_is_in_no_part() -> None:
    first = attempt(0, 10, 20, [Span(0, 10, 10, 0)])
    second = attempt(1000, 1010, 1020, [Span(10, 20, 10, 0)], resumed=10)
    share, survival = goodput([first, second])
    assert (survival.between_jobs_s, share.wall_s, survival.jobs, survival.mttr_s) == (970, 60, 2, None)
    assert (share.parts_s["provisioning"], share.parts_s["recovery"]) == (20, 0)


def test_an_attempt_that_took_no_step_counts_as_what_it_waited_for() -> None:
    dead = Attempt(0, 10, 2, 0, 25)
    share, _ = goodput([dead])
    assert (share.wall_s, share.parts_s["provisioning"], share.parts_s["start"], share.share) == (25, 10, 15, 0)
    with pytest.raises(ValueError, match="no attempts"):
        goodput([])


@st.composite
def lives(draw: st.DrawFn) -> list[Attempt]:
    """Attempts in order, each resuming at or before the step where the one before it ended."""
    whole = st.integers(0, 50)
    attempts, now, job, step = [], 0.0, 0.0, 0
    for number in range(draw(st.integers(1, 5))):
        if number and draw(st.booleans()):
            now += draw(whole)
            job = now
        resumed = draw(st.integers(0, step))
        worker = now + draw(whole)
        ready = worker + draw(whole)
        spans, step, trained = [], resumed, 0.0
        for _ in range(draw(st.integers(0, 4))):
            steps, seconds = draw(st.integers(1, 20)), draw(whole)
            spans.append(Span(step, step + steps, seconds, seconds * draw(st.integers(0, 4)) / 4))
            step, trained = step + steps, trained + seconds
        pause = draw(whole)
        now = ready + trained + pause + draw(whole)
        attempts.append(Attempt(job, worker, 2, resumed, now, ready, spans, {"evaluation": pause}))
    return attempts


@given(lives())
def test_every_second_is_productive_or_has_a_name(attempts: list[Attempt]) -> None:
    share, survival = goodput(attempts)
    assert sum(share.parts_s.values()) == pytest.approx(share.wall_s)
    assert all(seconds >= -1e-9 for seconds in share.parts_s.values())
    assert 0 <= share.share <= 1 + 1e-9
    # Every step up to the last one is kept once, however often it was trained.
    trained = sum(span.end - span.first for a in attempts for span in a.spans)
    last = attempts[-1].spans[-1].end if attempts[-1].spans else attempts[-1].resumed_from
    assert trained - survival.lost_steps == last
