"""The operators that a stack's workload needs: KubeRay, unless it runs an Indexed Job, and Kueue with its queue.

The Kubernetes providers of both clouds leave enableSecretMutable and enableConfigMapMutable off (beta in
pulumi-kubernetes 4.34.2). Three objects change by content: Ray's token and the scripts of pods, which running pods have
already read, and the token of a service, which they read again. New content therefore replaces the object in a preview,
and `rdma-ray:protect` rejects the replacement until someone has reviewed it.

Kueue protects each object with a finalizer as long as another object refers to it. Resources are therefore deleted in
this order: workload, LocalQueue, ClusterQueue, flavors and check, and last the controller, which removes the
finalizers. Kueue's CRDs are templates of the chart: they are deleted with the release, and every queue with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import yaml
from pulumi import ResourceOptions

from infra.catalog.names import KUBERAY_NAMESPACE, NAMESPACE, STACK_LABEL
from infra.catalog.pins import KUBERAY, KUEUE
from infra.kubernetes import queue_objects as objects
from infra.kubernetes.namespace import RayNamespace
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.queue_args import QueueArgs
from infra.kubernetes.queue_objects import KUEUE_NAMESPACE
from infra.kubernetes.resources import helm_release, image_values, kubernetes_object
from infra.settings.cloud import CloudSettings


@dataclass(frozen=True, kw_only=True)
class Operators:
    """Resources of a stack in the cluster besides its workload.

    Args:
        namespace: Name of Ray's namespace.
        resources: Resources that the workload depends on: those of the namespace, and KubeRay's release.
        cluster_queue: None without a queue.
        teams: The same for each team, by its name.
    """

    namespace: pulumi.Input[str]
    resources: Sequence[pulumi.Resource]
    cluster_queue: pulumi.Resource | None = None
    teams: Mapping[str, Operators] = field(default_factory=dict)


def install_operators(
    args: RayArgs,
    opts: ResourceOptions,
    *,
    depends_on: Sequence[pulumi.Resource],
    stack: str,
    webhook_access: Sequence[pulumi.Resource] = (),
    mirror: str | None = None,
) -> Operators:
    """Create the namespace of a workload, install its operators on the head's nodes, and create its queue, if any.

    Args:
        depends_on: Resources that the operators need to become ready: nodes, and DNS.
        stack: Name of the stack, with which KubeRay is labeled in a cluster of the user's.
        webhook_access: Resources that the control plane needs to call Kueue's webhook.
        mirror: Registry of the operators' images; None for their own registries.
    """
    nodes, operated = args.head_selector, args.settings.ray.mode != "indexed-job"
    limited = operated and args.settings.nodes.max_hours is not None
    namespace = RayNamespace("ray", args.pod, opts, limited=limited)
    releases: list[pulumi.Resource] = []
    settings, shared = args.settings, args.queue.teams if args.queue else ()
    spaces = {
        team.name: RayNamespace(f"team-{team.name}", args.pod, opts, limited=limited, team=team) for team in shared
    }
    if operated and isinstance(settings, CloudSettings) and settings.installs("kuberay"):
        # In the user's cluster it is in Ray's namespace: Helm leaves the one that it makes.
        labels, place = (None, None) if settings.own_cluster else ({STACK_LABEL: stack}, NAMESPACE)
        # The chart creates the operator's role in the namespace.
        needs = [*depends_on, *(each for space in (namespace, *spaces.values()) for each in space.resources)]
        others = [team.namespace for team in shared]
        kuberay = KubeRay("kuberay", nodes, needs, opts, mirror=mirror, namespace=place, labels=labels, others=others)
        releases.append(kuberay.release)
    resources = [*namespace.resources, *releases]
    if args.queue is None:
        return Operators(namespace=namespace.name, resources=resources)
    # KubeRay first: Kueue's webhook for Ray's kinds answers only after their CRDs are installed, and until then the API
    # server rejects every object of these kinds.
    needs = [*depends_on, *webhook_access, *releases]
    scraped = settings.monitoring == "operator"
    kueue = Kueue("kueue", args.queue, nodes, needs, opts, mirror=mirror, scraped=scraped)
    queues = Queues("queue", args.queue, opts, release=kueue.release)
    teams = {
        name: Operators(
            namespace=space.name, resources=[*space.resources, *releases], cluster_queue=queues.of_teams[name]
        )
        for name, space in spaces.items()
    }
    return Operators(namespace=namespace.name, resources=resources, cluster_queue=queues.cluster_queue, teams=teams)


class KubeRay(pulumi.ComponentResource):
    """The KubeRay operator with a role in Ray's namespace. A RayCluster or RayJob depends on `release`.

    The first release of the chart installs the CRDs; Helm does not upgrade them, and keeps them when the release is
    deleted. GKE's Ray add-on must not run in the same cluster.

    Args:
        namespace: Existing namespace of Ray, in which the operator also runs; None for NAMESPACE, and an own one.
        others: Further namespaces that it watches, each of which gets a role (templates/multiple_namespaces_role.yaml
            of the chart, read 2026-11-28).
        labels: Labels of the operator.
        tolerations: Taints that the operator tolerates, as in a pod.
    """

    def __init__(
        self,
        name: str,
        node_selector: Mapping[str, str],
        depends_on: Sequence[pulumi.Resource],
        opts: ResourceOptions,
        *,
        mirror: str | None,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        tolerations: Sequence[Mapping[str, str]] = (),
        others: Sequence[str] = (),
    ) -> None:
        super().__init__("rdma-ray:kubernetes:KubeRay", name, {}, opts)
        values = {
            "nodeSelector": dict(node_selector),
            **({"tolerations": [dict(each) for each in tolerations]} if tolerations else {}),
            "image": image_values(KUBERAY, mirror),
            **({"labels": dict(labels)} if labels else {}),
            # A role in the namespace that it watches, instead of one in all of them, which includes their Secrets.
            "singleNamespaceInstall": True,
            "watchNamespace": [namespace or NAMESPACE, *others],
            # The chart's default is 0.1 CPU and 512 MiB, the memory for 500 pods (its values, 002c26b0).
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}},
        }
        # The release waits until the operator runs, which needs a node.
        opts = ResourceOptions(parent=self, depends_on=depends_on)
        self.release = helm_release(name, KUBERAY, opts, values=values, namespace=namespace or KUBERAY_NAMESPACE)
        self.register_outputs({"version": KUBERAY.version})


class Kueue(pulumi.ComponentResource):
    """Kueue's controller in its own namespace. Queues depend on `release`.

    Args:
        scraped: Whether the Prometheus Operator reads its metrics, which need a token.
    """

    def __init__(
        self,
        name: str,
        queue: QueueArgs,
        node_selector: Mapping[str, str],
        depends_on: Sequence[pulumi.Resource],
        opts: ResourceOptions,
        *,
        mirror: str | None,
        scraped: bool = False,
    ) -> None:
        super().__init__("rdma-ray:kubernetes:Kueue", name, {}, opts)
        # The tag is a release; Always would contact the registry at every restart.
        image = {**image_values(KUEUE, mirror), "pullPolicy": "IfNotPresent"}
        values = {
            "controllerManager": {"nodeSelector": dict(node_selector), "manager": {"image": image}},
            "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(objects.configuration(queue))},
            **({"enablePrometheus": True} if scraped else {}),
        }
        # The release waits until the controller answers, which needs a node and a path from the control plane.
        opts = ResourceOptions(parent=self, depends_on=depends_on)
        self.release = helm_release(name, KUEUE, opts, values=values, namespace=KUEUE_NAMESPACE)
        self.register_outputs({"version": KUEUE.version})


class Queues(pulumi.ComponentResource):
    """The ClusterQueues and the objects that they refer to. The LocalQueue is created with the workload.

    Args:
        release: Kueue's release, which installs the CRDs and webhooks of these objects.
    """

    def __init__(self, name: str, args: QueueArgs, opts: ResourceOptions, *, release: pulumi.Resource) -> None:
        super().__init__("rdma-ray:kubernetes:Queues", name, {}, opts)
        levels = objects.topology(args)
        topology = [self._object("topology", levels, [release])] if levels else []
        # The API server rejects a flavor whose topology does not exist.
        needs = [
            self._object(f"flavor-{flavor['metadata']['name']}", flavor, [release, *topology])
            for flavor in objects.resource_flavors(args)
        ]
        for config, check in [objects.provisioning(args)] if args.provisioned else []:
            # The check refers to the configuration, and the ClusterQueue to the check.
            needs.append(self._object("check", check, [self._object("provisioning", config, [release])]))
        self.cluster_queue = self._object("cluster-queue", objects.cluster_queue(args), needs)
        self.of_teams = {
            team.name: self._object(f"of-team-{team.name}", objects.cluster_queue(args, team), needs)
            for team in args.teams
        }
        self.register_outputs({})

    def _object(self, name: str, body: Mapping[str, Any], depends_on: Sequence[pulumi.Resource]) -> pulumi.Resource:
        return kubernetes_object(f"queue-{name}", body, ResourceOptions(parent=self, depends_on=depends_on))
