"""From the ranks' own times to a point-to-point row: each pair's bandwidth, and what all of them carried. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.nccl.limits import Limits, limit_of
from workloads.nccl.point_patterns import Variant, fan_in, flows, goes_up
from workloads.nccl.result import Pair


def fields(
    name: str, size: int, times: Mapping[int, float], nodes: int, per_node: int, limits: Limits | None
) -> dict[str, Any]:
    """`pairs`, `total` and `limit` of the row of the variant `name`.

    `size` is the row's (bytes per receiver), `times` each rank's mean seconds per run. A pair is over when both of its
    ends are: a sender may be done while its data is still on the way. The total is, per direction, the sum of all bytes
    over the slowest pair's time, B(A→B) = Σ bytes / max t; duplex adds the two up, to be compared with twice the line
    rate, never with the line rate.
    """
    variant = Variant.parse(name)
    share = size / fan_in(variant, per_node)
    found = flows(variant, nodes, per_node)
    seconds = {flow: max(times[flow.sender], times[flow.receiver]) for flow in found}
    directions = [[seconds[flow] for flow in found if goes_up(flow) is up] for up in (True, False)]
    return {
        "pairs": [
            Pair(
                sender=flow.sender,
                receiver=flow.receiver,
                time_us=round(seconds[flow] * 1e6, 2),
                bandwidth=_gigabytes(share, seconds[flow]),
            ).model_dump()
            for flow in found
        ],
        "total": round(sum(_gigabytes(share * len(one_way), max(one_way)) for one_way in directions if one_way), 6),
        "limit": limit_of(found, limits, per_node),
    }


def _gigabytes(amount: float, seconds: float) -> float:
    """GB/s (decimal) of `amount` bytes."""
    return round(amount / seconds / 1e9, 6)
