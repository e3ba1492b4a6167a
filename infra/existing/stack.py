"""The `kubernetes` target: Ray on a cluster that the user has, from settings to stack outputs."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions, ResourceTransformationArgs, ResourceTransformationResult

from infra.catalog.names import STACK_LABEL
from infra.existing.checks import problems
from infra.existing.kubectl import Kubectl
from infra.existing.workload import ray_args
from infra.kubernetes.operators import KubeRay, Operators
from infra.kubernetes.resources import labeled
from infra.kubernetes.workload import Workload
from infra.outputs import cluster_outputs
from infra.settings import KubernetesSettings, SettingsError


def deploy(settings: KubernetesSettings) -> dict[str, Any]:
    """Register the resources of a stack on the user's cluster; return its outputs.

    Raises:
        SettingsError: The cluster lacks something, or the user a right; nothing has been created.
    """
    stack = KubernetesStack(pulumi.get_stack(), settings)
    context, workload = settings.context, stack.workload
    name, token, serve = stack.args.name, workload.token, workload.serve_token
    return cluster_outputs(settings, name, None, token, context=context, serve_token=serve)


class KubernetesStack(pulumi.ComponentResource):
    """All resources of a stack on the user's cluster, all of them in one namespace that exists."""

    workload: Workload

    def __init__(self, name: str, settings: KubernetesSettings) -> None:
        self.args = args = ray_args(settings, f"{name}-ray")
        if found := problems(Kubectl(settings.context), args, settings, name):
            raise SettingsError(found, origin=f"Cluster {settings.context}, for stack {name},")
        options = ResourceOptions(protect=settings.protect, transformations=[labeled({STACK_LABEL: name})])
        super().__init__("rdma-ray:existing:KubernetesStack", name, {}, options)
        provider = kubernetes.Provider(
            "kubernetes",
            context=settings.context,
            # Another context is another cluster, in which the objects must be created.
            cluster_identifier=settings.context,
            opts=ResourceOptions(parent=self, transformations=[_without_kubeconfig]),
        )
        inside = ResourceOptions(parent=self, providers=[provider])
        releases: list[pulumi.Resource] = []
        if settings.install_kuberay and settings.ray.mode != "indexed-job":
            place, labels = settings.namespace, {STACK_LABEL: name}
            operator = KubeRay(
                "kuberay",
                args.head_selector,
                [],
                inside,
                mirror=None,
                namespace=place,
                labels=labels,
                tolerations=args.head_tolerations,
            )
            releases.append(operator.release)
        operators = Operators(namespace=settings.namespace, resources=releases)
        self.workload = Workload("ray", args, inside, operators=operators, depends_on=[])
        self.register_outputs({})


def _without_kubeconfig(args: ResourceTransformationArgs) -> ResourceTransformationResult:
    """Leave KUBECONFIG to the provider, which reads it as kubectl does.

    The SDK would write its value into the state, where it is a path of this machine; the provider takes that value for
    one file, and so refuses a list of files (pulumi-kubernetes 4.34.2: provider.py; provider/pkg/provider/provider.go,
    Configure).
    """
    props = {key: value for key, value in args.props.items() if key != "kubeconfig"}
    return ResourceTransformationResult(props, args.opts)
