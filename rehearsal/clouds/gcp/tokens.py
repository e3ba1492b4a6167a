"""Type tokens of the simulated Google Cloud kinds, as on the wire (pulumi-gcp 10.2.0)."""

from __future__ import annotations

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER = "gcp:compute/router:Router"
NAT = "gcp:compute/routerNat:RouterNat"
ACCOUNT = "gcp:serviceaccount/account:Account"
PROJECT_MEMBER = "gcp:projects/iAMMember:IAMMember"
BUCKET_MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"

KUBERNETES = "kubernetes:"
"""Prefix of Kubernetes types; their live values have their cluster's id in `IN_CLUSTER`."""
IN_CLUSTER = "__cluster"
