"""Component of the CronJob that ends a workload after `nodes.maxHours` (`infra.kubernetes.time_limit_objects`)."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from infra.kubernetes.pods import RayArgs
from infra.kubernetes.resources import kubernetes_object
from infra.kubernetes.time_limit_objects import time_limit


class TimeLimit(pulumi.ComponentResource):
    """The CronJob with its ServiceAccount and rights: to see pods, and to change this one workload."""

    def __init__(
        self,
        name: str,
        args: RayArgs,
        opts: ResourceOptions,
        *,
        namespace: pulumi.Input[str],
        workload: pulumi.Resource,
    ) -> None:
        super().__init__("rdma-ray:kubernetes:TimeLimit", name, {}, opts)
        account, role, binding, cron_job = time_limit(args)
        own = ResourceOptions(parent=self)
        needs = [kubernetes_object(name, account, own, namespace)]
        right = kubernetes_object(name, role, own, namespace)
        needs.append(kubernetes_object(name, binding, ResourceOptions(parent=self, depends_on=[right]), namespace))
        after = ResourceOptions(parent=self, depends_on=[*needs, workload])
        kubernetes_object(name, cron_job, after, namespace)
        self.register_outputs({})
