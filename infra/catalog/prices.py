"""List prices of machines by the hour, US dollars, each with its source and date.

Prices differ by region and change. A machine that is missing has no dated price that somebody else published.
"""

from __future__ import annotations

from collections.abc import Mapping

REGIONS = {"gke": "us-central1", "eks": "us-east-1"}
"""Region of the prices, by cloud."""
AUTOSCALER = "kubernetes/autoscaler: cluster-autoscaler gce_price_info.go, 0411d1c8, read 2026-11-28"
KARPENTER = "aws/karpenter-provider-aws 1.15.1: zz_generated.pricing_aws.go, 2026-07-20"
CLUSTER_FEE = 0.10
"""Of a cluster (GKE docs, pricing; AWS containers blog, EKS extended support pricing: standard; read 2026-11-28)."""
PRICES: Mapping[tuple[str, str], float] = {
    ("g2-standard-4", "on-demand"): 0.76,
    ("g2-standard-4", "spot"): 0.23,
    ("g2-standard-8", "on-demand"): 0.91,
    ("g2-standard-8", "spot"): 0.27,
    ("e2-standard-8", "on-demand"): 0.27,
    ("n2d-standard-8", "on-demand"): 0.34,
    ("n2d-standard-8", "spot"): 0.04,
    ("n2d-standard-16", "on-demand"): 0.68,
    ("n2d-standard-16", "spot"): 0.07,
    ("g6.8xlarge", "on-demand"): 2.02,
    ("g6e.8xlarge", "on-demand"): 4.53,
    ("g7e.8xlarge", "on-demand"): 5.27,
    ("p5.4xlarge", "on-demand"): 6.88,
    ("p4d.24xlarge", "on-demand"): 21.96,
    ("p4de.24xlarge", "on-demand"): 27.45,
    ("p5.48xlarge", "on-demand"): 55.04,
    ("p5en.48xlarge", "on-demand"): 63.30,
    ("p6-b200.48xlarge", "on-demand"): 113.94,
    ("p6-b300.48xlarge", "on-demand"): 142.42,
    ("m6i.2xlarge", "on-demand"): 0.39,
}
"""(machine, capacity) -> price with its GPUs, rounded up to cents (AUTOSCALER; KARPENTER). Spot prices vary."""
