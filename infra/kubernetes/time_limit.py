"""Component of the CronJob that ends a workload after `nodes.maxHours` (`infra.kubernetes.time_limit_objects`)."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import core, rbac

from infra.kubernetes.pods import RayArgs
from infra.kubernetes.resources import custom_resource
from infra.kubernetes.time_limit_objects import ACCOUNT_SUFFIX, cron_job_spec, rules


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
        own = ResourceOptions(parent=self)
        own_name = f"{args.name}{ACCOUNT_SUFFIX}"
        metadata: Any = {"name": own_name, "namespace": namespace}
        account = core.v1.ServiceAccount(name, metadata=metadata, automount_service_account_token=False, opts=own)
        role = rbac.v1.Role(name, metadata=metadata, rules=rules(args), opts=own)
        binding = rbac.v1.RoleBinding(
            name,
            metadata=metadata,
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": role.metadata["name"]},
            subjects=[{"kind": "ServiceAccount", "name": own_name, "namespace": namespace}],
            opts=own,
        )
        body = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": own_name},
            "spec": cron_job_spec(args, account=own_name),
        }
        after = ResourceOptions(parent=self, depends_on=[account, binding, workload])
        custom_resource(name, body, after, namespace)
        self.register_outputs({})
