"""Statistics of a run's measurements. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the least value with at least `percent` % of all values at or below it."""
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    # Rounded first: 0.95·20 is 19.000000000000004 in binary floating point.
    return sorted(values)[math.ceil(round(percent * len(values) / 100, 9)) - 1]
