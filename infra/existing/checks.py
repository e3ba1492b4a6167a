"""Checks of a cluster that the user has, before anything is made in it: every problem at once, each with its fix.

They only read, ask for rights, and create as a dry run what the stack would create. An answer that the user has no
right to get is no problem: the dry runs show what matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from infra.catalog.names import GPU
from infra.catalog.pins import KUBERAY, RAY_API
from infra.existing.kubectl import Json, Kubectl, RefusedError
from infra.kubernetes.pods import KUBERAY_LABELS, RayArgs
from infra.kubernetes.workload_objects import every_object
from infra.settings import KubernetesSettings, Problem
from infra.settings.common import pairs
from infra.settings.problems import shown
from infra.terminal import printable

OWNER = "rdma-ray/stack"
"""Label of every object that a stack makes in a user's cluster: the stack."""
OLDEST_KUBERAY = (1, 6)
"""KubeRay's minor release from which tokens, the autoscaler's settings and the fields of workers are tested here."""
OLDEST_FOR_JOBS = (1, 33)
"""Kubernetes with the success policy of a Job (KEP-3998, stable in 1.33)."""
PARALLEL = 8
ASK = "ask an administrator of the cluster"
SOURCE = "the API server of the cluster"
QUEUE_APIS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")

_FORBIDDEN = ("Forbidden", "Unauthorized")
_USED = (("get", "", "pods"), ("list", "", "pods"), ("get", "", "pods/log"), ("create", "", "pods/portforward"))
"""Rights (verb, group, resource) that the commands of `rdma-ray` need besides the stack's."""


class Found:
    """What the checks have in common: the cluster, the stack's settings and objects."""

    def __init__(self, cluster: Kubectl, args: RayArgs, settings: KubernetesSettings, stack: str) -> None:
        self.cluster, self.args, self.settings, self.stack = cluster, args, settings, stack
        self.namespace = settings.namespace

    def problem(self, message: str, fix: str, *paths: str, source: str = SOURCE) -> Problem:
        """Return a problem with settings, by their paths."""
        values = {
            "context": self.settings.context,
            "namespace": self.namespace,
            "localQueue": self.settings.local_queue,
            "storage.claim": self.settings.storage.claim,
            "installKuberay": self.settings.install_kuberay,
        }
        known = tuple(shown(values[path]) if path in values else "" for path in paths)
        return Problem(settings=paths, values=known, message=printable(message), fix=fix, source=source)

    def maybe(self, path: str) -> Json | None:
        """Return the answer to a GET; None if the user may not ask. Raises RefusedError, such as NotFound."""
        try:
            return self.cluster.read(path)
        except RefusedError as error:
            if error.reason in _FORBIDDEN:
                return None
            raise


def problems(cluster: Kubectl, args: RayArgs, settings: KubernetesSettings, stack: str) -> list[Problem]:
    """Return every reason for which `up` would fail or harm something in this cluster.

    Args:
        args: Arguments of the stack's workload.
        stack: The stack, as its objects are marked (`OWNER`).
    """
    found = Found(cluster, args, settings, stack)
    try:
        version = cluster.read("/version")
    except RefusedError as error:
        fix = "`kubectl config get-contexts` lists contexts; sign in again if your credentials have expired"
        fix = "install kubectl" if error.reason == "NoKubectl" else fix
        return [found.problem(f"The cluster does not answer: {error}.", fix, "context")]
    first = [*_namespace(found)]
    if first:
        # Every other answer would be about this.
        return first
    checks: list[Callable[[Found], Iterator[Problem]]] = [_kuberay, _queue, _named, _nodes, _rights]
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = [*pool.map(lambda check: [*_answered(found, check)], checks)]
        missing = any(results[:1])
        objects = [each for each in every_object(args) if not (missing and each["apiVersion"] == RAY_API)]
        tried = [*pool.map(lambda body: [*_answered(found, lambda _: _dry_run(found, body))], [*objects, *pods(args)])]
    every = [*_version(found, version), *(each for result in (*results, *tried) for each in result)]
    return [*{str(each): each for each in every}.values()]


def _answered(found: Found, check: Callable[[Found], Iterator[Problem]]) -> Iterator[Problem]:
    """Yield what a check finds; an answer that it does not expect is a problem, too."""
    try:
        yield from check(found)
    except RefusedError as error:
        yield found.problem(f"The cluster did not answer a question: {error}.", ASK, "context")


def _version(found: Found, version: Mapping[str, Any]) -> Iterator[Problem]:
    minor = tuple(int(re.sub(r"\D", "", str(version.get(part))) or 0) for part in ("major", "minor"))
    row = found.settings.fabric_row
    wanted = [(tuple(map(int, row.min_version.split(".")[:2])), f"fabric {row.name}", "fabric")]
    if found.settings.ray.mode == "indexed-job":
        wanted.append((OLDEST_FOR_JOBS, "ray.mode indexed-job", "ray.mode"))
    for oldest, what, path in wanted:
        if minor < oldest:
            need, have = (".".join(map(str, each)) for each in (oldest, minor))
            fix = f"choose another {path.rpartition('.')[2]}, or upgrade the cluster"
            yield found.problem(f"Kubernetes is {have}, but {what} needs {need} or later.", fix, path)


def _namespace(found: Found) -> Iterator[Problem]:
    try:
        body = found.maybe(f"/api/v1/namespaces/{found.namespace}")
    except RefusedError as error:
        if error.reason != "NotFound":
            raise
        fix = f"kubectl create namespace {found.namespace}, or {ASK} for one"
        yield found.problem("The cluster has no such namespace.", fix, "namespace", "context")
        return
    if body is not None and (body.get("status") or {}).get("phase") == "Terminating":
        yield found.problem("The namespace is being deleted.", "wait, or choose another", "namespace")


def _kuberay(found: Found) -> Iterator[Problem]:
    settings = found.settings
    if settings.ray.mode == "indexed-job":
        return
    label = ",".join(f"{key}%3D{value}" for key, value in KUBERAY_LABELS.items())
    answer = found.maybe(f"/apis/apps/v1/deployments?labelSelector={label}")
    every = [each for each in (answer or {}).get("items") or [] if isinstance(each, dict)]
    there = [each for each in every if _watches(each, found.namespace)]
    if settings.install_kuberay:
        for each in there:
            if (each["metadata"].get("labels") or {}).get(OWNER) == found.stack:
                continue
            where = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            yield found.problem(
                f"KubeRay is there, in the Deployment {where}, and two operators would work on the same clusters.",
                "set installKuberay to false",
                "installKuberay",
            )
        return
    try:
        found.cluster.read(f"/apis/{RAY_API}")
    except RefusedError as error:
        if error.reason != "NotFound":
            raise
        yield found.problem(
            f"The cluster has no KubeRay: it does not serve {RAY_API}.",
            f"set installKuberay to true if you are an administrator, else {ASK} to install KubeRay {KUBERAY.version}, "
            "or set ray.mode to indexed-job",
            "installKuberay",
            "context",
        )
        return
    if every and not there:
        places = ", ".join(sorted({str(each["metadata"].get("namespace")) for each in every}))
        yield found.problem(
            f"KubeRay is there, in {places}, and watches other namespaces than {found.namespace}.",
            f"{ASK} to let it watch this one, or set installKuberay to true",
            "namespace",
            "installKuberay",
        )
    for each in there:
        tag = re.search(r":v?(\d+)\.(\d+)", str(each["spec"]["template"]["spec"]["containers"][0]["image"]))
        if tag and (int(tag[1]), int(tag[2])) < OLDEST_KUBERAY:
            oldest = ".".join(map(str, OLDEST_KUBERAY))
            yield found.problem(
                f"KubeRay is {tag[1]}.{tag[2]}, but the stack needs {oldest} or later: an older one ignores fields "
                "such as the one that requires a token.",
                f"{ASK} to upgrade KubeRay to {KUBERAY.version}",
                "context",
                source="ray-project/kuberay: release notes of 1.6; this project's tests run 1.6.2",
            )


def _watches(operator: Json, namespace: str) -> bool:
    """Return whether an operator's Deployment watches a namespace: without the argument, it watches all."""
    arguments = [str(each) for each in operator["spec"]["template"]["spec"]["containers"][0].get("args") or []]
    named = next((after for each, after in pairwise(arguments) if each == "--watch-namespace"), "")
    return not named or namespace in named.split(",")


def _queue(found: Found) -> Iterator[Problem]:
    name = found.settings.local_queue
    if found.settings.queue == "none" or name is None:
        return
    for api in QUEUE_APIS:
        queues = f"/apis/{api}/namespaces/{found.namespace}/localqueues"
        try:
            found.cluster.read(f"/apis/{api}")
            queue = found.maybe(f"{queues}/{name}")
        except RefusedError as error:
            if error.reason != "NotFound":
                raise
            continue
        for each in ((queue or {}).get("status") or {}).get("conditions") or []:
            if each.get("type") == "Active" and each.get("status") == "False":
                said = each.get("message")
                yield found.problem(f"The LocalQueue admits nothing: {said}.", f"{ASK} to repair it", "localQueue")
        return
    yield found.problem(
        f"Namespace {found.namespace} has no LocalQueue {name}, or the cluster has no Kueue.",
        f"kubectl -n {found.namespace} get localqueues shows those that are there; set queue to none without Kueue",
        "localQueue",
        "namespace",
    )


def _named(found: Found) -> Iterator[Problem]:
    """Find what the pods name and the cluster lacks, and volumes that only one node can mount."""
    ray, storage = found.settings.ray, found.settings.storage
    objects = [("secret", name, "ray.secrets") for name, _ in pairs(ray.secrets)]
    objects += [("secret", name, "ray.pullSecrets") for name in ray.pull_secrets]
    objects += [("serviceaccount", ray.service_account, "ray.serviceAccount")] if ray.service_account else []
    objects += [("priorityclass", ray.priority_class, "ray.priorityClass")] if ray.priority_class else []
    for kind, name, path in objects:
        try:
            there = found.cluster.exists(kind, name, found.namespace)
        except RefusedError as error:
            if error.reason in _FORBIDDEN:
                continue
            raise
        if not there:
            fix = f"create it, or correct {path}: no pod would start before it exists"
            yield found.problem(f"There is no {kind} {name}.", fix, path, "namespace")
    claims = [(name, "ray.volumes") for name, _ in pairs(ray.volumes)]
    claims += [(storage.claim, "storage.claim")] if storage.claim else []
    for name, path in claims:
        try:
            claim = found.maybe(f"/api/v1/namespaces/{found.namespace}/persistentvolumeclaims/{name}")
        except RefusedError as error:
            if error.reason != "NotFound":
                raise
            fix = f"create it, or correct {path}: no pod would start before it exists"
            yield found.problem(f"There is no persistentvolumeclaim {name}.", fix, path, "namespace")
            continue
        modes = ((claim or {}).get("spec") or {}).get("accessModes") or []
        if modes and not {"ReadWriteMany", "ReadOnlyMany"} & {*modes}:
            yield found.problem(
                f"The claim {name} is {', '.join(map(str, modes))}: only one node can mount it, and others would wait.",
                "use a claim that is ReadWriteMany",
                path,
            )


def _nodes(found: Found) -> Iterator[Problem]:
    """Find that no node that the workers may use has room for one, or that fewer have than must stay up."""
    answer, settings, pod = found.maybe("/api/v1/nodes"), found.settings, found.args.pod
    if answer is None:
        return
    labels, wanted = pod.node_selector, dict(pod.resources["requests"])
    matching = [
        node
        for node in answer.get("items") or []
        if labels.items() <= (node["metadata"].get("labels") or {}).items() and _tolerated(node, pod.tolerations)
    ]
    offers = [{name: (node["status"].get("allocatable") or {}).get(name, "0") for name in wanted} for node in matching]
    fitting = [offer for offer in offers if all(amount(offer[name]) >= amount(wanted[name]) for name in wanted)]
    paths = {"cpu": "nodes.cpus", "memory": "nodes.memoryGib", GPU: "nodes.gpus"}
    if offers and not fitting:
        most = {name: max((offer[name] for offer in offers), key=amount) for name in wanted}
        short = [name for name in wanted if amount(most[name]) < amount(wanted[name])] or [*wanted]
        lacking = ", ".join(f"{name} {wanted[name]} (at most {most[name]})" for name in short)
        yield found.problem(
            f"{len(offers)} nodes have the labels and taints of the stack, and none has room for a worker: {lacking}.",
            "lower these, correct nodes.selector, or wait until the device plugin offers them",
            *dict.fromkeys(paths.get(name, "fabric") for name in short),
        )
    elif len(fitting) < settings.nodes.min:
        yield found.problem(
            f"{len(fitting)} nodes have the labels, taints and size that a worker needs; nodes.min is "
            f"{settings.nodes.min}.",
            "correct nodes.selector and nodes.tolerations, or lower nodes.min; with 0, an autoscaler may add nodes",
            "nodes.min",
        )


def _tolerated(node: Json, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether pods may start on a node: it accepts pods, and each of its taints is tolerated."""
    spec = node.get("spec") or {}
    taints = [each for each in spec.get("taints") or [] if each.get("effect") != "PreferNoSchedule"]
    return not spec.get("unschedulable") and all(
        any(
            each["key"] == taint.get("key") and (each["operator"] == "Exists" or each["value"] == taint.get("value"))
            for each in tolerations
        )
        for taint in taints
    )


def amount(quantity: str) -> float:
    """Return a quantity of Kubernetes as a number: 1500m is 1.5, and 2Ki is 2048."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)(m|[kMGTPE]|[KMGTPE]i)?", quantity.strip())
    if match is None:
        return 0.0
    unit = match[2] or ""
    if unit == "m":
        return float(match[1]) / 1000
    step = 1024 if unit.endswith("i") else 1000
    return float(match[1]) * float(step ** " kMGTPE".index(unit[:1].replace("K", "k") or " "))


def _rights(found: Found) -> Iterator[Problem]:
    """Find rights that the stack and the commands of `rdma-ray` need and the user lacks."""
    kinds = {(group_of(each), plural(each["kind"])) for each in every_object(found.args)}
    wanted = [*_USED, *((verb, *kind) for kind in sorted(kinds) for verb in ("get", "create", "patch", "delete"))]
    with ThreadPoolExecutor(PARALLEL) as pool:
        answers = pool.map(lambda each: found.cluster.allowed(each[0], each[1], each[2], found.namespace), wanted)
        lacking = [each for each, answer in zip(wanted, answers, strict=True) if not answer]
    verbs: dict[str, list[str]] = {}
    for verb, group, resource in lacking:
        verbs.setdefault(f"{resource}.{group}" if group else resource, []).append(verb)
    if verbs:
        listed = "; ".join(f"{' '.join(names)} {resource}" for resource, names in verbs.items())
        yield found.problem(f"You lack rights in this namespace: {listed}.", f"{ASK} for them", "namespace", "context")


def _dry_run(found: Found, body: Json) -> Iterator[Problem]:
    """Find that the API server refuses an object, or has one of this name that is not the stack's."""
    kind, name = body["kind"], body["metadata"]["name"]
    path = f"{'/apis' if '/' in body['apiVersion'] else '/api'}/{body['apiVersion']}"
    path += f"/namespaces/{found.namespace}/{plural(kind)}"
    try:
        found.cluster.try_create(path, body)
    except RefusedError as error:
        if error.reason == "AlreadyExists":
            if kind != "Pod" and (other := _other_owner(found, f"{path}/{name}")):
                yield found.problem(
                    f"There is a {kind} {name}, {other}, and this stack would overwrite it.",
                    "choose another name for the stack, or another namespace",
                    "namespace",
                )
        elif error.reason not in (*_FORBIDDEN, "NotFound") or (kind == "Pod" and "forbidden: User" not in str(error)):
            what = f"a pod such as {name}" if kind == "Pod" else f"the {kind} {name}"
            yield found.problem(
                f"The cluster refuses {what}: {error}.",
                f"change what it names, or {ASK}: another namespace, or an exception",
                "namespace",
                "context",
            )


def _other_owner(found: Found, path: str) -> str | None:
    """Return whose an object is, in words; None if it is this stack's."""
    labels = ((found.maybe(path) or {}).get("metadata") or {}).get("labels") or {}
    if labels.get(OWNER) == found.stack:
        return None
    return f"of the stack {labels[OWNER]}" if OWNER in labels else "which no stack made"


def pods(args: RayArgs) -> list[Json]:
    """Return a pod like each kind of Ray's, as a dry run creates it: alone, and named after its workload."""
    templates = {
        str(template["spec"]["containers"][0]["name"]): template
        for body in every_object(args)
        for template in _templates(body["spec"] if isinstance(body.get("spec"), dict) else {})
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            # Its own labels would attract the workload's Services and budgets.
            "metadata": {"name": f"{args.name}-{name}", "annotations": template["metadata"].get("annotations", {})},
            "spec": template["spec"],
        }
        for name, template in templates.items()
        if name.startswith("ray-")
    ]


def _templates(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        if isinstance(value.get("template"), dict) and "containers" in (value["template"].get("spec") or {}):
            yield value["template"]
        for each in value.values():
            yield from _templates(each)
    elif isinstance(value, list):
        for each in value:
            yield from _templates(each)


def group_of(body: Json) -> str:
    """Return the API group of an object; "" for the core group."""
    return str(body["apiVersion"]).rpartition("/")[0]


def plural(kind: str) -> str:
    """Return the resource of a kind that a stack makes: networkpolicies of NetworkPolicy."""
    word = kind.lower()
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
