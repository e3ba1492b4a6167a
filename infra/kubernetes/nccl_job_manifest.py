"""The objects of an NCCL Job: a guard, its scripts, a headless Service and the Job itself.

Pure: plain Kubernetes JSON from an `NcclJob`, whose `GpuPod` is that of Ray's workers, so that it reaches the fabric
exactly as they do. No pod is privileged or shares the host's network.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from infra.kubernetes.facts import CLUSTER_SCOPED
from infra.kubernetes.nccl_images import PROGRAMS, SSH_PORT
from infra.kubernetes.nccl_job import NcclJob
from infra.kubernetes.queue_manifest import Admission
from infra.kubernetes.ray_manifest import NAMESPACE, kept

FOLDER = "nccl_job_pod"
SCRIPTS = "/etc/rdma-ray"
KEY = "/etc/rdma-ray-key"
HOSTFILE = "/run/rdma-ray/hosts"
OURS = "rdma-ray/nccl-job"
"""The label of every object of a Job: `kubectl delete … -l rdma-ray/nccl-job=NAME` finds them all."""

GRACE_S = 60
"""A pod that is asked to end stops mpirun (30 s at most) and lets the others know (20 s)."""

KEPT_S = 3600
"""Seconds that a finished Job, and its log, stay."""

SPLITS = {"world": "0x0", "rails": "0x7"}
"""NCCL_TESTS_SPLIT_MASK: all ranks in one communicator, or one communicator per rail of eight (NVIDIA/nccl-tests:
doc/PERFORMANCE.md, a0b82b22)."""


def manifests(job: NcclJob) -> list[dict[str, Any]]:
    """All objects of the Job in the order to make them; none of them is secret. Where the image
    has no keys, its pods wait for `key_secret`."""
    return [*_claims(job), _guard(job), _scripts(job), _service(job), _job(job)]


def key_secret(job: NcclJob, private: str, public: str) -> dict[str, Any]:
    """The Secret with the key pair of the Job's sshd: for logins, and for hosts to prove who they are.

    `private` and `public` are what ssh-keygen writes. It is no part of `manifests`, which anybody may keep or show.
    """
    kind, blob, *_ = public.split()
    files = {"ssh-privatekey": private, "ssh-publickey": public, "known_hosts": f"* {kind} {blob}\n"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _named(job, job.key_secret),
        "type": "kubernetes.io/ssh-auth",
        "stringData": files,
    }


def script_files() -> dict[str, str]:
    """The files that run in the pods, by their names."""
    folder = Path(__file__).parent / FOLDER
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.is_file()}


def mpirun(job: NcclJob) -> list[str]:
    """The mpirun command, without the variables that pod 0 passes on: those are known only there."""
    image, sweep = job.image, job.sweep
    return [
        image.mpirun,
        *("--hostfile", HOSTFILE),
        # Said, and not left to the slots: fewer ranks would measure something else.
        *("-np", str(job.nodes * job.gpus)),
        # nccl-tests and NCCL place their threads themselves, each beside its GPU.
        *("--bind-to", "none"),
        # Pod 0 logs in everywhere itself. In a tree, pods would log in to each other, and a failure would be elsewhere.
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--mca", "plm_rsh_agent", ssh(job)),
        # Hosts are listed by their full names, and pod 0 must know its own among them.
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
        # MPI only says hello; NCCL moves the data. Other transports would look for the RDMA NICs and take some.
        *("--mca", "btl", "self,tcp"),
        # A pod has up to ten interfaces; the others do not lead from every node to every node.
        *("--mca", "btl_tcp_if_include", "eth0"),
        *("--mca", "oob_tcp_if_include", "eth0"),
        f"{image.tests}/{PROGRAMS[sweep.op]}",
        *("-b", sweep.begin, "-e", sweep.end, "-f", str(sweep.factor)),
        # One GPU per rank; every element is checked, outside the timed region.
        *("-g", "1", "-w", str(sweep.warmup), "--iters", str(sweep.iterations), "-c", "1"),
    ]


def ssh(job: NcclJob) -> str:
    """How pods log in to each other, a command in one line."""
    if not job.image.own_keys:
        return f"ssh -F {SCRIPTS}/ssh_config"
    # Everybody has the image's keys, so that checking them would prove nothing. The network policy keeps others out.
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "ConnectTimeout=10")
    return " ".join(("ssh", *(f"-o {option}" for option in options), "-o LogLevel=ERROR", f"-p {SSH_PORT}"))


def _claims(job: NcclJob) -> list[dict[str, Any]]:
    """The pod's templates under names of the Job's own: those of the stack belong to the stack, and would go with the
    Job. What has no namespace (a DeviceClass) is the stack's, and stays so."""
    made = []
    for manifest in job.pod.objects:
        if manifest["kind"] not in CLUSTER_SCOPED:
            own = copy.deepcopy(dict(manifest))
            made.append({**own, "metadata": _named(job, _own(job, own["metadata"]["name"]))})
    return made


def _own(job: NcclJob, template: str) -> str:
    return f"{job.name}-{template}"


def _guard(job: NcclJob) -> dict[str, Any]:
    """Only the Job's own pods come in: its sshd answers root, with keys that on GKE everybody has."""
    own = {"matchLabels": job.labels}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _named(job),
        "spec": {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]},
    }


def _scripts(job: NcclJob) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _named(job), "data": script_files()}


def _service(job: NcclJob) -> dict[str, Any]:
    """The headless Service that gives every pod of the Job its host name, ready or not: they look before they are."""
    spec = {
        "clusterIP": "None",
        "selector": job.labels,
        "publishNotReadyAddresses": True,
        "ports": [{"name": "ssh", "port": SSH_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _named(job), "spec": spec}


def _job(job: NcclJob) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        # A measurement with one pod of another life would be another measurement.
        "backoffLimit": 0,
        # The word of pod 0 counts; the others only serve.
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        # Without rules the status would not say which pod failed with which code, or that a node was taken away.
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {"containerName": "nccl", "operator": "NotIn", "values": [0]}},
            ]
        },
        "podReplacementPolicy": "Failed",
        # The bound for pods that never get a node; those that have one are bound below.
        "activeDeadlineSeconds": job.nodes_s + job.pod_s,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": _template(job),
    }
    metadata = _named(job)
    if job.queue is not None:
        # Kueue lets the Job begin when all its nodes are to be had; the label alone would let it begin at once.
        spec["suspend"] = True
        admission = Admission(queue=job.queue, lent_s=job.pod_s if job.lent else None)
        metadata["labels"] |= admission.labels
        metadata |= {"annotations": admission.annotations} if admission.annotations else {}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(job: NcclJob) -> dict[str, Any]:
    pod, container = job.pod.pod(), job.pod.container()
    for claim in pod.get("resourceClaims", ()):
        claim["resourceClaimTemplateName"] = _own(job, claim["resourceClaimTemplateName"])
    keys = not job.image.own_keys
    nccl = {
        "name": "nccl",
        "image": job.image.image,
        **container,
        "command": ["/bin/bash", "-c", _start(job), "nccl", *mpirun(job)],
        "env": [*container["env"], *({"name": name, "value": value} for name, value in _environment(job).items())],
        "volumeMounts": [
            *container["volumeMounts"],
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
            *([{"name": "key", "mountPath": KEY, "readOnly": True}] if keys else []),
        ],
    }
    return {
        "metadata": {"annotations": {**kept(), **job.pod.annotations}},
        "spec": {
            **pod,
            "restartPolicy": "Never",
            # Together: `<job>-<index>.<service>` resolves, and is what the pod calls itself, as mpirun compares them.
            "subdomain": job.name,
            "setHostnameAsFQDN": True,
            # Counts from the moment that the pod has a node: capacity may take hours, a measurement must not.
            "activeDeadlineSeconds": job.pod_s,
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": job.labels}, "topologyKey": "kubernetes.io/hostname"}
                    ]
                }
            },
            "volumes": [
                *pod["volumes"],
                {"name": "scripts", "configMap": {"name": job.name}},
                # Readable by root alone, or ssh would not use it.
                *([{"name": "key", "secret": {"secretName": job.key_secret, "defaultMode": 0o400}}] if keys else []),
            ],
            # The first container gets the devices.
            "containers": [nccl],
        },
    }


def _start(job: NcclJob) -> str:
    """One line of bash, which the fabric's set-up wants; `exec` leaves the pod's signals to the script."""
    unset = f"unset {' '.join(job.image.unset)}" if job.image.unset else ""
    # A step that fails is told and goes no further than that: what it was for shows in the log, and the judge looks.
    steps = [
        f"{step} || echo {shlex.quote(f'failed: {step}')} >&2"
        for step in (unset, job.image.prepare, job.pod.setup)
        if step
    ]
    return "; ".join([*steps, f'exec bash {SCRIPTS}/pod.sh "$@"'])


def _environment(job: NcclJob) -> dict[str, str]:
    """What the script reads, and what the measurement needs beside the fabric's own."""
    return {
        # Evidence: plugin, NICs, GPUDirect RDMA and algorithms stand in pod 0's log, beside the results. Rank 0 writes
        # a line for every call: that costs microseconds, which count among small messages and not at 1 GiB.
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,TUNING,ENV",
        "NCCL_TESTS_SPLIT_MASK": SPLITS[job.sweep.split],
        **({"NCCL_NET": job.net} if job.net else {}),
        # mpirun refuses to run as root unless told twice; a container of one's own is what it means (Open MPI 4.1).
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


def _named(job: NcclJob, name: str | None = None) -> dict[str, Any]:
    return {"name": name or job.name, "namespace": NAMESPACE, "labels": {OURS: job.name}}


class _Block(str):
    """Text that YAML writes as a block, line by line."""


class _Dumper(yaml.SafeDumper):
    """Writes scripts readably, and every mention of an object out."""

    def ignore_aliases(self, _: object) -> bool:
        return True


_Dumper.add_representer(
    _Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def as_yaml(objects: Sequence[Mapping[str, Any]]) -> str:
    """The objects as one YAML stream, as `kubectl apply -f -` takes it."""
    return yaml.dump_all(
        [_blocks(each) for each in objects], Dumper=_Dumper, sort_keys=False, width=110, explicit_start=True
    )


def _blocks(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _blocks(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_blocks(inner) for inner in value]
    return _Block(value) if isinstance(value, str) and "\n" in value else value
