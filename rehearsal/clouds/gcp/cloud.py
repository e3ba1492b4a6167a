"""Simulated Google Cloud: every kind and the provider functions."""

from __future__ import annotations

from rehearsal.clouds.constraints import constrained
from rehearsal.clouds.facts import shapes
from rehearsal.clouds.gcp import budget, compute, iam
from rehearsal.clouds.gcp.cluster import CLUSTER
from rehearsal.clouds.gcp.functions import FUNCTIONS
from rehearsal.clouds.gcp.node_pool import NODE_POOL
from rehearsal.clouds.gcp.offerings import FACTS
from rehearsal.engine.kind import Cloud

COMPUTE = (compute.NETWORK, compute.SUBNETWORK, compute.FIREWALL, compute.ROUTER, compute.NAT)
IDENTITY = (iam.ACCOUNT, iam.PROJECT_MEMBER, iam.BUCKET_MEMBER)
KINDS = (*COMPUTE, compute.RESOURCE_POLICY, *IDENTITY, CLUSTER, NODE_POOL, budget.CHANNEL, budget.BUDGET)
CLOUD = Cloud(package="gcp", kinds=constrained(KINDS, shapes(FACTS)), functions=FUNCTIONS)
