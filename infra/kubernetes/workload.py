"""The RayCluster, RayJob, RayService or Indexed Job of `ray.mode`, with its supporting resources in one namespace.

Supporting resources are the pods' ServiceAccounts, Ray's token, the NetworkPolicy, the head's PodDisruptionBudget and
the right of a RayJob's head, the objects that the pods name, and the LocalQueue. There is no Service for clients and no
Ingress: `kubectl port-forward` reaches the head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pulumi
import pulumi_random as random
from pulumi import Alias, ResourceOptions
from pulumi_kubernetes import core

from infra.catalog.names import OUTPUTS_KEY, outputs_secret
from infra.kubernetes.api_access import EVENTS_NAMESPACE, check_rights, event_rights, node_rights
from infra.kubernetes.client_access import client_bindings, client_role
from infra.kubernetes.monitoring_objects import rules, scraping
from infra.kubernetes.operators import Operators
from infra.kubernetes.pods import (
    CLUSTER_SCOPED,
    COMPONENTS,
    INDEXED_JOB_POD,
    SERVICE_POD,
    TOKEN_KEY,
    RayArgs,
    script_files,
)
from infra.kubernetes.queue_objects import local_queue
from infra.kubernetes.resources import kubernetes_object
from infra.kubernetes.start_once import start_once
from infra.kubernetes.time_limit_objects import time_limit
from infra.kubernetes.workload_objects import first_pod_service, head_budget, ingress_policy, pod_monitoring, workload
from infra.outputs import cluster_outputs
from infra.settings.cloud import CloudSettings

Settings = TypeVar("Settings", bound=CloudSettings)

TOKEN_LENGTH = 43
"""Letters and digits: 256 bits, as many as the tokens that KubeRay generates."""

NOT_AWAITED = {"pulumi.com/skipAwait": "true"}
"""Annotation of an object that may become ready after hours: when all pods run, or when the job has succeeded."""

FORCE_CONFLICTS = {"pulumi.com/patchForce": "true"}
"""The worker groups are one list to the API server (no merge key in the CRD of KubeRay 1.6.2). Once the autoscaler has
written to the list it owns all of it, and an `up` that changes the cluster fails with a conflict unless forced. Forcing
resets `replicas` and ends no worker: the operator ends only the workers that the autoscaler names. Of a RayService, the
operator owns the list since it has added its finalizer (seen with KubeRay 1.6.2, 2026-11-23)."""


class Workload(pulumi.ComponentResource):
    """Ray in its own namespace, where it requires a token. `token` is secret, and so is `serve_token`, which requests
    to a RayService need: with Ray's, their senders could run code.

    A RayCluster in a queue starts when there is room for all of it, and holds its nodes until it is deleted, or Ray's
    autoscaler releases them if it is elastic; any change replaces it. Any change of a RayJob replaces it too, because
    the operator accepts none while it runs, and so does another entry point, image or size of an Indexed Job: the run
    ends and a new one starts. A RayService changes in place: KubeRay replaces its cluster when the next one serves.
    """

    token: pulumi.Output[str]
    serve_token: pulumi.Output[str] | None = None

    def __init__(
        self,
        name: str,
        args: RayArgs,
        opts: ResourceOptions,
        *,
        operators: Operators,
        depends_on: Sequence[pulumi.Resource],
    ) -> None:
        """Register the workload; `depends_on` are created before its pods and deleted after them: nodes, drivers."""
        # The supporting resources keep their identity when the mode changes. Without aliases the engine would create
        # new ones before it deletes the old ones of the same names.
        types = {mode: f"rdma-ray:kubernetes:{component}" for mode, component in COMPONENTS.items()}
        own_type = types.pop(args.settings.ray.mode)
        aliases = ResourceOptions(aliases=[Alias(type_=other) for other in types.values()])
        super().__init__(own_type, name, {}, ResourceOptions.merge(opts, aliases))
        self._name, self._args, self._own = name, args, ResourceOptions(parent=self)
        # URNs contain the types of parents, but not their names.
        self._prefix = "" if args.settings.team is None else f"{name}-"
        self._namespace, self._operated = operators.namespace, args.settings.ray.mode != "indexed-job"
        self._cluster_queue = operators.cluster_queue
        self.token, secret = self._token("token", args.token_secret)
        secrets = [secret]
        if args.settings.ray.mode == "service":
            self.serve_token, secret = self._token("serve-token", args.serve_secret)
            secrets.append(secret)
        supporting = [*secrets, *self._supporting(), *self._scripts(), *(() if self._operated else self._head())]
        resource = self._ray([*supporting, *depends_on, *operators.resources])
        if self._operated and args.settings.nodes.max_hours:
            TimeLimit(f"{name}-time-limit", args, self._own, namespace=self._namespace, workload=resource)
        if args.settings.access.outputs_secret:
            tokens = (self.token, self.serve_token)
            OutputsSecret(f"{name}-outputs", args, self._own, namespace=self._namespace, tokens=tokens)
        self.register_outputs({"namespace": self._namespace})

    def _ray(self, depends_on: list[pulumi.Resource]) -> pulumi.Resource:
        """Create the RayCluster, RayJob, RayService or Job.

        Kueue's changes of the pod templates (labels of the flavor's nodes, annotations of the request) do not show in a
        preview: they concern other fields, or set the same values (`gpu_pod` of the cloud).
        """
        args, mode, queued = self._args, self._args.settings.ray.mode, self._args.queued
        body = workload(args)
        marks = {**NOT_AWAITED, **(FORCE_CONFLICTS if args.autoscaled else {})}
        body["metadata"]["annotations"] = {**marks, **body["metadata"].get("annotations", {})}
        groups = f"spec{'.rayClusterConfig' if mode == 'service' else ''}.workerGroupSpecs"
        counts = [f"{groups}[{index}]" for index in range(len(args.fewest))]
        # A RayCluster of another size or template needs another admission: Kueue would end the cluster and start it
        # again, which a replacement shows in the preview. Also, Kueue owns the list of worker groups after it has
        # written to it (no merge key in the CRD of KubeRay 1.6.2). Of a RayJob, KubeRay reads the spec once
        # (ray-operator/controllers/ray/rayjob_controller.go, v1.6.2).
        replaced_whole = mode == "job" or (mode == "cluster" and queued)
        options = ResourceOptions(
            parent=self,
            # The pods name all of these, and the NetworkPolicy must exist before the first port opens.
            depends_on=depends_on,
            ignore_changes=[
                # Ray's autoscaler owns both; of a RayService, the operator.
                *(f"{each}.{field}" for each in counts if args.autoscaled for field in ("replicas", "scaleStrategy")),
                # Kueue owns it.
                *(["spec.suspend"] if queued else []),
            ],
            # Kueue moves no running workload into or out of a queue (pkg/controller/jobframework/validation.go,
            # 0.19.2).
            replace_on_changes=[*(["spec"] if replaced_whole else []), "metadata.labels"],
            # The name is fixed.
            delete_before_replace=True,
        )
        return kubernetes_object(self._name, body, options, self._namespace)

    def _token(self, suffix: str, secret: str) -> tuple[pulumi.Output[str], pulumi.Resource]:
        """Create a token and the Secret with it."""
        name = f"{self._name}-{suffix}"
        password = random.RandomPassword(name, length=TOKEN_LENGTH, special=False, opts=self._own).result
        resource = core.v1.Secret(
            name,
            metadata={"name": secret, "namespace": self._namespace},
            string_data={TOKEN_KEY: password},
            opts=self._own,
        )
        return pulumi.Output.secret(password), resource

    def _supporting(self) -> list[pulumi.Resource]:
        """Create what must exist before the first pod, and the head's PodDisruptionBudget."""
        name, args, opts = self._name, self._args, self._own
        accounts: list[pulumi.Resource] = [
            core.v1.ServiceAccount(
                f"{self._prefix}{account}",
                metadata={"name": account, "namespace": self._namespace},
                # KubeRay grants the autoscaler's permissions to the head's account. Only the autoscaler's container
                # mounts its token (`ray_cluster`).
                automount_service_account_token=False,
                opts=opts,
            )
            for account in args.own_accounts
        ]
        ingress = kubernetes_object(f"{name}-ingress", ingress_policy(args), opts, self._namespace)
        if self._operated:
            kubernetes_object(f"{name}-head", head_budget(args), opts, self._namespace)
        if args.settings.ray.mode == "job":
            accounts += _bound(f"{name}-start-once", start_once(args), opts, self._namespace)
        if rights := node_rights(args):
            accounts += _bound(f"{name}-nodes", rights, opts)
        if rights := check_rights(args):
            accounts += _bound(f"{name}-node-check", rights, opts, self._namespace)
        if rights := event_rights(args):
            accounts += _bound(f"{name}-node-events", rights, opts, EVENTS_NAMESPACE)
        manifests = [*args.pod.objects, *(args.folder.objects if args.folder else ())]
        if args.pod_monitoring:
            manifests.append(pod_monitoring(args))
        manifests += [*rules(args), *scraping(args)]
        if args.settings.team is not None:
            # The stack's own workload has them.
            manifests = [each for each in manifests if each["kind"] not in CLUSTER_SCOPED]
        made = [
            _pod_object(f"{self._prefix}{each['metadata']['name']}", each, self._namespace, opts) for each in manifests
        ]
        resources = [*accounts, ingress, *made]
        if self._cluster_queue is not None:
            # Deleted before the ClusterQueue, which Kueue keeps as long as a LocalQueue refers to it.
            after = ResourceOptions(parent=self, depends_on=[self._cluster_queue])
            resources.append(
                kubernetes_object(f"{name}-queue", local_queue(args.settings.team), after, self._namespace)
            )
        return resources

    def _scripts(self) -> list[pulumi.Resource]:
        """Create the ConfigMap with the scripts of the pods, if they have any."""
        folder = {"indexed-job": INDEXED_JOB_POD, "service": SERVICE_POD}.get(self._args.settings.ray.mode)
        if folder is None:
            return []
        config_map = core.v1.ConfigMap(
            f"{self._name}-scripts",
            metadata={"name": self._args.scripts, "namespace": self._namespace},
            data=script_files(folder),
            opts=self._own,
        )
        return [config_map]

    def _head(self) -> list[pulumi.Resource]:
        """Create the Service of the first pod of an Indexed Job."""
        body = first_pod_service(self._args)
        # It has no endpoint until the head has a node.
        body["metadata"]["annotations"] = NOT_AWAITED
        return [kubernetes_object(f"{self._name}-head", body, self._own, self._namespace)]


class TimeLimit(pulumi.ComponentResource):
    """The CronJob that ends a workload after `nodes.maxHours`, with its ServiceAccount and its rights."""

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
        account, *rights, cron_job = time_limit(args)
        opts = ResourceOptions(parent=self)
        needs = kubernetes_object(name, account, opts, namespace)
        _, binding = _bound(name, rights, opts, namespace)
        after = ResourceOptions(parent=self, depends_on=[needs, binding, workload])
        kubernetes_object(name, cron_job, after, namespace)
        self.register_outputs({})


class OutputsSecret(pulumi.ComponentResource):
    """The stack's outputs in a Secret, and the Role with which somebody who has no stack reads and uses them."""

    def __init__(
        self,
        name: str,
        args: RayArgs,
        opts: ResourceOptions,
        *,
        namespace: pulumi.Input[str],
        tokens: tuple[pulumi.Output[str], pulumi.Output[str] | None],
    ) -> None:
        """Register both; `tokens` are Ray's and that of a service's requests, secret."""
        super().__init__("rdma-ray:kubernetes:OutputsSecret", name, {}, opts)
        token, serve_token = tokens
        outputs = cluster_outputs(args.settings, args.name, None, token, serve_token=serve_token)
        # Whoever reads them has come with a kubeconfig, and keeps it.
        shared = {key: value for key, value in outputs.items() if key not in ("kubeconfig", "context")}
        opts = ResourceOptions(parent=self)
        core.v1.Secret(
            name,
            metadata={"name": outputs_secret(args.name), "namespace": namespace},
            string_data={OUTPUTS_KEY: pulumi.Output.json_dumps(shared)},
            opts=opts,
        )
        _bound(name, [client_role(args), *client_bindings(args)], opts, namespace)
        self.register_outputs({})


def team_workloads(
    settings: Settings,
    args_of: Callable[[Settings], RayArgs],
    opts: ResourceOptions,
    *,
    operators: Operators,
    depends_on: Sequence[pulumi.Resource],
    kubeconfig: pulumi.Output[str],
) -> pulumi.Output[Any] | None:
    """Create the RayCluster of each team; return their outputs by name, secret, or None without teams.

    Args:
        args_of: Returns the arguments of the workload of settings.
    """
    found = {}
    for team in settings.teams:
        args = args_of(settings.for_team(team))
        own = operators.teams[team.name]
        ray = Workload(f"team-{team.name}", args, opts, operators=own, depends_on=depends_on)
        found[team.name] = cluster_outputs(args.settings, args.name, kubeconfig, ray.token)
    return pulumi.Output.secret(found) if found else None


def _bound(
    name: str, rights: Sequence[Mapping[str, Any]], opts: ResourceOptions, namespace: pulumi.Input[str] | None = None
) -> list[pulumi.Resource]:
    """Create a role and, after it, its binding, if there is one."""
    right, *bindings = rights
    role = kubernetes_object(name, right, opts, namespace)
    after = ResourceOptions.merge(opts, ResourceOptions(depends_on=[role]))
    return [role, *(kubernetes_object(name, binding, after, namespace) for binding in bindings)]


def _pod_object(
    name: str, manifest: Mapping[str, Any], namespace: pulumi.Input[str], opts: ResourceOptions
) -> pulumi.Resource:
    """Create an object that a pod names."""
    kind = manifest["kind"]
    if kind == "PersistentVolumeClaim":
        # The API server resizes no claim on a volume that was there before it, in either direction (Kubernetes:
        # plugin/pkg/admission/storage/persistentvolume/resize). Pods see the size of the file system.
        opts = ResourceOptions.merge(opts, ResourceOptions(ignore_changes=["spec.resources"]))
    return kubernetes_object(name, manifest, opts, None if kind in CLUSTER_SCOPED else namespace)
