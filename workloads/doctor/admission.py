"""Check of the queue: why Kueue does not admit the stack's workload, or has ended it, with the cause first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from infra.catalog.names import ENDED
from workloads.client.head import UNMET, USUAL
from workloads.doctor.check import Problem, check
from workloads.doctor.objects import condition, is_true, name_of
from workloads.doctor.pods import PENDING_S, WAITING_S, explained
from workloads.doctor.state import State
from workloads.doctor.workload import queued, workload_of

Json = dict[str, Any]
CAUSES_FIRST = ("DeactivationTarget", "Preempted", "Evicted")
"""Conditions, the one closest to the cause first: Preempted names the preempting workload, Evicted does not."""
PROVISIONED = ("Accepted", "Provisioned")
"""Conditions of a ProvisioningRequest that are true as it progresses (kubernetes/autoscaler: provisioningrequest/
autoscaling.x-k8s.io/v1/types.go). BookingExpired matters until the workload is admitted (kueue 0.19.2:
pkg/controller/admissionchecks/provisioning/controller.go)."""
KEEP = (
    "the workload starts its entry point again, from step 0 unless that resumes from a checkpoint: check the last"
    " checkpoint and --resume first"
)
REVOKED = (
    "GKE takes queued nodes back after nodes.maxRunHours, whatever runs, and Kueue then deactivates the workload"
    " (docs/queues.md). Raise nodes.maxRunHours (at most 168), or keep it and resume"
)
WAYS = (
    (r"CapacityRevoked|[Cc]apacity.{1,40}revoked|max(?:imum)? ?run ?(?:duration|time)|no longer valid", REVOKED),
    (
        r"re-?queu|RequeuingLimit",
        "first fix what kept its pods from being ready (see the findings about pods and nodes), or wait for machines",
    ),
    (
        r"MaximumExecutionTime|maximum execution time",
        "it reached its time limit: raise the limit if the work is not done",
    ),
    (
        r"AdmissionCheck|[Aa]dmission [Cc]heck",
        "an admission check rejected it: fix what its message names",
    ),
    (r"PodsReadyTimeout", "its pods were not ready in time: the findings about pods and nodes say why"),
    (r"Preempt", "a workload of higher priority, or with a right to the quota, needs it"),
    (r"NodeFailures", "one of its nodes failed, and its topology has no replacement"),
    (r"QueueStopped|OnHold", "an administrator has stopped the queue with spec.stopPolicy"),
)
"""Next step for a reason or message. Too many re-queues also follow a lack of machines: kueue#15255."""


@check(
    "queue",
    "workloads",
    "cluster queues",
    "local queues",
    cure="kubectl get clusterqueue,workload -A -o wide (docs/queues.md)",
)
def admitted(state: State) -> Iterator[Problem]:
    """The queue does not admit the workload, has evicted or deactivated it, or the cloud refuses or revokes nodes."""
    inactive = [
        (f"{body['kind']} {name_of(body)}", active)
        for body in (*state.objects("cluster queues"), *state.objects("local queues"))
        if (active := condition(body, "Active")).get("status") in ("False", "Unknown")
    ]
    for where, active in inactive:
        yield Problem(where, "the queue is inactive", _said(active))
    body = queued(state)
    refused = list(_refused(state, body))
    yield from refused
    if body is None or is_true(body, "Finished"):
        yield from _finished(state, body)
        return
    stops = _stops(body)
    if body["spec"].get("active") is False or condition(body, "DeactivationTarget").get("status") == "True":
        yield _deactivated(state, body, stops)
    elif stops:
        yield _stopped(state, body, stops)
    elif is_true(body, "Admitted"):
        yield from _unready(state, body)
    elif not inactive:
        yield from _waiting(state, body, bool(refused))


def _where(state: State, body: Json) -> str:
    return f"Workload {name_of(body)} of {state.outputs.ray.cluster}"


def _said(found: Json) -> str:
    return f"{found.get('reason')}: {found.get('message')}"


def _conditions(body: Json) -> list[Json]:
    return [each for each in (body.get("status") or {}).get("conditions") or [] if isinstance(each, dict)]


def _refused(state: State, body: Json | None) -> Iterator[Problem]:
    """Yield what ended the cloud's provisioning of queued nodes."""
    for request in state.objects("provisioning requests"):
        for each in _conditions(request):
            type_, over = str(each.get("type")), body is not None and is_true(body, "Finished")
            late = type_ == "BookingExpired" and body is not None and is_true(body, "Admitted")
            if each.get("status") != "True" or type_ in PROVISIONED or late or (over and type_ != "Failed"):
                continue
            where, text = f"ProvisioningRequest {name_of(request)}", f"{type_}: {_said(each)}"
            cause = explained([text]) if type_ == "Failed" else None
            if type_ == "CapacityRevoked":
                yield Problem(where, "the cloud has taken the queued nodes back", text, f"{REVOKED}. {KEEP}")
            elif type_ == "BookingExpired":
                cure = "wait: Kueue asks again, at most half an hour apart (docs/queues.md)"
                yield Problem(where, "its nodes arrived, but were not used in time", text, cure, "warning")
            else:
                why = cause.text if cause else "the cloud refuses the queued nodes"
                yield Problem(where, why, text, cause.cure if cause else None)


def _stops(body: Json) -> list[Json]:
    """Return the conditions that stopped a workload, and its admission checks that are not met, the cause first."""
    stops = [each for each in _conditions(body) if each.get("type") not in USUAL and each.get("status") == "True"]
    order = {name: number for number, name in enumerate(CAUSES_FIRST)}
    stops.sort(key=lambda each: order.get(str(each.get("type")), len(order)))
    checks = (body.get("status") or {}).get("admissionChecks") or []
    rejected = [
        {"type": f"check {each.get('name')}", "reason": each.get("state"), "message": each.get("message")}
        for each in checks
        if each.get("state") in UNMET
    ]
    return [*(each for each in rejected if each.get("message")), *stops]


def _all_texts(body: Json, stops: list[Json]) -> str:
    """Return all that a workload says, its stops first."""
    rest = [each for each in _conditions(body) if each not in stops and each.get("status") != "True"]
    texts = [f"{each.get('type')} {_said(each)}" for each in (*stops, *rest)]
    nodes = [str(each.get("name")) for each in (body.get("status") or {}).get("unhealthyNodes") or []]
    texts += [f"unhealthy nodes: {', '.join(nodes)}"] if nodes else []
    return "; ".join(dict.fromkeys(texts))


def _way(stops: list[Json]) -> str:
    text = "; ".join(_said(each) for each in stops)
    return next((way for pattern, way in WAYS if re.search(pattern, text)), "fix what the messages name")


def _cause(stops: list[Json], fallback: str) -> str:
    """Return the most telling message: that of a check or target before "The workload is deactivated"."""
    messages = [str(each.get("message") or "") for each in stops]
    telling = [each for each in messages if each and each.rstrip(".") != "The workload is deactivated"]
    reasons = [str(each.get("reason")) for each in stops if each.get("reason") not in (None, "Deactivated")]
    return next(iter([*telling, *reasons]), fallback)


def _deactivated(state: State, body: Json, stops: list[Json]) -> Problem:
    text = _all_texts(body, stops)
    revoked = any(is_true(each, "CapacityRevoked") for each in state.objects("provisioning requests"))
    ended = ((workload_of(state) or {}).get("metadata", {}).get("annotations") or {}).get(ENDED)
    unknown = "nothing says why, so a user set spec.active"
    cause = _cause(stops, str(ended or unknown))
    way = REVOKED if revoked else "ask who ended it" if cause == unknown else _way(stops)
    way = "raise nodes.maxHours if its work is not done (docs/bills.md)" if cause == ended else way
    activate = f'kubectl -n ray patch workload {name_of(body)} --type merge -p \'{{"spec":{{"active":true}}}}\''
    cure = f"{way}. Activated, {KEEP}; then {activate}"
    return Problem(_where(state, body), f"it is deactivated: {cause}", text, cure)


def _stopped(state: State, body: Json, stops: list[Json]) -> Problem:
    text, cause = _all_texts(body, stops), _cause(stops, "without a message")
    checks_only = all(str(each.get("type")).startswith("check ") for each in stops)
    evicted = any(each.get("type") in CAUSES_FIRST for each in stops)
    what = "it was evicted" if evicted else "an admission check is not met" if checks_only else "it is held back"
    cure = f"{_way(stops)}. Kueue queues it again by itself; {KEEP}"
    return Problem(_where(state, body), f"{what}: {cause}", text, cure, "warning" if checks_only else "error")


def _finished(state: State, body: Json | None) -> Iterator[Problem]:
    finished = condition(body, "Finished") if body is not None else {}
    if body is not None and finished.get("reason") in ("Failed", "OutOfSync", "OwnerNotFound"):
        cure = f"rdma-ray inspect keeps the logs; a new one: {KEEP}"
        yield Problem(_where(state, body), "it finished without success", _said(finished), cure)


def _unready(state: State, body: Json) -> Iterator[Problem]:
    ready = condition(body, "PodsReady")
    waits = ready.get("status") == "False" and state.age(ready.get("lastTransitionTime")) > WAITING_S
    nodes = (body.get("status") or {}).get("unhealthyNodes") or []
    if waits or nodes:
        cure = "the findings about pods and nodes say why; Kueue evicts it when the wait is over (docs/queues.md)"
        text = _all_texts(body, [ready] if waits else [])
        yield Problem(_where(state, body), "it is admitted, but not all of its pods are ready", text, cure, "warning")


def _waiting(state: State, body: Json, refused: bool) -> Iterator[Problem]:
    where, reserved = _where(state, body), condition(body, "QuotaReserved")
    age, text = state.age(body["metadata"].get("creationTimestamp")), _said(reserved)
    if reserved.get("status") != "True" and re.search(
        r"ExceedsMaxQuota|maximum capacity|NoMatchingFlavor|Misconfigured", text
    ):
        cure = "raise nodes.max, or ask for fewer nodes: the quota is that of nodes.max"
        yield Problem(where, "the queue can never admit it", text, cure)
    elif reserved.get("status") != "True" and re.search(r"Inadmissible|doesn't exist|is (?:inactive|stopped)", text):
        yield Problem(where, "its queue is missing or stopped", text, "make up: it creates the queues again")
    elif reserved.get("status") != "True" and age > PENDING_S and "Topology" in text:
        cure = "wait until nodes of one domain are free, or ask for fewer nodes (docs/queues.md)"
        yield Problem(where, "no domain of its topology has all its nodes free", text, cure, "warning")
    elif reserved.get("status") != "True" and age > PENDING_S:
        cure = "wait for the workloads ahead of it: kubectl -n ray get workloads"
        yield Problem(where, f"has waited {age / 60:.0f} min in the queue", text, cure, "warning")
    elif age > WAITING_S and not refused:
        checks = (body.get("status") or {}).get("admissionChecks") or []
        text = "; ".join(f"{each.get('name')} {each.get('state')}: {each.get('message')}" for each in checks)
        cure = "wait: the cloud provisions the nodes of queued requests when it has all of them"
        yield Problem(where, f"has waited {age / 60:.0f} min for its nodes", text, cure, "warning")
