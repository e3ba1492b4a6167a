"""Protection from deletion, eviction and disclosure, and identities: what runs as which account, with which rights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from infra.catalog.names import NODE_CHECK
from infra.naming import STACK
from infra.settings import EksSettings, KubernetesSettings
from infra.settings.common import pairs
from rehearsal.engine.kind import Json, value_at
from rehearsal.invariants.invariant import Stack, at, differs, name_of
from rehearsal.invariants.placement import (
    Pods,
    pod_labels,
    pods_of,
    ray_pods,
    ray_spec,
    ray_workloads,
    variable,
    workloads,
)
from rehearsal.report.golden import SIGNATURE
from tools.recovery import FOUND_BY_TAGS, NAME_TAG

IDENTITIES = (
    ("NodePool", "nodeConfig.serviceAccount", "nodes"),
    ("gcp:container/cluster:Cluster", "nodeConfig.serviceAccount", "nodes"),
    ("aws:eks/cluster:Cluster", "roleArn", "eks.amazonaws.com"),
    ("NodeGroup", "nodeRoleArn", "ec2.amazonaws.com"),
    ("FlowLog", "iamRoleArn", "vpc-flow-logs.amazonaws.com"),
    ("PodIdentityAssociation", "roleArn", "pods.eks.amazonaws.com"),
    ("Addon", "podIdentityAssociations.0.roleArn", "pods.eks.amazonaws.com"),
)
"""Resources that run as an identity, the path of their input, and the users of the identity."""


def everything_is_protected_together(stack: Stack) -> Iterator[str]:
    """`protect` holds for every resource in the engine, which refuses before it deletes anything, and for the cluster
    in the cloud."""
    for node in stack.graph.managed:
        yield from differs(f"{node.name}: protect", node.protect, stack.cluster.protect)
    for cluster in stack.of("Cluster"):
        yield from differs(f"{cluster.name}: protect", at(cluster, "deletionProtection"), stack.cluster.protect)


def objects_go_with_the_cluster(stack: Stack) -> Iterator[str]:
    """Objects in the cluster are deleted with it, by the stack's provider, which follows the cluster and not its
    address. In a user's cluster they are deleted one by one."""
    clusters: list[str | None] = [cluster.urn for cluster in stack.of("Cluster")]
    clusters += [None] if stack.in_users_cluster else []
    for node in (node for node in stack.graph.managed if node.type.startswith("kubernetes:")):
        provider = stack.graph.nodes.get(node.provider or "")
        if isinstance(stack.settings, KubernetesSettings):
            context = None if provider is None else provider.inputs.get("context")
            yield from differs(f"{node.name}: context", (node.deleted_with, context), (None, stack.settings.context))
        elif node.deleted_with not in clusters or provider is None or not provider.inputs.get("clusterIdentifier"):
            yield f"{node.name} is deleted with {node.deleted_with} by {node.provider}"


def passwords_are_only_in_secrets(stack: Stack) -> Iterator[str]:
    """Generated passwords are marked as secret in the state, and only the content of a Secret has their text."""
    marked = [node.outputs.get("result") for node in stack.of("RandomPassword")]
    for value in [*marked, *(at(node, "stringData") for node in stack.of("Secret"))]:
        if not isinstance(value, dict) or SIGNATURE not in value:
            yield "a password or a Secret is in the state as plain text"
    texts = [value["plaintext"].strip('"') for value in marked if isinstance(value, dict) and "plaintext" in value]
    for node in stack.graph.managed:
        if not node.type.endswith(":Secret") and any(text in str(node.inputs) for text in texts):
            yield f"{node.name} has a password"


def pods_only_read_folders_of_their_node(stack: Stack) -> Iterator[str]:
    """Ray's containers mount folders of the node read-only: privileged pods there load files from them."""
    for pods in ray_pods(stack):
        folders = {volume["name"] for volume in pods.volumes if "hostPath" in volume}
        for mount in value_at(pods.containers[0], "volumeMounts") or ():
            if mount["name"] in folders and mount.get("readOnly") is not True:
                yield f"{pods} may write to {mount['mountPath']} of its node"


def pods_of_ray_are_not_evicted(stack: Stack) -> Iterator[str]:
    """No autoscaler evicts Ray's pods to save a node, and one disruption budget selects the head and no worker."""
    for pods in ray_pods(stack):
        if pods.annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") != "false":
            yield f"{pods} may be evicted"
    for workload in ray_workloads(stack):
        paths = ("metadata.namespace", "spec.selector.matchLabels")
        budgets = [[at(node, path) for path in paths] for node in stack.of("PodDisruptionBudget")]
        head = {**pod_labels(workload), "ray.io/node-type": "head"}
        yield from differs("budgets", budgets, [[at(workload, "metadata.namespace"), head]])


def recovery_finds_every_resource(stack: Stack) -> Iterator[str]:
    """Every tagged resource has the stack's tag, and no two with generated ids share a name tag: by both, `make up`
    finds them after an interruption."""
    names: set[tuple[str, str]] = set()
    for node in stack.graph.managed:
        tags = at(node, "tags") or {}
        name = (FOUND_BY_TAGS.get(node.type, node.urn), tags.get(NAME_TAG, ""))
        if node.type.startswith("aws:") and "tagsAll" in node.outputs and not tags.get(STACK):
            yield f"{node.name} has no tag {STACK}"
        if node.type in FOUND_BY_TAGS and (not name[1] or name in names):
            yield f"{node.name} has the name tag {name[1]}"
        names.add(name)


def identities_are_used_by_whom_they_trust(stack: Stack) -> Iterator[str]:
    """Nodes, pods and the control plane run as identities of the stack, and every one is used: a service account by
    GKE's nodes, a role by the one service that it trusts. Project roles are for these accounts."""
    accounts = {(str(node.outputs.get("email")), "nodes") for node in stack.of("gcp:serviceaccount/account:Account")}
    roles = {
        (str(role.outputs.get("arn")), statement["Principal"]["Service"])
        for role in stack.of("aws:iam/role:Role")
        for statement in json.loads(at(role, "assumeRolePolicy"))["Statement"]
    }
    used = {(at(node, path), user) for kind, path, user in IDENTITIES for node in stack.of(kind)}
    # An add-on needs no role.
    used -= {(None, "pods.eks.amazonaws.com")}
    yield from differs("identities", used, accounts | roles)
    members = {(at(node, "member").removeprefix("serviceAccount:"), "nodes") for node in stack.of("IAMMember")}
    yield from differs("accounts with project roles", members, accounts)


def rights_of_pods_are_theirs_alone(stack: Stack) -> Iterator[str]:
    """No policy of a pod's role is also one of another role, such as the nodes', which every pod could use."""
    policies: dict[bool, set[str]] = {True: set(), False: set()}
    for role in stack.of("aws:iam/role:Role"):
        attached = [node for node in stack.of("RolePolicyAttachment") if at(node, "role") == at(role, "name")]
        policies["pods.eks" in at(role, "assumeRolePolicy")].update(str(at(node, "policyArn")) for node in attached)
    yield from differs("shared policies", policies[True] & policies[False], set())


def cloud_rights_belong_to_existing_accounts(stack: Stack) -> Iterator[str]:
    """Associations of Pod Identity are for the accounts of releases and, with policies, of Ray's pods. On GKE exactly
    the accounts of pods that mount the bucket have rights on it."""
    account = "values.rbac.serviceAccount.name"
    releases = [(at(node, "namespace"), at(node, account)) for node in stack.of("Release") if at(node, account)]
    found = [(at(node, "namespace"), at(node, "serviceAccount")) for node in stack.of("PodIdentityAssociation")]
    own = {(at(one.owner, "metadata.namespace"), one.spec["serviceAccountName"]) for one in ray_pods(stack)}
    with_policies = own if isinstance(stack.settings, EksSettings) and stack.settings.ray.policies else set()
    yield from differs("associations", sorted(found), sorted([*releases, *with_policies]))
    granted = {str(at(node, "member")).partition("/ns/")[2] for node in stack.of("BucketIAMMember")}
    mounting = [pods for pods in ray_pods(stack) if any(value_at(volume, "csi") for volume in pods.volumes)]
    users = {f"{at(one.owner, 'metadata.namespace')}/sa/{one.spec['serviceAccountName']}" for one in mounting}
    yield from differs("accounts with rights on the bucket", granted, users)


def pods_run_as_accounts_of_their_own(stack: Stack) -> Iterator[str]:
    """Head and workers have different accounts, and no container gets a token of the Kubernetes API but that of Ray's
    autoscaler and the init containers that end before Ray starts: a RayJob's head reads that, a worker its node, which
    it may check first. No job runs in these. An account may get nodes, and its RayJob; for a check, list pods and write
    events about nodes. A CronJob's pods have a separate account. A user's account, which is not the stack's, may be
    that of all."""
    users = stack.settings.ray.service_account if isinstance(stack.settings, KubernetesSettings) else None
    tokens = {name_of(node): node.inputs.get("automountServiceAccountToken") for node in stack.of("ServiceAccount")}
    wanted = {pods.spec.get("serviceAccountName"): False for pods in ray_pods(stack)}
    accounts = [pods.spec.get("serviceAccountName") for node in stack.of("CronJob") for pods in pods_of(node)]
    every = {**dict.fromkeys(accounts, False), **({} if users else wanted)}
    yield from differs("accounts and their tokens", tokens, every)
    if users:
        yield from differs("account of Ray's pods", {*wanted}, {users})
    elif len({pods.name == "head" for pods in ray_pods(stack)}) != len(wanted) or set(accounts) & set(wanted):
        yield f"head and workers run as {sorted(map(str, wanted))}"
    for pods in ray_pods(stack):
        yield from differs(f"{pods}: token", pods.spec.get("automountServiceAccountToken"), False)
        volumes = {volume["name"] for volume in pods.volumes if "serviceAccountToken" in str(volume)}
        for container in pods.containers:
            if volumes & {mount["name"] for mount in container.get("volumeMounts") or ()}:
                yield f"{pods}: container {container['name']} has a token of the Kubernetes API"
        scaler = (ray_spec(pods.owner) or {}).get("autoscalerOptions") if pods.name == "head" else None
        mounted = {mount["name"] for mount in (scaler or {}).get("volumeMounts") or ()}
        readers = _readers(pods, f"/rayjobs/{name_of(pods.owner)}" if pods.name == "head" else _OWN_NODE)
        if pods.name != "head" and stack.cluster.ray.check != "off":
            readers += [each for each in pods.spec.get("initContainers") or () if each["name"] == NODE_CHECK]
        for each in readers:
            mounted |= volumes & {mount["name"] for mount in each["volumeMounts"]}
        yield from differs(f"{pods}: tokens of the autoscaler and of init containers", volumes, mounted)
    allowed = {"ClusterRole": [("nodes", "get")], "Role": [("rayjobs", "get")]}
    if stack.cluster.ray.check != "off":
        allowed["Role"] += [("pods", "list"), ("events", "create")]
    for kind, rights in allowed.items():
        bound = {
            str(at(node, "roleRef.name"))
            for node in stack.of(f"{kind}Binding")
            if any(subject.get("name") in wanted for subject in node.inputs["subjects"])
        }
        for node in stack.of(kind):
            if at(node, "metadata.name") in bound:
                given = [(*rule["resources"], *rule["verbs"]) for rule in node.inputs["rules"]]
                yield from (f"{name_of(node)}: right to {right}" for right in given if right not in rights)


_OWN_NODE = "/api/v1/nodes/$(NODE_NAME)"


def _readers(pods: Pods, path: str) -> list[Json]:
    """Return the init containers that read an object of the API server, by the end of its path, before Ray starts."""
    found = pods.spec.get("initContainers") or ()
    return [each for each in found if any(str(word).endswith(path) for word in each.get("args") or ())]


def entry_points_start_once(stack: Stack) -> Iterator[str]:
    """A RayJob's entry point ends before it begins if a folder of its pod exists that the first start creates, and so
    does an init container in a pod that follows a lost head. That one may read this RayJob, and nothing retries it."""
    for job in stack.of("RayJob"):
        head = next(pods_of(job))
        guard = re.match(r"mkdir (\S+) \|\| \{ .+; exit [1-9]\d*; \}; \S", str(at(job, "spec.entrypoint")))
        folder = guard[1] if guard else "a folder"
        checks = [each for each in _readers(head, f"/rayjobs/{name_of(job)}") if f"--mark={folder}" in each["args"]]
        yield from differs(f"{job.name}: checks of {folder}", len(checks), 1)
        kept = {volume["name"] for volume in head.volumes if "emptyDir" in volume}
        shared = [
            {mount["name"] for mount in each["volumeMounts"] if folder.startswith(f"{mount['mountPath']}/")} & kept
            for each in (head.containers[0], *checks)
        ]
        if not all(each and each == shared[0] for each in shared):
            yield f"{job.name}: {folder} is in {shared} of its containers"
        account = {"kind": "ServiceAccount", "name": head.spec["serviceAccountName"]}
        roles = [
            at(node, "roleRef.name")
            for node in stack.of("RoleBinding")
            if any(account.items() <= subject.items() for subject in at(node, "subjects"))
        ]
        rights = [rule for node in stack.of("Role") if name_of(node) in roles for rule in at(node, "rules")]
        wanted = {"resources": ["rayjobs"], "verbs": ["get"], "resourceNames": [name_of(job)]}
        yield from differs(f"{job.name}: rights", [{key: rule[key] for key in wanted} for rule in rights], [wanted])
        yield from differs(f"{job.name}: retries", at(job, "spec.backoffLimit"), 0)


def ray_requires_the_token_of_the_stack(stack: Stack) -> Iterator[str]:
    """Every container of Ray requires a token and has it from the stack's Secret, as the operator does. All pods of a
    service, and no others, have one more Secret, as a file: that of its requests, which does not allow running code."""
    for workload in workloads(stack):
        spec, pods = ray_spec(workload), list(pods_of(workload))
        users = {name for name, _ in pairs(stack.cluster.ray.secrets)}
        files = [{value_at(volume, "secret.secretName") for volume in each.volumes} - {None, *users} for each in pods]
        secrets = {name_of(node) for node in stack.of("Secret")} - {f"{name_of(workload)}-outputs"}
        of_requests = secrets & files[0] if workload.type.endswith(":RayService") else set()
        yield from differs(f"{workload.name}: Secrets as files", files, [of_requests for _ in pods])
        yield from differs(f"{workload.name}: Secrets of requests", len(of_requests), int(len(secrets) > 1))
        secrets -= of_requests
        found = [container for each in pods for container in each.containers]
        for container in [*found, spec["autoscalerOptions"]] if spec.get("enableInTreeAutoscaling") else found:
            # KubeRay reads this key (ray-project/kuberay: utils/constant.go, v1.6.2).
            source = variable(container, "RAY_AUTH_TOKEN", "valueFrom.secretKeyRef")
            yield from differs(
                f"{workload.name}: source", [source], [{"name": one, "key": "auth_token"} for one in secrets]
            )
            yield from differs(f"{workload.name}: mode", variable(container, "RAY_AUTH_MODE"), "token")
        if spec:
            wanted = [{"mode": "token", "secretName": one} for one in secrets]
            yield from differs(f"{workload.name}: options", [spec.get("authOptions")], wanted)


def outputs_are_for_those_whom_an_administrator_binds(stack: Stack) -> Iterator[str]:
    """With access.outputsSecret, one more Secret has the stack's outputs, and no way into the cluster. A Role of its
    name may get no other Secret, and only the group of a team is bound to it."""
    wanted = [f"{name_of(node)}-outputs" for node in workloads(stack) if stack.cluster.access.outputs_secret]
    found = [node for node in stack.of("Secret") if name_of(node).endswith("-outputs")]
    yield from differs("Secrets with outputs", [name_of(node) for node in found], wanted)
    for node in found:
        outputs = json.loads(json.loads(at(node, "stringData")["plaintext"])["outputs.json"])
        yield from differs(f"{node.name}: ways in", {"kubeconfig", "context"} & {*outputs}, set())
    rules = [(name_of(node), rule) for node in stack.of("Role", "ClusterRole") for rule in at(node, "rules") or ()]
    reads = [(name, rule) for name, rule in rules if "secrets" in rule.get("resources", ())]
    rights = [(name, rule.get("resourceNames"), rule["verbs"]) for name, rule in reads]
    yield from differs("rights to Secrets", rights, [(name, [name], ["get"]) for name in wanted])
    bindings = [node for node in stack.of("RoleBinding", "ClusterRoleBinding") if at(node, "roleRef.name") in wanted]
    bound = [(each["kind"], each["name"]) for node in bindings for each in at(node, "subjects")]
    team = stack.cluster.team
    yield from differs("bound to the Role", bound, [("Group", team.group)] if team and team.group else [])
