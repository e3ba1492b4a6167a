"""Rules of `ray.mode: service`, between the sections of a cloud's stack file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from infra.settings.common import CloudNodes, CloudRay, CloudService, pairs
from infra.settings.problems import CONTRACT, Finding, Findings, rule

if TYPE_CHECKING:
    from infra.catalog.machines import Machine
    from infra.settings.existing import KubernetesNodes

REPLICAS = "ray-project/ray: a replica is an actor, or a placement group; serve/_private/deployment_scheduler.py, 2.60"
SERVICE_IN_QUEUE = "kubernetes-sigs/kueue 0.19.2: pkg/controller/jobs/rayservice, a RayCluster of a fixed size"
UPGRADE = "ray-project/kuberay: ray-operator/controllers/ray/rayservice_controller.go (NewCluster), v1.6.2"


class ServiceRules:
    """Part of a cloud's settings. No model, so that its fields keep their order."""

    if TYPE_CHECKING:
        queue: Literal["none", "kueue"]
        ray: CloudRay
        service: CloudService

        @property
        def nodes(self) -> CloudNodes | KubernetesNodes:
            """Nodes that run Ray workers."""

        @property
        def machine(self) -> Machine | None:
            """Catalog row of the nodes' machine type, if there is one."""

        @property
        def gpus_per_node(self) -> int:
            """GPUs of a worker, all of its node."""

    @rule("service.application", "service.deployment", "ray.mode", source=CONTRACT)
    def service_incomplete(self) -> Findings:
        service, serves = self.service, self.ray.mode == "service"
        given = [each for each in (service.application, service.deployment) if each is not None]
        if serves and len(given) < 2:
            fix = "set service.application, such as workloads.serving.digits:app, and service.deployment"
            yield Finding("A service needs a function that returns its application, and a deployment to scale.", fix)
        elif given and not serves:
            fix = "set ray.mode to service, or remove the section service"
            yield Finding(f"Mode {self.ray.mode} serves nothing, so this application would not run.", fix)

    @rule("service.arguments", source=CONTRACT)
    def service_argument_malformed(self) -> Findings:
        wrong = [each for each in self.service.arguments if not re.match(r"[A-Za-z_]\w*=", each)]
        names = dict(pairs(self.service.arguments))
        if wrong:
            fix = "write NAME=VALUE, such as checkpoint=/bucket/digits"
            yield Finding(f"{wrong[0]} is not a named argument.", fix)
        elif "gpus_per_replica" in names or len(names) < len(self.service.arguments):
            fix = "name each argument once, and set service.gpusPerReplica for the GPUs"
            yield Finding("The function gets each name once, and gpus_per_replica is already one of them.", fix)

    @rule("service.minReplicas", "service.maxReplicas", source=CONTRACT)
    def replicas_min_above_max(self) -> Findings:
        least, most = self.service.min_replicas, self.service.max_replicas
        if least > most:
            fix = f"raise service.maxReplicas to {least}, or lower service.minReplicas"
            yield Finding(f"A service cannot have at least {least} and at most {most} replicas.", fix)

    @rule("service.gpusPerReplica", "nodes.machine", "ray.mode", source=REPLICAS)
    def replica_larger_than_a_node(self) -> Findings:
        wanted, gpus = self.service.gpus_per_replica, self.gpus_per_node
        if self.ray.mode == "service" and wanted > gpus:
            name = "node" if self.machine is None else self.machine.name
            fix = f"set service.gpusPerReplica to {gpus} or less, or choose a smaller model"
            fix = fix if gpus else "choose nodes with GPUs, or another ray.mode"
            yield Finding(f"No replica with {wanted} GPUs fits on one {name}, which has {gpus}.", fix)

    @rule("service.maxReplicas", "service.gpusPerReplica", "ray.maxWorkers", source=REPLICAS)
    def more_replicas_than_workers(self) -> Findings:
        service, gpus = self.service, self.gpus_per_node
        wanted, needed, most = service.max_replicas, _nodes(self, service.max_replicas), self.ray.max_workers
        if self.ray.mode == "service" and service.gpus_per_replica <= gpus and needed > most:
            room = most * (gpus // service.gpus_per_replica)
            fix = f"set service.maxReplicas to {room}, or raise ray.maxWorkers and nodes.max"
            yield Finding(
                f"{wanted} replicas need {needed} nodes; {most} have room for {room}, and the rest wait forever.", fix
            )

    @rule("nodes.max", "service.minReplicas", "service.gpusPerReplica", source=UPGRADE)
    def upgrade_has_no_room(self) -> Findings:
        service, gpus, most = self.service, self.gpus_per_node, self.nodes.max
        needed = 2 * _nodes(self, max(1, service.min_replicas))
        if self.ray.mode == "service" and service.gpus_per_replica <= gpus and needed > most:
            fix = f"raise nodes.max to {needed} (the second half costs money during an upgrade only)"
            yield Finding(
                f"An upgrade runs two clusters, but {most} nodes have no room for both, so it would wait forever.",
                fix + (", or lower service.minReplicas" if service.min_replicas > 1 else ""),
            )

    @rule("nodes.max", "service.maxReplicas", "service.minReplicas", source=UPGRADE, warning=True)
    def upgrade_waits_under_load(self) -> Findings:
        service = self.service
        first, second = (_nodes(self, each) for each in (service.max_replicas, max(1, service.min_replicas)))
        if self.ray.mode == "service" and 2 * second <= self.nodes.max < first + second:
            fix = f"raise nodes.max to {first + second}, or upgrade at a quiet time"
            yield Finding(f"While {first} nodes are busy, an upgrade, which needs {second} more, waits.", fix)

    @rule("queue", "ray.mode", source=SERVICE_IN_QUEUE)
    def service_in_a_queue(self) -> Findings:
        if self.ray.mode == "service" and self.queue == "kueue":
            yield Finding(
                "Kueue admits a service of a fixed size only, and not the second cluster of an upgrade: replicas could "
                "not scale, and an upgrade would end the service.",
                "set queue to none",
            )

    @rule("nodes.maxHours", "ray.mode", source=CONTRACT)
    def service_with_an_end(self) -> Findings:
        if self.ray.mode == "service" and self.nodes.max_hours:
            fix = "remove nodes.maxHours, and set service.minReplicas to 0 to pay for use only"
            hours = self.nodes.max_hours
            yield Finding(f"A service runs until it is deleted, but after {hours} hours all requests would fail.", fix)


def _nodes(settings: ServiceRules, replicas: int) -> int:
    """Return the nodes that so many replicas need: none is on two nodes."""
    per_node = settings.gpus_per_node // settings.service.gpus_per_replica
    return -(-replicas // max(1, per_node))
