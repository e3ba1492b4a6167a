"""Rules of what a stack file adds to Ray's pods: variables, Secrets, volumes, and the size of the head."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from infra.catalog.fabrics import BOOTSTRAP, FABRICS
from infra.settings.common import HEAD_CPUS, HEAD_MEMORY_GIB, CloudRay, CloudStorage, pairs
from infra.settings.pod_file import PodFile, pod_file_problems
from infra.settings.problems import CONTRACT, Finding, Findings, rule

if TYPE_CHECKING:
    from infra.settings.existing import KubernetesStorage

LAYOUT = "Filesystem Hierarchy Standard 3.0; rayproject images keep Ray in /home/ray"
NAMES = "Kubernetes docs, concepts/overview/working-with-objects/names: DNS subdomain names, read 2026-11-27"
SECRETS = "Kubernetes docs, concepts/configuration/secret, good practices, read 2026-11-27"

SYSTEM_FOLDERS = re.compile(r"/(bin|boot|dev|etc|lib|lib32|lib64|opt|proc|root|run|sbin|sys|tmp|usr|var)(/|$)")
RESERVED = re.compile(
    r"RAY_(AUTH_.*|ADDRESS|DEDUP_LOGS|local_fs_capacity_threshold|AUTOSCALER_.*|TRAIN_WORKER_GROUP_START_TIMEOUT_S"
    r"|gcs_rpc_server_reconnect_.*|GRACEFUL_SHUTDOWN_.*|SERVE_.*)|RDMA_RAY_.*|KUBERAY_.*|POD_IP|JOB_UID|LD_LIBRARY_PATH|NVIDIA_VISIBLE_DEVICES"
    r"|PYTHONUNBUFFERED|" + "|".join(each.name for row in FABRICS.values() for each in (*BOOTSTRAP, *row.environment))
)
"""Variables that the stack or the operator sets; a test compares them with the pods of every stack."""
SENSITIVE = re.compile(r"(?i)(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|(ACCESS|PRIVATE|SECRET)_KEY(_ID)?)$")
"""Names of variables that hold a secret; a value that is a path names a file with it."""


class PodRules:
    """Part of a target's settings. No model, so that its fields keep their order."""

    if TYPE_CHECKING:
        target: str
        ray: CloudRay

        @property
        def storage(self) -> CloudStorage | KubernetesStorage:
            """Folder that every Ray node sees."""

    @rule("ray.env", source=CONTRACT)
    def variable_not_accepted(self) -> Findings:
        names = [name for name, _ in pairs(self.ray.env)]
        for entry, name in zip(self.ray.env, names, strict=True):
            if not re.match(r"[A-Za-z_]\w*=", entry):
                yield Finding(f"{name} is not a variable with a value.", "write NAME=VALUE, such as NCCL_DEBUG=WARN")
            elif names.count(name) > 1:
                yield Finding(f"{name} has two values, and a pod would keep one of them.", "name each variable once")
            elif RESERVED.fullmatch(name):
                yield Finding(f"The stack sets {name} itself, and its own value takes precedence.", f"remove {name}")

    @rule("ray.env", source=SECRETS)
    def variable_is_a_secret(self) -> Findings:
        for name, value in pairs(self.ray.env):
            if SENSITIVE.search(name) and value and not value.startswith("/"):
                fix = (
                    f"put a new value into a Kubernetes Secret with the key {name}, and name the Secret in ray.secrets"
                )
                yield Finding(f"The stack file and the description of every pod show {name} in clear text.", fix)

    @rule("ray.secrets", source=NAMES)
    def secret_malformed(self) -> Findings:
        for name, folder in pairs(self.ray.secrets):
            yield from not_a_name(name)
            yield from not_a_mount_path(folder) if folder else ()

    @rule("ray.volumes", source=NAMES)
    def volume_malformed(self) -> Findings:
        for name, folder in pairs(self.ray.volumes):
            yield from not_a_name(name)
            if not folder:
                yield Finding(f"The claim {name} has no folder to be mounted at.", f"write {name}=/{name}")
            yield from not_a_mount_path(folder)

    @rule("ray.pullSecrets", source=NAMES)
    def pull_secret_malformed(self) -> Findings:
        for name in self.ray.pull_secrets:
            yield from not_a_name(name)

    @rule("ray.podFile", source=CONTRACT)
    def pod_file_malformed(self) -> Findings:
        yield from pod_file_problems(self.ray.pod_file)
        for path in _mounted_by(self.ray.pod_file):
            yield from not_a_mount_path(path)

    @rule("ray.priorityClass", source=NAMES)
    def priority_class_malformed(self) -> Findings:
        return not_a_name(self.ray.priority_class or "none")

    @rule("ray.volumes", "ray.secrets", "storage.mountPath", source=CONTRACT)
    def folder_mounted_twice(self) -> Findings:
        folders = [folder for _, folder in (*pairs(self.ray.volumes), *pairs(self.ray.secrets)) if folder]
        folders += _mounted_by(self.ray.pod_file)
        folders += [self.storage.mount_path] if self.storage.source is not None else []
        plain = [posixpath.normpath(folder) for folder in folders]
        for folder in plain:
            if plain.count(folder) > 1:
                yield Finding(f"Kubernetes rejects a pod with two volumes at {folder}.", "choose different folders")

    @rule("ray.headCpus", "ray.headMemoryGib", "ray.mode", source=CONTRACT)
    def head_size_unused(self) -> Findings:
        size = (self.ray.head_cpus, self.ray.head_memory_gib)
        if self.ray.mode == "indexed-job" and size != (HEAD_CPUS, HEAD_MEMORY_GIB):
            fix = "remove ray.headCpus and ray.headMemoryGib, or choose another ray.mode"
            yield Finding("The head of an Indexed Job is one of its GPU pods, so nothing would read this.", fix)


def _mounted_by(pod_file: str | None) -> list[str]:
    """Return the paths at which the file mounts volumes; none if it is malformed."""
    try:
        return [str(each.get("mountPath")) for each in PodFile.read(pod_file).mounts]
    except ValueError:
        return []


def not_a_name(name: str) -> Findings:
    """Find that no object of Kubernetes can have a name."""
    if len(name) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
        fix = "write the name as kubectl shows it: a-z, 0-9, - and ., such as huggingface"
        yield Finding(f"Kubernetes has no object {name}: its names have other characters.", fix)


def not_a_mount_path(path: str) -> Findings:
    """Find that nothing can be mounted at a path, or that a volume there would hide files of the image."""
    clean = posixpath.normpath(path)
    if not path.startswith("/"):
        fix = f"write /{clean.lstrip('./')}"
        yield Finding(f"{path} is not an absolute path, so Kubernetes rejects the mount.", fix)
    elif path.rstrip("/") != clean.rstrip("/") or "//" in path or ":" in path:
        fix = "remove the .., the double slash or the colon"
        yield Finding(f"Kubernetes rejects {path}, which contains .., a double slash or a colon.", fix)
    elif clean in ("/", "/home", "/home/ray") or SYSTEM_FOLDERS.match(clean):
        fix = "choose a separate folder, such as /bucket or /mnt/bucket"
        yield Finding(f"A volume at {clean} hides files of the image that Ray, CUDA or NCCL need.", fix)
