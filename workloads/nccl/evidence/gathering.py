"""The driver's side of the evidence: every rank is asked once, not for ever, and what fails is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from workloads.exits import last_line
from workloads.nccl.evidence import raw
from workloads.nccl.evidence.collect import Collected
from workloads.nccl.evidence.facts import Evidence, RankEvidence
from workloads.nccl.evidence.log import thinned
from workloads.nccl.evidence.machine import IMAGE
from workloads.nccl.evidence.raw import named

PATIENCE_S = 60  # a log of 256 MiB takes 20 s to read; nothing else takes a second

CHANNELS = 2**14  # connections that a result tells of all ranks together: 2 MB of JSON
FEWEST_CHANNELS = 32  # and of one rank at least
WARNINGS = 20  # lines of warning per rank


def gather(
    actors: Sequence[Any], with_logs: bool, emit: Callable[..., None], patience_s: float = PATIENCE_S
) -> Evidence:
    """Ask all ranks for their evidence; their logs, where wanted, are emitted as events.

    Never raises: it comes after the measurement, or after its failure, and must not hide either.
    """
    try:
        references = [actor.evidence.remote(with_logs) for actor in actors]
        answered, _ = ray.wait(references, num_returns=len(references), timeout=patience_s) if references else ([], [])
    except RayError as error:
        return Evidence(ranks=[], image=None, topology={}, missing=[f"all of it: {last_line(error)}"])
    found: dict[int, Collected] = {}
    failed: dict[int, str] = {}
    for rank, reference in enumerate(references):
        if reference not in answered:
            failed[rank] = f"all of it: no answer within {patience_s:.0f} s"
            continue
        try:
            found[rank] = ray.get(reference)
        except RayError as error:
            failed[rank] = f"all of it: {last_line(error)}"
    if with_logs:
        failed |= send_logs(found, emit)
    return assemble(found, failed)


def send_logs(found: Mapping[int, Collected], emit: Callable[..., None]) -> dict[int, str]:
    """Emit the ranks' logs as long as there is room for all of them; by rank, why the rest was not sent."""
    room, unsent = raw.ALL_PACKED, {}
    for rank, collected in found.items():
        if collected.raw is None:
            continue
        if len(collected.raw.data) > room:
            unsent[rank] = (
                f"NCCL's raw log: those of all ranks have more than {raw.ALL_PACKED // 2**20} MiB, compressed"
            )
            continue
        room -= len(collected.raw.data)
        emit(raw.KIND, **raw.to_event(rank, collected.evidence.host or "", collected.raw))
    return unsent


def assemble(found: Mapping[int, Collected], failed: Mapping[int, str]) -> Evidence:
    """All ranks' evidence as one. Equal reasons for what is missing become one line with the ranks they hold for."""
    reasons: dict[str, list[int]] = {}
    for rank, collected in found.items():
        for reason in collected.missing:
            reasons.setdefault(reason, []).append(rank)
    for rank, reason in failed.items():
        reasons.setdefault(reason, []).append(rank)
    keep = max(FEWEST_CHANNELS, CHANNELS // max(1, len(found)))
    ranks = [
        _thin(found[rank].evidence, keep) if rank in found else RankEvidence(rank=rank, log=None, counters=None)
        for rank in sorted(found.keys() | failed.keys())
    ]
    everyone, speakers = {each.rank for each in ranks}, {rank for rank, each in found.items() if each.first}
    images = sorted({collected.image for collected in found.values() if collected.image})
    # What holds everywhere, or on every rank that speaks for its node, needs no list of ranks.
    missing = [
        reason if set(where) in (everyone, speakers) else f"{reason} ({named(where)})"
        for reason, where in sorted(reasons.items())
    ]
    if len(images) != 1:
        why = f"the nodes run different ones: {', '.join(images)}" if images else f"{IMAGE} is not set in the ranks"
        missing.append(f"container image: {why}")
    return Evidence(
        ranks=ranks,
        image=images[0] if len(images) == 1 else None,
        topology={
            collected.evidence.host or str(rank): collected.topology
            for rank, collected in found.items()
            if collected.topology
        },
        missing=missing,
    )


def _thin(evidence: RankEvidence, channels: int) -> RankEvidence:
    if evidence.log is None:
        return evidence
    return evidence.model_copy(update={"log": thinned(evidence.log, channels, WARNINGS)})
