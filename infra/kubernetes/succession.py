"""One component in the place of another, when a stack changes how it runs Ray.

The namespace, the token and the network policy are the same for all of them. Without this, the engine would make the
new ones first, and the namespace exists already.
"""

from __future__ import annotations

from pulumi import Alias, ResourceOptions

RAY_CLUSTER = "rdma-ray:kubernetes:RayCluster"
RAY_JOB = "rdma-ray:kubernetes:RayJob"
INDEXED_JOB = "rdma-ray:kubernetes:IndexedJob"


def in_place_of_others(type_: str, opts: ResourceOptions | None) -> ResourceOptions:
    """The caller's options, and that this component of `type_` was one of the other types before, by the same name.

    Children of the same type and name go over with it; the others are made, or deleted.
    """
    others = [Alias(type_=other) for other in (RAY_CLUSTER, RAY_JOB, INDEXED_JOB) if other != type_]
    return ResourceOptions.merge(opts, ResourceOptions(aliases=others))
