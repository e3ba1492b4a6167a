"""Waiting on Ray with an end: for the nodes of a gang, and for the answers of its actors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table

from workloads.exits import Exit, WorkloadError
from workloads.nccl import placement
from workloads.nccl.placement import Wanted

# Seconds until it is first said what is waited for, and between one such word and the next.
FIRST_WORD_S, NEXT_WORD_S = 2, 15


def wait_for_nodes(
    group: PlacementGroup, wanted: Wanted, wait_s: float, elastic: bool, on_event: Callable[..., None]
) -> None:
    """Wait until the group has its nodes, telling from time to time what is missing.

    Raises WorkloadError where it can never be placed, at once, and where it is not within `wait_s` seconds.
    """
    ready = group.ready()
    began = time.monotonic()
    pause = min(FIRST_WORD_S, wait_s)
    while not ray.wait([ready], timeout=pause)[0]:
        seen = placement.read(wanted.kind, group.id.hex())
        if reason := placement.never(wanted, seen, elastic):
            raise WorkloadError(reason)
        waited = time.monotonic() - began
        if waited >= wait_s:
            state = placement_group_table(group)["stats"]["scheduling_state"]
            raise WorkloadError(placement.too_late(wanted, seen, wait_s, state))
        on_event("waiting", text=placement.waiting(wanted, seen), seconds=round(waited))
        pause = min(NEXT_WORD_S, wait_s - waited)


def answers(references: Sequence[Any], timeout_s: float, hang: Callable[[list[int]], str]) -> list[Any]:
    """The answers, in the order of the references.

    Raises WorkloadError(HANG) with what `hang` says of the indexes that did not answer within `timeout_s` seconds, and
    an actor's own error as soon as it fails, not after the others have waited for it in vain.
    """
    waiting = list(references)
    deadline = time.monotonic() + timeout_s
    while waiting:
        done, waiting = ray.wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            silent = [index for index, reference in enumerate(references) if reference in waiting]
            raise WorkloadError(hang(silent), Exit.HANG)
        ray.get(done)
    found: list[Any] = ray.get(list(references))
    return found
