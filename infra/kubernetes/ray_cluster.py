"""The RayCluster and what stands around it in its namespace: identities, token, network policy, disruption budget.

It makes no Service and no Ingress: the operator makes the head's own, which is reached by `kubectl port-forward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import core, meta, networking, policy
from pulumi_kubernetes.apiextensions import CustomResource

from infra.kubernetes.network_policy import ray_ingress
from infra.kubernetes.pod_objects import beside
from infra.kubernetes.ray_manifest import HEAD_ACCOUNT, NAMESPACE, WORKER_ACCOUNT, RayShape, ray_cluster
from infra.kubernetes.ray_token import ray_token
from infra.kubernetes.succession import in_place_of

TYPE = "rdma-ray:kubernetes:RayCluster"


@dataclass(frozen=True, kw_only=True)
class RayClusterArgs:
    """shape: the cluster itself. metrics_namespace: whose pods may read metrics.

    needs: what must be there before the cluster, and go only after it: the operator, the node pools, the objects that
    its pods name.
    """

    name: str
    shape: RayShape
    metrics_namespace: str
    needs: Sequence[pulumi.Resource]


class RayCluster(pulumi.ComponentResource):
    """A RayCluster that needs a token, in a namespace of its own. `up` is done when the API server has it.

    It does not wait for a GPU: the first worker comes when a job asks for it, which may take hours. `token` is secret.
    """

    token: pulumi.Output[str]

    def __init__(self, name: str, args: RayClusterArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__(TYPE, name, {}, in_place_of("rdma-ray:kubernetes:IndexedJob", opts))
        own = ResourceOptions(parent=self)
        namespace = core.v1.Namespace(name, metadata=meta.v1.ObjectMetaArgs(name=NAMESPACE), opts=own)
        inside = namespace.metadata["name"]
        accounts = [
            core.v1.ServiceAccount(
                account,
                metadata=meta.v1.ObjectMetaArgs(name=account, namespace=inside),
                automount_service_account_token=account == HEAD_ACCOUNT,
                opts=own,
            )
            for account in (HEAD_ACCOUNT, WORKER_ACCOUNT)
        ]
        token = ray_token(f"{name}-token", args.shape.token_secret, inside, own)
        guard = networking.v1.NetworkPolicy(
            f"{name}-ingress",
            metadata=meta.v1.ObjectMetaArgs(name=f"{args.name}-ingress", namespace=inside),
            spec=ray_ingress(args.name, args.metrics_namespace),
            opts=own,
        )
        policy.v1.PodDisruptionBudget(
            f"{name}-head",
            metadata=meta.v1.ObjectMetaArgs(name=f"{args.name}-head", namespace=inside),
            # The head is one pod, and its loss ends every job: an upgrade of its node waits (on GKE up to an hour).
            # Workers have no budget: whoever takes a GPU node back does not ask, and a finished one should go.
            spec=policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=0,
                selector=meta.v1.LabelSelectorArgs(
                    match_labels={"ray.io/cluster": args.name, "ray.io/node-type": "head"}
                ),
            ),
            opts=own,
        )
        objects = beside(args.shape.pod, inside, own, args.shape.folder)
        CustomResource(
            name,
            api_version="ray.io/v1",
            kind="RayCluster",
            metadata=meta.v1.ObjectMetaArgs(
                name=args.name,
                namespace=inside,
                # Ready means "all pods are there", and a GPU may take hours; `rdma-ray` waits where somebody asks.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=ray_cluster(args.shape),
            opts=ResourceOptions(
                parent=self,
                # Its pods name the accounts and the Secret; the policy is there before the first port opens.
                depends_on=[*accounts, token.secret, guard, *objects, *args.needs],
                # The autoscaler's business.
                ignore_changes=["spec.workerGroupSpecs[0].replicas", "spec.workerGroupSpecs[0].scaleStrategy"],
            ),
        )
        self.token = token.value
        self.register_outputs({"namespace": inside})
