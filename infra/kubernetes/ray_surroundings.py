"""What stands around a Ray cluster of the operator's, whether it stays or runs one entry point.

A namespace, an account for the head and one for the workers, the token, the network policy, the head's disruption
budget, the objects that pods name, and where there is a queue the way into it. There is no Service and no Ingress: the
operator makes the head's own, which is reached by `kubectl port-forward`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import core, meta, networking, policy

from infra.kubernetes.network_policy import ray_ingress
from infra.kubernetes.pod_objects import beside
from infra.kubernetes.queues import Queue, local_queue
from infra.kubernetes.ray_manifest import HEAD_ACCOUNT, NAMESPACE, WORKER_ACCOUNT, RayShape
from infra.kubernetes.ray_token import ray_token


@dataclass(frozen=True, kw_only=True)
class SurroundingsArgs:
    """called: the RayCluster's or RayJob's name, from which the others are made. labels: what its pods carry, and no
    others. metrics_namespace: whose pods may read metrics."""

    called: str
    shape: RayShape
    labels: Mapping[str, str]
    metrics_namespace: str
    queue: Queue | None


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """namespace: its name. token: Ray's, secret. needs: what has to be there before the first pod."""

    namespace: pulumi.Output[str]
    token: pulumi.Output[str]
    needs: Sequence[pulumi.Resource]


def surroundings(name: str, args: SurroundingsArgs, own: ResourceOptions) -> Surroundings:
    """Make it all; `name` is what the stack calls the resources, `own` are the options of each."""
    namespace = core.v1.Namespace(name, metadata=meta.v1.ObjectMetaArgs(name=NAMESPACE), opts=own)
    inside = namespace.metadata["name"]
    accounts = [
        core.v1.ServiceAccount(
            account,
            metadata=meta.v1.ObjectMetaArgs(name=account, namespace=inside),
            # The operator gives the head's account the rights that Ray's autoscaler wants; without one there are none.
            automount_service_account_token=account == HEAD_ACCOUNT and args.shape.autoscaled,
            opts=own,
        )
        for account in (HEAD_ACCOUNT, WORKER_ACCOUNT)
    ]
    token = ray_token(f"{name}-token", args.shape.token_secret, inside, own)
    guard = networking.v1.NetworkPolicy(
        f"{name}-ingress",
        metadata=meta.v1.ObjectMetaArgs(name=f"{args.called}-ingress", namespace=inside),
        spec=ray_ingress(args.labels, args.metrics_namespace),
        opts=own,
    )
    policy.v1.PodDisruptionBudget(
        f"{name}-head",
        metadata=meta.v1.ObjectMetaArgs(name=f"{args.called}-head", namespace=inside),
        # The head is one pod, and its loss ends every job: an upgrade of its node waits (on GKE up to an hour).
        # Workers have no budget: whoever takes a GPU node back does not ask, and a finished one should go.
        spec=policy.v1.PodDisruptionBudgetSpecArgs(
            # Not max_unavailable=0: of a RayCluster, which has no scale, nobody can tell how many pods there should be,
            # and the budget fails to sync (seen with Kubernetes 1.36.1, 2026-11-21).
            min_available=1,
            selector=meta.v1.LabelSelectorArgs(match_labels={**args.labels, "ray.io/node-type": "head"}),
        ),
        opts=own,
    )
    objects = beside(args.shape.pod, inside, own, args.shape.folder)
    way_in = [local_queue(f"{name}-queue", args.queue, inside, own)] if args.queue else []
    return Surroundings(
        namespace=inside,
        token=token.value,
        # Pods name the accounts and the Secret; the policy is there before the first port opens.
        needs=[*accounts, token.secret, guard, *objects, *way_in],
    )
