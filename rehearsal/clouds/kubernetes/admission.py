"""Kueue's admission of a workload: its pod sets, the flavor of each, and the reasons for an endless wait.

Simulates Kueue's scheduler with an empty queue and without a cohort: quotas are unused, and there is no preemption.
Source: kubernetes-sigs/kueue: pkg/scheduler/flavorassigner and pkg/controller/jobs, 0.19.2, ff69552e, 2026-08-22.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.kubernetes.quantities import amount

TOPOLOGY_WISHES = tuple(f"kueue.x-k8s.io/podset-{wish}-topology" for wish in ("required", "preferred"))


@dataclass(frozen=True)
class PodSet:
    """Set of identical pods. `path` is that of their template in the object ("spec.workerGroupSpecs.0.template")."""

    name: str
    count: int
    path: str
    template: Json

    @property
    def annotations(self) -> Json:
        """The pods' annotations."""
        annotations: Json = value_at(self.template, "metadata.annotations") or {}
        return annotations

    @property
    def spec(self) -> Json:
        """The pods' spec."""
        spec: Json = self.template.get("spec") or {}
        return spec

    def asks(self) -> dict[str, Decimal]:
        """Return the requests of one pod by resource; a limit counts as a request where there is none.

        Init containers run one at a time before the rest; restartable ones keep running.
        """
        total: dict[str, Decimal] = defaultdict(Decimal)
        sidecars: dict[str, Decimal] = defaultdict(Decimal)
        first: dict[str, Decimal] = defaultdict(Decimal)
        for container in self.spec.get("initContainers") or ():
            for resource, quantity in _requests(container).items():
                first[resource] = max(first[resource], sidecars[resource] + quantity)
                if container.get("restartPolicy") == "Always":
                    sidecars[resource] += quantity
        for container in self.spec.get("containers") or ():
            for resource, quantity in _requests(container).items():
                total[resource] += quantity
        for resource in first:
            total[resource] = max(total[resource] + sidecars[resource], first[resource])
        return dict(total)


def pod_sets(kind: str, inputs: Mapping[str, Any]) -> list[PodSet]:
    """Return the pod sets of a Job, RayCluster or RayJob, in Kueue's order; none of any other kind."""
    spec: Json = inputs.get("spec") or {}
    if kind == "Job":
        count = spec.get("parallelism", 1)
        return [
            PodSet("main", min(count, spec.get("completions") or count), "spec.template", spec.get("template") or {})
        ]
    if kind == "RayCluster":
        return list(_of_cluster(spec, "spec"))
    if kind != "RayJob":
        return []
    found = list(_of_cluster(spec.get("rayClusterSpec") or {}, "spec.rayClusterSpec"))
    if spec.get("submissionMode", "K8sJobMode") == "K8sJobMode":
        own = spec.get("submitterPodTemplate") or {"spec": {"containers": [_SUBMITTER]}}
        found.append(PodSet("submitter", 1, "spec.submitterPodTemplate", own))
    return found


@dataclass(frozen=True)
class Queue:
    """ClusterQueue spec, the specs of the ResourceFlavors by name, and the levels of the Topologies by name."""

    spec: Json
    flavors: Mapping[str, Json]
    levels: Mapping[str, Sequence[str]]


def assign(sets: Sequence[PodSet], queue: Queue) -> tuple[list[str], list[str]]:
    """Return the flavor of each pod set ("" if it requests nothing covered), and why it waits, in Kueue's words.

    Each pod set gets all resources of a group from the first flavor that fits.
    """
    used: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    chosen: list[str] = []
    why: list[str] = []
    covered = [group.get("coveredResources") or [] for group in queue.spec.get("resourceGroups") or ()]
    for one in sets:
        asks = {resource: one.count * each for resource, each in one.asks().items() if each}
        flavor = ""
        for resource in sorted(asks.keys() - {resource for group in covered for resource in group}):
            why.append(f"{one.name}: resource {resource} unavailable in ClusterQueue")
        for group in queue.spec.get("resourceGroups") or ():
            wanted = {resource: asks[resource] for resource in group.get("coveredResources") or () if resource in asks}
            if not wanted:
                continue
            against: list[str] = []
            for quotas in group.get("flavors") or ():
                wrong = list(_against(one, wanted, quotas, queue, used))
                if not wrong:
                    flavor = str(quotas["name"])
                    break
                against += wrong
            else:
                why.append(f"{one.name}: {'; '.join(against)}")
                continue
            for resource, quantity in wanted.items():
                used[flavor, resource] += quantity
        chosen.append(flavor)
    return chosen, why


def _against(
    one: PodSet, wanted: Mapping[str, Decimal], quotas: Json, queue: Queue, used: Mapping[tuple[str, str], Decimal]
) -> Iterator[str]:
    name = str(quotas.get("name"))
    flavor = queue.flavors.get(name)
    if flavor is None:
        yield f"flavor {name} not found"
        return
    yield from _topology_against(one, name, flavor, queue)
    tolerations = [*(one.spec.get("tolerations") or ()), *(flavor.get("tolerations") or ())]
    for taint in flavor.get("nodeTaints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(
            _tolerates(each, taint) for each in tolerations
        ):
            yield f"untolerated taint {taint.get('key')} in flavor {name}"
    selector: Json = one.spec.get("nodeSelector") or {}
    if any(selector.get(key, value) != value for key, value in (flavor.get("nodeLabels") or {}).items()):
        yield f"flavor {name} doesn't match node affinity"
    nominal = {quota.get("name"): quota.get("nominalQuota") for quota in quotas.get("resources") or ()}
    for resource, quantity in wanted.items():
        before = used.get((name, resource), Decimal(0))
        most = amount(nominal.get(resource) or 0)
        if before + quantity > most:
            yield (
                f"insufficient quota for {resource} in flavor {name}, previously considered podsets requests "
                f"({before}) + current podset request ({quantity}) > maximum capacity ({most})"
            )


def _topology_against(one: PodSet, name: str, flavor: Json, queue: Queue) -> Iterator[str]:
    """Return why a flavor does not fit: a topology request needs a flavor with a topology, and vice versa."""
    wishes = [one.annotations[key] for key in TOPOLOGY_WISHES if key in one.annotations]
    topology = flavor.get("topologyName")
    if not wishes and topology and any(not each.get("topologyName") for each in queue.flavors.values()):
        yield f'Flavor "{name}" supports only TopologyAwareScheduling'
    if wishes and not topology:
        yield f'Flavor "{name}" does not support TopologyAwareScheduling'
    elif wishes and wishes[0] not in queue.levels.get(str(topology), ()):
        yield f'Flavor "{name}" does not contain the requested level'


def _tolerates(toleration: Json, taint: Json) -> bool:
    """Kubernetes: pkg/apis/core/v1/helper, ToleratesTaint."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def _requests(container: Json) -> dict[str, Decimal]:
    resources: Json = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: amount(quantity) for resource, quantity in named.items()}


def _of_cluster(spec: Json, path: str) -> Iterator[PodSet]:
    head = value_at(spec, "headGroupSpec.template") or {}
    if spec.get("enableInTreeAutoscaling"):
        # KubeRay adds it to the pod, not to the template; Kueue counts it (0.19).
        own = value_at(spec, "autoscalerOptions.resources") or _AUTOSCALER
        containers = [*(value_at(head, "spec.containers") or ()), {"name": "autoscaler", "resources": own}]
        head = {**head, "spec": {**(head.get("spec") or {}), "containers": containers}}
    yield PodSet("head", 1, f"{path}.headGroupSpec.template", head)
    for index, group in enumerate(spec.get("workerGroupSpecs") or ()):
        # A group without a number of workers gets 0 by the CRD's default; Kueue counts that.
        count = group.get("replicas", 0) * max(1, group.get("numOfHosts", 1))
        where = f"{path}.workerGroupSpecs.{index}.template"
        yield PodSet(str(group.get("groupName")), count, where, group.get("template") or {})


_AUTOSCALER = {"requests": {"cpu": "500m", "memory": "512Mi"}}
_SUBMITTER = {"name": "ray-job-submitter", "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}
