"""The versions of what EKS runs, chosen together: Kubernetes, node images, add-ons. One place to raise them.

Pinned, because nodes and add-ons that change on their own change under running jobs; and because AWS' recommended
image differs from day to day, so that asking for it would show a change in every preview.
"""

from __future__ import annotations

from collections.abc import Mapping

KUBERNETES = "1.35"
"""Claims for devices are v1 from 1.34 on, and AWS' chart of DRANET asks for 1.35 (aws/eks-charts: aws-dranet 1.0.0,
5239609, 2026-08-03). Its standard support outlasts that of 1.34, which ends first."""

NODE_IMAGE = "1.35.6-20260728"
"""The release of the EKS images, on GPU and CPU nodes alike. It was the recommended one of AL2023 for 1.35 on
2026-08-04 (a public stack that read the SSM parameter, for arm64; releases carry one number for all variants);
amazon-eks-ami v20260728 holds driver 580 and efa 3.1.0. The newest:
aws ssm get-parameter --name
/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/release_version"""

ADDONS: Mapping[str, str | None] = {
    "vpc-cni": "v1.22.3-eksbuild.1",
    "kube-proxy": "v1.35.3-eksbuild.17",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
    "coredns": "v1.13.2-eksbuild.11",
    # No source names a version of these two for 1.35 with its build number, and a wrong one is refused. Without one EKS
    # takes its default for the cluster's Kubernetes, and keeps it until it is told another.
    "eks-node-monitoring-agent": None,
    "aws-fsx-csi-driver": None,
}
"""EKS' defaults for Kubernetes 1.35 on 2026-08-04 (a public stack that pinned what `aws eks describe-addon-versions`
marked as default; defaults rather than the newest, so that a pin is no upgrade). vpc-cni from 1.18.5 on knows efa-only
interfaces (vpc-cni releases, by the EKS reference of this project, 2026-11)."""
