"""Invariants of the Indexed Job, if Ray runs as one."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kubernetes.pods import INDEXED_JOB_POD, JOB_LABEL, SCRIPTS, TOKEN_KEY, WORKER_ACCOUNT, script_files
from infra.plan import plan
from rehearsal.clouds.kind import Json, value_at
from rehearsal.graph import Node
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import JOB, RAY_CLUSTER, RAY_JOB, RELEASE


def ray_runs_in_the_configured_mode(stack: Stack) -> Iterator[str]:
    """Ray is one RayCluster or RayJob with its operator, or one Indexed Job without an operator."""
    as_job = stack.cloud.ray.mode == "indexed-job"
    found = {type_.rpartition(":")[2]: len(stack.of(type_)) for type_ in (RAY_CLUSTER, RAY_JOB, JOB)}
    wanted = {"cluster": "RayCluster", "job": "RayJob", "indexed-job": "Job"}[stack.cloud.ray.mode]
    if found != {kind: int(kind == wanted) for kind in found}:
        yield f"there are {found} with ray.mode {stack.cloud.ray.mode}"
    operators = [release for release in stack.of(RELEASE) if release.inputs.get("chart") == "kuberay-operator"]
    if as_job and operators:
        yield "an operator is installed without a RayCluster or RayJob"


def the_job_has_a_fixed_size(stack: Stack) -> Iterator[str]:
    """The Job starts ray.maxWorkers indexed pods at once, and its head waits for as many."""
    most = stack.cloud.ray.max_workers
    for job in stack.of(JOB):
        yield from expect(job, spec__completionMode="Indexed", spec__completions=most, spec__parallelism=most)
        if f"--nodes={most}" not in _container(job)["args"]:
            yield f"{job.name}: its head waits for a different number of pods"


def the_job_runs_once(stack: Stack) -> Iterator[str]:
    """The Job ends with its head, is retried as a whole, reports why it failed, and is not deleted automatically."""
    for job in stack.of(JOB):
        yield from expect(
            job,
            spec__backoffLimit=0,
            spec__successPolicy={"rules": [{"succeededIndexes": "0"}]},
            spec__podReplacementPolicy="Failed",
            spec__ttlSecondsAfterFinished=None,
            spec__activeDeadlineSeconds=None,
            spec__template__spec__restartPolicy="Never",
        )
        if (at(job, "metadata.annotations") or {}).get("pulumi.com/skipAwait") != "true":
            yield f"{job.name}: `up` would wait until it has run"
        rules = at(job, "spec.podFailurePolicy.rules") or []
        if [rule["action"] for rule in rules] != ["FailJob", "FailJob"]:
            yield f"{job.name}: its failure policy is {rules}"


def the_jobs_pods_have_a_node_each(stack: Stack) -> Iterator[str]:
    """Two pods of the Job never share a node, and each takes its whole node: requests equal limits."""
    for job in stack.of(JOB):
        labels = at(job, "spec.template.metadata.labels")
        rule = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        where = "spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        if not labels or at(job, where) != [rule]:
            yield f"{job.name}: {where} is {at(job, where)}"
        resources = _container(job)["resources"]
        if "nvidia.com/gpu" not in resources["limits"] or resources["requests"] != resources["limits"]:
            yield f"{job.name}: {resources}"


def the_job_needs_the_token(stack: Stack) -> Iterator[str]:
    """Every pod of the Job requires Ray's token and gets it from the Secret."""
    secrets = [at(node, "metadata.name") for node in stack.of("kubernetes:core/v1:Secret")]
    for job in stack.of(JOB):
        found = _variables(job)
        if value_at(found, "RAY_AUTH_MODE.value") != "token":
            yield f"{job.name}: RAY_AUTH_MODE is not token"
        reference = value_at(found, "RAY_AUTH_TOKEN.valueFrom.secretKeyRef") or {}
        if reference.get("name") not in secrets or reference.get("key") != TOKEN_KEY:
            yield f"{job.name}: RAY_AUTH_TOKEN does not come from a Secret of the stack: {reference}"


def the_job_has_no_api_token(stack: Stack) -> Iterator[str]:
    """Pods of the Job run as the account without permissions, and have no token of the Kubernetes API."""
    for job in stack.of(JOB):
        yield from expect(
            job,
            spec__template__spec__automountServiceAccountToken=False,
            spec__template__spec__serviceAccountName=WORKER_ACCOUNT,
        )


def the_head_is_found(stack: Stack) -> Iterator[str]:
    """The head's host name resolves before it is ready, to pod 0 only; each pod has its own address and its Job's
    UID."""
    for job in stack.of(JOB):
        name = at(job, "metadata.name")
        services = {at(service, "metadata.name"): service for service in stack.of("kubernetes:core/v1:Service")}
        subdomain = at(job, "spec.template.spec.subdomain")
        if subdomain not in services:
            yield f"{job.name}: there is no Service {subdomain}"
            continue
        selector = {JOB_LABEL: name, "batch.kubernetes.io/job-completion-index": "0"}
        yield from expect(
            services[subdomain],
            spec__clusterIP="None",
            spec__publishNotReadyAddresses=True,
            spec__selector=selector,
            metadata__annotations={"pulumi.com/skipAwait": "true"},
        )
        if f"--head-host={name}-0.{subdomain}" not in _container(job)["args"]:
            yield f"{job.name}: its pods use another head"
        found = _variables(job)
        if value_at(found, "POD_IP.valueFrom.fieldRef.fieldPath") != "status.podIP":
            yield f"{job.name}: POD_IP is not the pod's address"
        if "controller-uid" not in str(value_at(found, "JOB_UID.valueFrom.fieldRef.fieldPath")):
            yield f"{job.name}: JOB_UID is not the Job's"


def the_job_waits_as_long_as_the_capacity_may_take(stack: Stack) -> Iterator[str]:
    """Pods of the Job wait for each other as long as the capacity may take."""
    for job in stack.of(JOB):
        (waits,) = [text for text in _container(job)["args"] if text.startswith("--wait-s=")]
        if int(waits.removeprefix("--wait-s=")) < stack.capacity_wait_s:
            yield f"{job.name}: {waits} is less than {stack.capacity_wait_s}"


def the_job_runs_our_script(stack: Stack) -> Iterator[str]:
    """The pods run the project's own package from the ConfigMap, with the entry point of the stack file."""
    for job in stack.of(JOB):
        maps = {at(node, "metadata.name"): node.inputs["data"] for node in stack.of("kubernetes:core/v1:ConfigMap")}
        volumes = {volume["name"]: volume for volume in at(job, "spec.template.spec.volumes")}
        if maps.get(value_at(volumes, "scripts.configMap.name")) != script_files(INDEXED_JOB_POD):
            yield f"{job.name}: its ConfigMap is not the project's package"
        container = _container(job)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        if mounts.get("scripts") != f"{SCRIPTS}/{INDEXED_JOB_POD}" or mounts.get("ray-logs") != "/tmp/ray":
            yield f"{job.name}: mounts {mounts}"
        if not container["command"][2].endswith(f'exec python3 -m {INDEXED_JOB_POD} "$@"'):
            yield f"{job.name}: runs {container['command']}"
        if f"--entrypoint={stack.cloud.ray.entrypoint}" not in container["args"]:
            yield f"{job.name}: has another entry point"


def the_job_carries_what_the_fabric_needs(stack: Stack) -> Iterator[str]:
    """The Job's pods have everything in the fabric's `GpuPod`."""
    pod = plan(stack.settings).pod
    for job in stack.of(JOB) if pod else ():
        assert pod is not None
        template = at(job, "spec.template")
        for where, wanted in (("spec", pod.pod()), ("spec.containers.0", pod.container())):
            for key, value in wanted.items():
                found = value_at(template, f"{where}.{key}")
                missing = [one for one in value if one not in found] if isinstance(value, list) else found != value
                if missing:
                    yield f"{job.name}: {where}.{key} is {found}"
        for key, text in pod.annotations.items():
            if template["metadata"]["annotations"].get(key) != text:
                yield f"{job.name}: annotation {key}"
        if template["metadata"]["annotations"].get("cluster-autoscaler.kubernetes.io/safe-to-evict") != "false":
            yield f"{job.name}: a node autoscaler may evict it to save a node"
        if pod.setup and not _container(job)["command"][2].startswith(pod.setup):
            yield f"{job.name}: the fabric's setup does not come first"


def _container(job: Node) -> Json:
    """Return the container with the devices, and its arguments except bash's."""
    container: Json = at(job, "spec.template.spec.containers.0") or {}
    return {**container, "args": (container.get("command") or [])[4:]}


def _variables(job: Node) -> Json:
    return {variable["name"]: variable for variable in _container(job).get("env") or []}


INVARIANTS: tuple[Invariant, ...] = (
    ray_runs_in_the_configured_mode,
    the_job_has_a_fixed_size,
    the_job_runs_once,
    the_jobs_pods_have_a_node_each,
    the_job_needs_the_token,
    the_job_has_no_api_token,
    the_head_is_found,
    the_job_waits_as_long_as_the_capacity_may_take,
    the_job_runs_our_script,
    the_job_carries_what_the_fabric_needs,
)
