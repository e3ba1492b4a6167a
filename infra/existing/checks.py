"""Checks of a cluster that the user has, before anything is made in it: every problem at once, each with its fix.

They only read, ask for rights, and create as a dry run what the stack would create. An answer that the user has no
right to get is no problem: the dry runs show what matters. Nothing is expected of the form of an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from infra.catalog.names import STACK_LABEL
from infra.catalog.pins import KUBERAY, KUEUE_API, OPERATOR_API, RAY_API
from infra.existing.kubectl import Json, Kubectl, KubectlError, one_line
from infra.existing.kuberay import Choice, few, kuberay_problems
from infra.existing.nodes import node_problems
from infra.existing.objects import group_of, path_of, pods, resource_of
from infra.existing.questions import ASK, NOT_SHOWN, Found, made_by, part, parts, together
from infra.kubernetes.monitoring_objects import SIDECARS
from infra.kubernetes.pods import RBAC, RayArgs
from infra.settings import KubernetesSettings, Problem
from infra.settings.common import pairs

OLDEST_FOR_JOBS = (1, 33)
"""Kubernetes with the success policy of a Job (KEP-3998, stable in 1.33)."""
QUEUE_APIS = (KUEUE_API, f"{KUEUE_API.partition('/')[0]}/v1beta1")
UNANSWERED = "The cluster did not answer a question"
"""How the problem of a check without an answer begins."""
KUBERAY_CHOICE = Choice(
    path="installKuberay", use_theirs="set installKuberay to false", install="set installKuberay to true"
)

_REPEATED = re.compile(r'(The )?[\w.-]+ "[^"]*" is (forbidden|invalid): (: )?')
"""Words of a refusal that name the object again."""

Check = Callable[[Found], Iterable[Problem]]


def problems(cluster: Kubectl, args: RayArgs, settings: KubernetesSettings, stack: str) -> list[Problem]:
    """Return every reason for which `up` would fail or harm something in this cluster.

    Args:
        args: Arguments of the stack's workload.
        stack: The stack, as its objects are marked (`STACK_LABEL`).
    """
    found = Found(cluster, args, settings, stack)
    # Every other answer would be about these.
    if first := [*_reached(found)]:
        return first
    checks: list[Check] = [_version, _kuberay, _queue, _named, node_problems]
    checks += [partial(_right, right=right) for right in _rights(found)]
    checks += [partial(_dry_run, body=body) for body in found.objects]
    every = _all(found, checks)
    # Last: the other answers tell what a refusal of a pod would repeat.
    missing = {path for problem in every for path in problem.settings[:1]}
    like_ours = pods(args, found.objects, missing)
    every += _one_of_each_kind(_all(found, [partial(_dry_run, body=body) for body in like_ours]))
    return [*{str(each): each for each in [*every, *_lacking(found)]}.values()]


def _all(found: Found, checks: Iterable[Check]) -> list[Problem]:
    return [problem for answer in together(partial(_answered, found), checks) for problem in answer]


def _answered(found: Found, check: Check) -> list[Problem]:
    """Return what a check finds; a refusal that it does not expect is a problem, too."""
    try:
        return [*check(found)]
    except KubectlError as error:
        return [found.problem(f"{UNANSWERED}: {error}.", ASK, "context")]


def _reached(found: Found) -> Iterator[Problem]:
    try:
        body = found.maybe(f"/api/v1/namespaces/{found.namespace}")
    except KubectlError as error:
        if error.reason == "NotFound":
            yield _no_namespace(found)
            return
        fix = "`kubectl config get-contexts` lists contexts; sign in again if your credentials have expired"
        fix = "install kubectl" if error.reason == "NoKubectl" else fix
        yield found.problem(f"The cluster does not answer: {error}.", fix, "context")
        return
    if part(body, "status", "phase") == "Terminating":
        yield found.problem("The namespace is being deleted.", "wait, or choose another", "namespace")


def _no_namespace(found: Found) -> Problem:
    fix = f"kubectl create namespace {found.namespace}, or {ASK} for one"
    return found.problem("The cluster has no such namespace.", fix, "namespace", "context")


def _version(found: Found) -> Iterator[Problem]:
    row = found.settings.fabric_row
    needs = [(tuple(map(int, row.min_version.split(".")[:2])), f"fabric {row.name}", "fabric")]
    if found.settings.ray.mode == "indexed-job":
        needs.append((OLDEST_FOR_JOBS, "ray.mode indexed-job", "ray.mode"))
    if found.settings.monitoring != "none":
        needs.append((SIDECARS, "monitoring", "monitoring"))
    if max(oldest for oldest, _, _ in needs) <= (1, 0):
        return
    version = found.maybe("/version")
    digits = [re.match(r"\d{1,4}", str(part(version, each))) for each in ("major", "minor")]
    minor = tuple(int(each[0]) for each in digits if each)
    for oldest, what, path in needs:
        if len(minor) == 2 and minor < oldest:
            need, have = (".".join(map(str, each)) for each in (oldest, minor))
            fix = f"choose another {path.rpartition('.')[2]}, or upgrade the cluster"
            yield found.problem(f"Kubernetes is {have}, but {what} needs {need} or later.", fix, path)


def _kuberay(found: Found) -> Iterator[Problem]:
    if found.settings.ray.mode != "indexed-job":
        yield from kuberay_problems(found, KUBERAY_CHOICE, install=found.settings.install_kuberay)


def _queue(found: Found) -> Iterator[Problem]:
    name = found.settings.local_queue
    if found.settings.queue == "none" or name is None:
        return
    for api in QUEUE_APIS:
        if not found.serves(api):
            continue
        queue = found.look(f"/apis/{api}/namespaces/{found.namespace}/localqueues/{name}")
        if queue is None:
            fix = f"`kubectl -n {found.namespace} get localqueues` lists those that are there"
            yield found.problem("The namespace has no such LocalQueue.", fix, "localQueue", "namespace")
            return
        for each in parts(queue, "status", "conditions"):
            if each.get("type") == "Active" and each.get("status") == "False":
                said = one_line(str(each.get("message")))
                yield found.problem(f"The LocalQueue admits nothing: {said}.", f"{ASK} to repair it", "localQueue")
        return
    yield found.problem("The cluster has no Kueue.", f"set queue to none, or {ASK} to install Kueue", "queue")


def _named(found: Found) -> Iterator[Problem]:
    """Find what the pods name and the cluster lacks, and volumes that only one node can mount."""
    ray, storage = found.settings.ray, found.settings.storage
    objects = [("Secret", name, "ray.secrets") for name, _ in pairs(ray.secrets)]
    objects += [("Secret", name, "ray.pullSecrets") for name in ray.pull_secrets]
    objects += [("ServiceAccount", ray.service_account, "ray.serviceAccount")] if ray.service_account else []
    for kind, name, path in dict.fromkeys(objects):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
        try:
            # Unlike a read, it needs no right to see what is secret.
            found.cluster.try_create(path_of(body, found.namespace), body)
        except KubectlError:
            continue
        yield _absent(found, kind, name, path)
    claims = [("PersistentVolumeClaim", name, "ray.volumes") for name, _ in pairs(ray.volumes)]
    claims += [("PersistentVolumeClaim", storage.claim, "storage.claim")] if storage.claim else []
    read = [*claims, *([("PriorityClass", ray.priority_class, "ray.priorityClass")] if ray.priority_class else [])]
    place = {
        "PersistentVolumeClaim": f"/api/v1/namespaces/{found.namespace}/persistentvolumeclaims",
        "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    }
    for kind, name, path in read:
        live = found.look(f"{place[kind]}/{name}")
        if live is None:
            yield _absent(found, kind, name, path)
            continue
        modes = part(live, "spec", "accessModes") if kind != "PriorityClass" else None
        if isinstance(modes, list) and modes and not {"ReadWriteMany", "ReadOnlyMany"} & {*map(str, modes)}:
            yield found.problem(
                f"The claim {name} is {few(map(str, modes))}: only one node can mount it, and others would wait.",
                "use a claim that is ReadWriteMany",
                path,
            )


def _absent(found: Found, kind: str, name: str, path: str) -> Problem:
    fix = f"create it, or correct {path}: no pod would start before it exists"
    return found.problem(f"There is no {kind} {name}.", fix, path, "namespace")


def _rights(found: Found) -> list[tuple[str, str, str]]:
    """Return the rights (verb, group, resource) that no dry run shows: the stack's, and those of `rdma-ray`.

    Not to read, which Pulumi needs to change an object only: many roles may write Secrets that they may not read.
    """
    kinds = sorted({(group_of(each), resource_of(each["kind"])) for each in found.objects})
    used = [("get", "", "pods"), ("list", "", "pods"), ("get", "", "pods/log"), ("create", "", "pods/portforward")]
    if found.settings.install_kuberay and found.settings.ray.mode != "indexed-job":
        used += [("create", "apps", "deployments"), ("create", RBAC, "roles"), ("create", RBAC, "rolebindings")]
        used.append(("create", "apiextensions.k8s.io", "customresourcedefinitions"))
    return [*used, *((verb, *kind) for kind in kinds for verb in ("patch", "delete"))]


def _right(found: Found, right: tuple[str, str, str]) -> list[Problem]:
    """Note a right that the user lacks, for `_lacking`."""
    verb, group, resource = right
    # A review for the whole cluster has no namespace.
    namespace = "" if resource == "customresourcedefinitions" else found.namespace
    if not found.cluster.allowed(verb, group, resource, namespace):
        found.lacks(*right)
    return []


def _lacking(found: Found) -> Iterator[Problem]:
    """Yield one problem with every right that the user lacks."""
    verbs: dict[str, list[str]] = {}
    for resource, verb in sorted(found.lacking):
        verbs.setdefault(resource, []).append(verb)
    if verbs:
        listed = "; ".join(f"{', '.join(names)} {resource}" for resource, names in verbs.items())
        yield found.problem(f"You lack these rights: {listed}.", f"{ASK} for them", "namespace", "context")


def _dry_run(found: Found, body: Json) -> Iterator[Problem]:
    """Find that the API server refuses an object, or has one of this name that is not the stack's."""
    kind, name, group = body["kind"], body["metadata"]["name"], group_of(body)
    path = path_of(body, found.namespace)
    try:
        found.cluster.try_create(path, body)
        return
    except KubectlError as error:
        refused = error
    full = "exceeded quota" in str(refused)
    if refused.reason == "NotFound" and str(refused).startswith("namespaces "):
        # The user may not read namespaces.
        yield _no_namespace(found)
        return
    if kind == "Pod":
        # KubeRay and the Job controller create pods, not the user. Pods of the stack that are there fill a quota.
        if _no_right(refused) or refused.reason == "AlreadyExists" or (full and found.exists):
            return
    elif _no_right(refused):
        found.lacks("create", group, resource_of(kind))
        return
    elif refused.reason == "AlreadyExists" or full:
        owner = _owner(found, f"{path}/{name}")
        if owner is not None and owner != found.stack:
            yield found.problem(
                f"There is a {kind} {name}, {made_by(owner)}, and this stack would overwrite it.",
                "choose another name for the stack, or another namespace",
                "namespace",
            )
        if refused.reason == "AlreadyExists" or owner is not None:
            found.exists |= name == found.args.name
            return
    elif refused.reason == "NotFound" and (group == RAY_API.partition("/")[0] or kind == "RoleBinding"):
        # Another check finds that KubeRay is missing; a RoleBinding's Role is not there yet.
        return
    elif refused.reason == "NotFound" and group == OPERATOR_API.partition("/")[0]:
        # One problem for the two objects that need it.
        if kind == "PrometheusRule":
            fix = f"set monitoring to annotations or none, or {ASK} to install the operator"
            yield found.problem("The cluster has no Prometheus Operator.", fix, "monitoring", "context")
        return
    elif group == RAY_API.partition("/")[0] and "unknown field" in str(refused):
        yield found.problem(
            f"KubeRay's definition of a {kind} is older than the stack's: {refused}.",
            f"{ASK} to apply the CRDs of KubeRay {KUBERAY.version}, which Helm does not upgrade",
            "context",
        )
        return
    what = f"a pod such as {name}" if kind == "Pod" else f"the {kind} {name}"
    why = _REPEATED.sub("", str(refused))
    yield found.problem(f"The cluster refuses {what}: {why}.", _way_out(why, name), "namespace", "context")


def _way_out(why: str, name: str) -> str:
    """Return the fix of a refusal."""
    if "exceeded quota" in why or " usage per " in why:
        head = name.endswith("-head")
        size = "ray.headCpus and ray.headMemoryGib" if head else "nodes.gpus, nodes.cpus and nodes.memoryGib"
        return f"lower {size}, choose another namespace, or {ASK} to raise the limit"
    if "PodSecurity" in why:
        return f"choose a namespace whose Pod Security level admits such pods, or {ASK} for one"
    return f"change what it refuses, choose another namespace, or {ASK} for an exception"


def _no_right(refused: KubectlError) -> bool:
    """Return whether the user may not create such an object, rather than this one."""
    return refused.reason == "Forbidden" and 'forbidden: User "' in str(refused)


def _owner(found: Found, path: str) -> str | None:
    """Return the stack that made an object, or ""; None if there is none, or the user may not read it."""
    body = found.look(path)
    return None if body is None or body is NOT_SHOWN else str(part(body, "metadata", "labels", STACK_LABEL) or "")[:63]


def _one_of_each_kind(refusals: Iterable[Problem]) -> list[Problem]:
    """Return one of the refusals of pods that have the same reason, by its first words."""
    reasons = {re.sub(r".*?: \[?([A-Za-z ]*).*", r"\1", each.message): each for each in refusals}
    return [*reasons.values()]
