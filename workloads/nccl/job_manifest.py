"""Objects of an NCCL Job: NetworkPolicy, scripts, headless Service, and the Job. Imports no Pulumi.

The Job's pods use the `GpuPod` of Ray's workers, so both use the fabric in the same way. No pod is privileged or shares
the host's network.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from infra.kubernetes.pods import (
    CLUSTER_SCOPED,
    NCCL_JOB_POD,
    NO_EVICTION,
    SCRIPTS,
    headless_service_spec,
    indexed_job_spec,
    one_pod_per_node,
    pull_secrets,
    script_files,
    scripts_mount,
    scripts_volume,
    variable,
)
from infra.kubernetes.queue_objects import admission_marks
from infra.nccl_job import PROGRAMS, SSH_PORT, NcclJob

KEY = "/etc/rdma-ray-key"
HOSTFILE = "/run/rdma-ray/hosts"
OWNER_LABEL = "rdma-ray/nccl-job"
"""Label of every object of a Job: `kubectl delete … -l rdma-ray/nccl-job=NAME` finds them all."""

GRACE_S = 60
"""Seconds that a pod has to stop mpirun (at most 30 s) and notify the others (20 s)."""

KEEP_S = 3600
"""Seconds before a finished Job and its log are deleted."""

SPLITS = {"world": "0x0", "rails": "0x7"}
"""NCCL_TESTS_SPLIT_MASK: all ranks in one communicator, or one communicator per rail of eight (NVIDIA/nccl-tests:
doc/PERFORMANCE.md, a0b82b22)."""


def manifests(job: NcclJob) -> list[dict[str, Any]]:
    """Return all objects of the Job in the order to create them; none is secret.

    If the image has no keys, the pods wait for `key_secret`.
    """
    return [
        *_claim_templates(job),
        _network_policy(job),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(job), "data": script_files(NCCL_JOB_POD)},
        _service(job),
        _job(job),
    ]


def key_secret(job: NcclJob, private: str, public: str) -> dict[str, Any]:
    """Return the Secret with the key pair of the Job's sshd, for logins and for host keys.

    It is not part of `manifests`, which contain nothing secret. The keys are in ssh-keygen's format.
    """
    kind, blob, *_ = public.split()
    files = {"ssh-privatekey": private, "ssh-publickey": public, "known_hosts": f"* {kind} {blob}\n"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, job.key_secret),
        "type": "kubernetes.io/ssh-auth",
        "stringData": files,
    }


def mpirun(job: NcclJob) -> list[str]:
    """Return the mpirun command, without the variables to pass on, which are known only in pod 0."""
    image, sweep = job.image, job.sweep
    return [
        image.mpirun,
        *("--hostfile", HOSTFILE),
        # Explicit instead of derived from slots: fewer ranks would measure something else.
        *("-np", str(job.nodes * job.gpus)),
        # nccl-tests and NCCL bind their own threads, each close to its GPU.
        *("--bind-to", "none"),
        # Pod 0 logs in to every pod, so its log shows every failure. In a tree, pods would log in to each other.
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--mca", "plm_rsh_agent", ssh(job)),
        # The hostfile has full names, and pod 0 must find its own among them.
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
        # MPI only sets up the ranks; NCCL transfers the data. Other transports would open RDMA NICs.
        *("--mca", "btl", "self,tcp"),
        # A pod has up to ten interfaces; the others do not connect all nodes.
        *("--mca", "btl_tcp_if_include", "eth0"),
        *("--mca", "oob_tcp_if_include", "eth0"),
        f"{image.tests}/{PROGRAMS[sweep.op]}",
        *("-b", sweep.begin, "-e", sweep.end, "-f", str(sweep.factor)),
        # One GPU per rank; check every element, outside the timed region.
        *("-g", "1", "-w", str(sweep.warmup), "--iters", str(sweep.iterations), "-c", "1"),
    ]


def ssh(job: NcclJob) -> str:
    """Return the command with which pods log in to each other."""
    if not job.image.own_keys:
        return f"ssh -F {SCRIPTS}/ssh_config"
    # The image's keys are public, so checking them would prove nothing. The NetworkPolicy keeps others out.
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "ConnectTimeout=10")
    return " ".join(("ssh", *(f"-o {option}" for option in options), "-o LogLevel=ERROR", f"-p {SSH_PORT}"))


def as_yaml(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return the objects as one YAML stream for `kubectl apply -f -`."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110, explicit_start=True)


def _claim_templates(job: NcclJob) -> list[dict[str, Any]]:
    """Return copies of the pod's claim templates under the Job's own names, so that it owns none of the stack's.

    A cluster-scoped object (a DeviceClass) belongs to the stack and is not copied.
    """
    copies = [copy.deepcopy(dict(one)) for one in job.pod.objects if one["kind"] not in CLUSTER_SCOPED]
    return [{**one, "metadata": _metadata(job, f"{job.name}-{one['metadata']['name']}")} for one in copies]


def _network_policy(job: NcclJob) -> dict[str, Any]:
    """Return the policy that admits only the Job's own pods: its sshd serves root, on GKE with public keys."""
    pods = {"matchLabels": job.labels}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(job),
        "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]},
    }


def _service(job: NcclJob) -> dict[str, Any]:
    spec = headless_service_spec(job.labels, ssh=SSH_PORT)
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job), "spec": spec}


def _job(job: NcclJob) -> dict[str, Any]:
    spec: dict[str, Any] = {
        **indexed_job_spec("nccl", job.nodes),
        # Limits pods that are never scheduled; the pod's own deadline limits the others.
        "activeDeadlineSeconds": job.nodes_s + job.pod_s,
        "ttlSecondsAfterFinished": KEEP_S,
        "template": _template(job),
    }
    metadata = _metadata(job)
    if job.queue is not None:
        # Kueue starts the Job when there is room for all its nodes; with the label alone it would start at once.
        spec["suspend"] = True
        labels, annotations = admission_marks(job.queue, job.pod_s if job.provisioned else None)
        metadata["labels"] |= labels
        metadata |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(job: NcclJob) -> dict[str, Any]:
    pod, container = job.pod.pod(), job.pod.container()
    for claim in pod.get("resourceClaims", ()):
        claim["resourceClaimTemplateName"] = f"{job.name}-{claim['resourceClaimTemplateName']}"
    mounts = [scripts_mount(SCRIPTS)]
    volumes = [scripts_volume(job.name)]
    if not job.image.own_keys:
        mounts.append({"name": "key", "mountPath": KEY, "readOnly": True})
        # Readable by root only: ssh rejects a key with a wider mode.
        volumes.append({"name": "key", "secret": {"secretName": job.key_secret, "defaultMode": 0o400}})
    nccl = {
        "name": "nccl",
        "image": job.image.image,
        **container,
        "command": ["/bin/bash", "-c", _command(job), "nccl", *mpirun(job)],
        "env": [*container["env"], *(variable(name, value) for name, value in _environment(job).items())],
        "volumeMounts": [*container["volumeMounts"], *mounts],
    }
    return {
        "metadata": {"annotations": {**NO_EVICTION, **job.pod.annotations}},
        "spec": {
            **pod,
            **pull_secrets(job.pull_secrets),
            "restartPolicy": "Never",
            # Both are needed: `<job>-<index>.<service>` resolves and is the pod's host name, which mpirun compares.
            "subdomain": job.name,
            "setHostnameAsFQDN": True,
            # Counts from scheduling: capacity may take hours, a measurement must not.
            "activeDeadlineSeconds": job.pod_s,
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "affinity": one_pod_per_node(job.labels),
            "volumes": [*pod["volumes"], *volumes],
            # Only the first container gets the devices.
            "containers": [nccl],
        },
    }


def _command(job: NcclJob) -> str:
    """Return one line of bash, which the fabric's setup needs; `exec` passes the pod's signals to the script."""
    unset = f"unset {' '.join(job.image.unset)}" if job.image.unset else ""
    # A failed step is reported and does not end the pod: the log shows its effect, which the verdict considers.
    steps = [
        f"{step} || echo {shlex.quote(f'failed: {step}')} >&2"
        for step in (unset, job.image.prepare, job.pod.setup)
        if step
    ]
    return "; ".join([*steps, f'exec bash {SCRIPTS}/pod.sh "$@"'])


def _environment(job: NcclJob) -> dict[str, str]:
    """Return the variables of the script, and of the measurement beyond those of the fabric."""
    return {
        # Evidence: pod 0's log shows plugin, NICs, GPUDirect RDMA and algorithms along with the results. The line that
        # rank 0 writes per call costs microseconds, which matter for small messages and not at 1 GiB.
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,TUNING,ENV",
        # Not to stdout, where these lines would land inside the rows that nccl-tests writes in parts. Both streams of a
        # container are in its log, line by line (NVIDIA/nccl: src/debug.cc opens the file; read 2026-11-26).
        "NCCL_DEBUG_FILE": "/dev/stderr",
        "NCCL_TESTS_SPLIT_MASK": SPLITS[job.sweep.split],
        # mpirun refuses to run as root without both; in a container root is the normal user (Open MPI 4.1).
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "RDMA_RAY_JOB": job.name,
        "RDMA_RAY_SERVICE": job.name,
        "RDMA_RAY_NODES": str(job.nodes),
        "RDMA_RAY_GPUS": str(job.gpus),
        "RDMA_RAY_WAIT_S": str(job.wait_s),
        "RDMA_RAY_RUN_S": str(job.run_s),
        "RDMA_RAY_SSHD": job.image.sshd,
        "RDMA_RAY_SSH": ssh(job),
    }


def _metadata(job: NcclJob, name: str | None = None) -> dict[str, Any]:
    return {"name": name or job.name, "namespace": job.namespace, "labels": {OWNER_LABEL: job.name}}


class _Dumper(yaml.SafeDumper):
    """Dumper that writes scripts as blocks and repeats an object instead of using an alias."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
