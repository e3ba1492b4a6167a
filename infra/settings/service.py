"""Rules of `ray.mode: service`, between the sections of a cloud's stack file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from infra.catalog.machines import CATALOG
from infra.settings.common import CloudNodes, CloudRay, CloudService, by_name
from infra.settings.problems import CONTRACT, Finding, Found, rule

REPLICAS = "ray-project/ray: a replica is an actor, or a placement group; serve/_private/deployment_scheduler.py, 2.60"
SERVICE_IN_QUEUE = (
    "kubernetes-sigs/kueue 0.19.2: pkg/controller/jobs/rayservice validates it as a RayCluster, of a fixed size"
)
UPGRADE = "ray-project/kuberay: ray-operator/controllers/ray/rayservice_controller.go (NewCluster), v1.6.2"


class ServiceRules:
    """Part of a cloud's settings. No model, so that its fields keep their order."""

    if TYPE_CHECKING:
        nodes: CloudNodes
        queue: Literal["none", "kueue"]
        ray: CloudRay
        service: CloudService

    @rule("service.application", "service.deployment", "ray.mode", source=CONTRACT)
    def service_incomplete(self) -> Finding:
        service, serves = self.service, self.ray.mode == "service"
        given = [each for each in (service.application, service.deployment) if each is not None]
        if serves and len(given) < 2:
            says = "A service needs a function that returns its application, and the name of the deployment to scale."
            fix = "set service.application, such as workloads.serving.digits:app, and service.deployment"
            yield Found(says, fix)
        elif given and not serves:
            says = f"Mode {self.ray.mode} serves nothing: this application would not run."
            yield Found(says, "set ray.mode to service, or remove the section service")

    @rule("service.arguments", source=CONTRACT)
    def service_argument_malformed(self) -> Finding:
        wrong = [each for each in self.service.arguments if not re.match(r"[A-Za-z_]\w*=", each)]
        taken = by_name(self.service.arguments)
        if wrong:
            yield Found(
                f"{wrong[0]} is no argument with a name.", "write NAME=VALUE, such as checkpoint=/bucket/digits"
            )
        elif "gpus_per_replica" in taken or len(taken) < len(self.service.arguments):
            says = "The function gets a map, which has each name once, and gpus_per_replica is in it already."
            yield Found(says, "name each argument once, and set service.gpusPerReplica for the GPUs")

    @rule("service.minReplicas", "service.maxReplicas", source=CONTRACT)
    def replicas_min_above_max(self) -> Finding:
        least, most = self.service.min_replicas, self.service.max_replicas
        if least > most:
            says = f"There cannot be at least {least} and at most {most} replicas."
            yield Found(says, f"raise service.maxReplicas to {least}, or lower service.minReplicas")

    @rule("service.gpusPerReplica", "nodes.machine", "ray.mode", source=REPLICAS)
    def replica_larger_than_a_node(self) -> Finding:
        wanted, gpus = self.service.gpus_per_replica, CATALOG[self.nodes.machine].gpus
        if self.ray.mode == "service" and wanted > gpus:
            says = f"A replica is on one node, and {self.nodes.machine} has {gpus} GPUs: none of {wanted} would start."
            yield Found(says, f"set service.gpusPerReplica to {gpus} or less, or choose a smaller model")

    @rule("service.maxReplicas", "service.gpusPerReplica", "ray.maxWorkers", source=REPLICAS)
    def more_replicas_than_workers(self) -> Finding:
        service, gpus = self.service, CATALOG[self.nodes.machine].gpus
        needed, most = _nodes(self, service.max_replicas), self.ray.max_workers
        if self.ray.mode == "service" and service.gpus_per_replica <= gpus and needed > most:
            room = most * (gpus // service.gpus_per_replica)
            says = f"{service.max_replicas} replicas need {needed} nodes, and {most} have room for {room}: the others "
            fix = f"set service.maxReplicas to {room}, or raise ray.maxWorkers and nodes.max"
            yield Found(f"{says}would wait forever.", fix)

    @rule("nodes.max", "service.minReplicas", "service.gpusPerReplica", source=UPGRADE)
    def upgrade_has_no_room(self) -> Finding:
        service, gpus = self.service, CATALOG[self.nodes.machine].gpus
        needed = 2 * _nodes(self, max(1, service.min_replicas))
        if self.ray.mode == "service" and service.gpus_per_replica <= gpus and needed > self.nodes.max:
            says = "An upgrade starts a second cluster, and ends the first when the second serves. With "
            says += f"{self.nodes.max} nodes there is no room for both: it would wait forever."
            fix = f"raise nodes.max to {needed} (the second half costs money during an upgrade only)"
            yield Found(says, fix + (", or lower service.minReplicas" if service.min_replicas > 1 else ""))

    @rule("nodes.max", "service.maxReplicas", "service.minReplicas", source=UPGRADE, warning=True)
    def upgrade_waits_under_load(self) -> Finding:
        service = self.service
        first, second = (_nodes(self, each) for each in (service.max_replicas, max(1, service.min_replicas)))
        if self.ray.mode == "service" and 2 * second <= self.nodes.max < first + second:
            says = f"While {first} nodes have replicas, an upgrade, which needs {second} more, waits for fewer "
            yield Found(f"{says}requests.", f"raise nodes.max to {first + second}, or upgrade at a quiet time")

    @rule("queue", "ray.mode", source=SERVICE_IN_QUEUE)
    def service_in_a_queue(self) -> Finding:
        if self.ray.mode == "service" and self.queue == "kueue":
            says = (
                "Kueue admits a service of a fixed size only, and not the second cluster of an upgrade: replicas could "
            )
            yield Found(f"{says}not scale, and an upgrade would end the service.", "set queue to none")

    @rule("nodes.maxHours", "ray.mode", source=CONTRACT)
    def service_with_an_end(self) -> Finding:
        if self.ray.mode == "service" and self.nodes.max_hours:
            says = f"A service has no end: after {self.nodes.max_hours} hours all requests would fail."
            yield Found(says, "remove nodes.maxHours, and set service.minReplicas to 0 to pay for use only")


def _nodes(settings: ServiceRules, replicas: int) -> int:
    """Return the nodes that so many replicas need: none is on two nodes."""
    per_node = CATALOG[settings.nodes.machine].gpus // settings.service.gpus_per_replica
    return -(-replicas // max(1, per_node))
