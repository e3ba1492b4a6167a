"""The ComputeClass: one name for several node pools, tried in order.

It names pools that exist already. A ComputeClass could make pools by itself, but not with networks of one's own
(GKE docs ComputeClass CRD reference, 2026-04-13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.pins import COMPUTE_CLASS_API
from infra.gke.fabric import COMPUTE_CLASS


@dataclass(frozen=True, kw_only=True)
class ComputeClassArgs:
    """pools: the names of the node pools, first choice first."""

    pools: Sequence[pulumi.Input[str]]


class ComputeClass(pulumi.ComponentResource):
    """The stack's ComputeClass, by the name that its worker pods select (`infra.gke.fabric.COMPUTE_CLASS`)."""

    def __init__(self, name: str, args: ComputeClassArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:ComputeClass", name, {}, opts)
        self.resource = CustomResource(
            name,
            api_version=COMPUTE_CLASS_API,
            kind="ComputeClass",
            metadata={"name": COMPUTE_CLASS},
            spec={
                "activeMigration": {"optimizeRulePriority": False},
                # Every entry is a rule of its own; a rule that names pools may say nothing else.
                "priorities": [{"nodepools": [pool]} for pool in args.pools],
                # Said, because the default changed in GKE 1.33.
                "whenUnsatisfiable": "DoNotScaleUp",
            },
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"name": COMPUTE_CLASS})
