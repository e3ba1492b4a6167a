"""List prices of machines by the hour, US dollars, each with its source and date.

Prices differ by region and change. A machine that is missing has no dated price that somebody else published.
"""

from __future__ import annotations

from collections.abc import Mapping

REGION = "us-central1"
"""Region of the prices."""
AUTOSCALER = "kubernetes/autoscaler: cluster-autoscaler gce_price_info.go, 0411d1c8, read 2026-11-28"
CLUSTER_FEE = 0.10
"""Of a cluster (GKE docs, pricing: cluster management fee; read 2026-11-28)."""
PRICES: Mapping[tuple[str, str], float] = {
    ("g2-standard-4", "on-demand"): 0.76,
    ("g2-standard-4", "spot"): 0.23,
    ("g2-standard-8", "on-demand"): 0.91,
    ("g2-standard-8", "spot"): 0.27,
    ("e2-standard-8", "on-demand"): 0.27,
}
"""(machine, capacity) -> price, with the machine's GPUs (AUTOSCALER, rounded up to cents). Spot prices vary."""
