"""Queued flex-start (DWS): a ProvisioningRequest waits, and then gets all of its nodes at once.

Replaces GKE's queued provisioning: states, reasons and messages of k8s.io/gke-autoscaling
(cluster-autoscaler/pkg/provisioningrequests, Google 2026, read 2026-11-21), the order of events of GKE docs
provisioningrequest, 2026-04-08, and the refusal of several PodSets as in ray-project/ray #57839, 2025-10-17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rehearsal.cluster.controllers.autoscaler import Autoscaler
from rehearsal.cluster.controllers.devices import expected
from rehearsal.cluster.controllers.nodes import pool_of, template
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.snapshot import Context, Snapshot, condition, new_condition
from rehearsal.engine.kind import Json, value_at
from rehearsal.engine.values import digest

API = "autoscaling.x-k8s.io/v1"
KIND = "ProvisioningRequest"
CLASS = "queued-provisioning.gke.io"
LABEL = "autoscaling.gke.io/provisioning-request"
"""Label of a node: the resize request that created it (GoogleCloudPlatform/cluster-autoscaler: autoprovisioning/
injection.go, 7d25050, 2026-08-21; the webhook that selects it for pods is not public and is not played)."""
WAITS = "Waiting for resources. Currently there are not enough resources available to fulfill the request."
INDEFINITE = " Expected time is indefinite."
_BEGIN = (
    ("Accepted", "NotAccepted", "Provisioning Request wasn't accepted."),
    ("Provisioned", "NotProvisioned", "Provisioning Request wasn't provisioned."),
    ("Failed", "NotFailed", "Provisioning Request hasn't failed."),
)
_TOLERATION = {"key": "cloud.google.com/gke-queued", "operator": "Exists"}
_EXPIRED = (
    "Capacity booking for the Provisioning Request has expired and the nodes are now candidates for scale down when "
    "underutilized."
)


@dataclass
class Turn:
    """Queued request: `nodes` machines of `pool`, since `since`; `expires` is set once it has them."""

    pool: Pool
    nodes: int
    since: float
    expires: float | None = None


class Provisioning:
    """Moves the requests of the class through their states."""

    def __init__(self, context: Context, autoscaler: Autoscaler) -> None:
        self._context = context
        self._autoscaler = autoscaler
        self._turns: dict[str, Turn] = {}

    def reconcile(self, snapshot: Snapshot) -> None:
        """Check every open request."""
        if snapshot.cluster is None or snapshot.cluster.cloud != "gke":
            self._turns.clear()
            return
        requests = [each for each in snapshot.custom(KIND, API) if each["spec"].get("provisioningClassName") == CLASS]
        there = {each["metadata"]["uid"] for each in requests}
        self._turns = {uid: turn for uid, turn in self._turns.items() if uid in there}
        for body in requests:
            if not value_at(body, "status.conditions"):
                self._write(body, [new_condition(type_, "False", reason, words) for type_, reason, words in _BEGIN])
            elif condition(body, "Failed") == "True" or condition(body, "BookingExpired") == "True":
                continue
            elif condition(body, "Provisioned") == "True":
                self._booked(snapshot, body)
            elif condition(body, "Accepted") == "True":
                self._queued(snapshot, body)
            else:
                self._judge(snapshot, body)

    def _judge(self, snapshot: Snapshot, body: Json) -> None:
        pod_set = body["spec"]["podSets"][0]
        its = self._context.api.get(
            "v1", "PodTemplate", pod_set["podTemplateRef"]["name"], body["metadata"]["namespace"]
        )
        if its is None:
            return
        pools = [pool for pool in snapshot.pools if pool.queued]
        room = {pool.name: pool.most - max(pool.wanted, self._taken(snapshot, pool)) for pool in pools}
        devices = {pool.name: expected(pool, snapshot.networks) for pool in pools}
        choice = choose(its["template"], int(pod_set["count"]), pools, room, devices)
        if isinstance(choice, tuple):
            reason, words = choice
            self._write(body, [new_condition("Failed", "True", reason, words)])
            self._report(body, "Failed", None, words)
            return
        details = {
            "NodePoolName": choice.pool.name,
            "ResizeRequestName": f"gke-{body['metadata']['name'][:40]}-{digest(body['metadata']['uid'], 6)}",
        }
        words = "Provisioning Request was successfully queued."
        accepted = new_condition("Accepted", "True", "SuccessfullyQueued", words)
        waits = new_condition("Provisioned", "False", "ResourcePoolExhausted", WAITS)
        self._write(body, [accepted, waits], details)
        self._report(body, "Accepted", choice, words)
        # The wait starts when the acceptance is written, which on a busy machine is long after the round's start.
        self._turns[body["metadata"]["uid"]] = Turn(choice.pool, choice.nodes, self._context.now())

    def _queued(self, snapshot: Snapshot, body: Json) -> None:
        turn = self._turns.get(body["metadata"]["uid"])
        if turn is None or snapshot.now - turn.since < self._context.delays.queue:
            return
        pool = next((pool for pool in snapshot.pools if pool.key == turn.pool.key), None)
        if pool is None or not self._autoscaler.has(pool, turn.nodes):
            # It stays in the queue until its owner deletes it (kubernetes/autoscaler #9490).
            if WAITS + INDEFINITE not in [each["message"] for each in body["status"]["conditions"]]:
                self._write(body, [new_condition("Provisioned", "False", "ResourcePoolExhausted", WAITS + INDEFINITE)])
            return
        names = self._autoscaler.deliver(snapshot, pool, turn.nodes, snapshot.now - turn.since)
        for name in names:
            label = {LABEL: body["status"]["provisioningClassDetails"]["ResizeRequestName"]}
            self._context.api.patch("v1", "Node", name, None, {"metadata": {"labels": label}})
        turn.expires = snapshot.now + self._context.delays.booking
        self._autoscaler.booked |= dict.fromkeys(names, turn.expires)
        words = "Provisioning Request was successfully provisioned."
        self._write(body, [new_condition("Provisioned", "True", "Provisioned", words)])
        self._report(body, "Provisioned", turn, words)

    def _booked(self, snapshot: Snapshot, body: Json) -> None:
        turn = self._turns.get(body["metadata"]["uid"])
        if turn is None or turn.expires is None or turn.expires > snapshot.now:
            return
        self._write(body, [new_condition("BookingExpired", "True", "BookingExpired", _EXPIRED)])
        self._report(body, "BookingExpired", turn, _EXPIRED)

    def _taken(self, snapshot: Snapshot, pool: Pool) -> int:
        """Return the nodes of the pool, including those that other queued requests will get."""
        announced = sum(
            turn.nodes for turn in self._turns.values() if turn.pool.key == pool.key and turn.expires is None
        )
        return announced + sum(pool_of(its) == pool.name for its in snapshot.nodes)

    def _write(self, body: Json, changed: Sequence[Json], details: Mapping[str, str] | None = None) -> None:
        metadata = body["metadata"]
        known = {each["type"]: each for each in value_at(body, "status.conditions") or ()}
        known |= {each["type"]: {**each, "observedGeneration": metadata["generation"]} for each in changed}
        status: Json = {"conditions": list(known.values())}
        if details:
            status["provisioningClassDetails"] = dict(details)
        place = (API, KIND, metadata["name"], metadata["namespace"])
        self._context.api.patch(*place, {"status": status}, subresource="status")

    def _report(self, body: Json, what: str, turn: Turn | None, words: str) -> None:
        name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        pool, nodes = (turn.pool.name, turn.nodes) if turn else ("", 0)
        self._context.report("RequestChanged", request=name, condition=what, pool=pool, nodes=nodes, message=words)


def choose(
    pod: Json, count: int, pools: Sequence[Pool], room: Mapping[str, int], devices: Mapping[str, Mapping[str, int]]
) -> Turn | tuple[str, str]:
    """Return the queued pool with nodes for all `count` pods, or (reason, message) if there is none. Pure."""
    full, errors = [], []
    spec = pod["spec"]
    # The admission of the pods adds the same toleration.
    pod = {**pod, "spec": {**spec, "tolerations": [*(spec.get("tolerations") or ()), _TOLERATION]}}
    for pool in pools:
        place, nodes = template(pool, pool.name, devices[pool.name]), 1
        # The autoscaler resolves the claims of pods, and those of a request do not exist (kubernetes/autoscaler:
        # simulator/dynamicresources/snapshot, findPodClaims, 1073b25).
        why = "cannot allocate all claims" if spec.get("resourceClaims") else place.why_not(pod)
        if why is not None:
            errors.append(f"{pool.name} ({why})")
            continue
        for _ in range(count):
            if place.why_not(pod) is not None:
                place, nodes = template(pool, pool.name, devices[pool.name]), nodes + 1
            place.take(pod)
        if nodes <= room[pool.name]:
            return Turn(pool, nodes, 0.0)
        full.append(pool.name)
    if full:
        return "NodepoolSizeReached", f"Max nodepool size reached, affected nodepools: {', '.join(full)}"
    if errors:
        words = "Provisioning Request's pods cannot be scheduled in the nodepool. Predicate checking errors: "
        return "ProvisioningRequestNotSchedulableInNodepool", words + ", ".join(errors)
    return "NoQueuedNodepoolAvailable", "No nodepool with QueuedProvisioning enabled is available for scale up"
