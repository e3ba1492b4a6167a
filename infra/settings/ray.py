"""Rules about Ray: its release, its image, the number of workers, and the entry point of a job."""

from __future__ import annotations

import re
import shlex
from typing import Any

from infra.catalog.machines import CATALOG
from infra.catalog.pins import RAY_IN
from infra.settings.common import KUBERAY, CloudSettings
from infra.settings.problems import CONTRACT, Finding, Found, Rules

BLACKWELL = "CUDA before 12.8 has no code for compute capability 10.0 (sm_100); GKE preflight notes, 2026-08"
HTTP_MODE = "ray-project/kuberay: HTTPMode submits the entry point to the head, v1.6.2"
JOBS = (
    "Kubernetes docs, concepts/workloads/controllers/job, read 2026-11; ray-project/kuberay: "
    "preRunningDeadlineSeconds ends with a cluster that is ready, ray-operator/controllers/ray/rayjob_controller.go, "
    "v1.6.2"
)
KUEUE = "kubernetes-sigs/kueue 0.19.2: RayCluster webhook, ff69552e, 2026-08-22"
RAY_IMAGES = "ray-project/ray: ray-images.json and image_tags_lib.py, read 2026-08"
RAY_VERSIONS = "ray-project/kuberay: samples, rayVersion is the image's Ray, v1.7.0"
WHOLE_NODE = "GKE docs gke-ai-hypercompute-custom, 2026-04-06: an RDMA pod takes every GPU and NIC of its node"

TOKEN_SINCE = (2, 52, 0)
BLACKWELL_GPUS = ("B200", "B300", "GB200")
BLACKWELL_CUDA = 128

EVERY_TARGET = Rules()
RULES = Rules()
"""Rules of both clouds."""
rule = RULES.add


@rule("ray.maxWorkers", "nodes.max", source=WHOLE_NODE)
def workers_above_nodes(s: CloudSettings) -> Finding:
    """A worker takes a whole node, so there are never more workers than nodes."""
    if s.ray.max_workers > s.nodes.max:
        yield Found(
            f"A Ray worker takes all GPUs and NICs of a node. Only {s.nodes.max} of {s.ray.max_workers} workers would "
            "start, and a job that needs the others would wait forever.",
            f"lower ray.maxWorkers to {s.nodes.max}, or raise nodes.max",
        )


@rule("ray.minWorkers", "ray.maxWorkers", source=KUBERAY)
def workers_min_above_max(s: CloudSettings) -> Finding:
    """The fewest workers are more than the most."""
    if s.queue != "kueue" and s.ray.min_workers > s.ray.max_workers:
        yield Found(
            f"KubeRay rejects a group of at least {s.ray.min_workers} and at most {s.ray.max_workers} workers.",
            f"raise ray.maxWorkers to {s.ray.min_workers}, or lower ray.minWorkers",
        )


@EVERY_TARGET.add("ray.version", source=f"{KUBERAY}; CVE-2023-48022")
def ray_without_tokens(s: Any) -> Finding:
    """Ray authenticates clients by token since 2.52."""
    if tuple(int(part) for part in s.ray.version.split(".")) < TOKEN_SINCE:
        yield Found(
            f"Ray {s.ray.version} has no token authentication: everyone who reaches its dashboard can run programs on "
            "every node.",
            'set ray.version to "2.52.0" or later',
        )


@rule("ray.image", "ray.version", source=RAY_VERSIONS)
def image_runs_another_ray(s: CloudSettings) -> Finding:
    """The image's tag names its Ray, and that is the release in the RayCluster."""
    if "@sha256:" in s.ray.image or is_gpu_alias(s.ray.image):
        return
    inside = RAY_IN.get(s.ray.image)
    named = [inside] if inside else re.findall(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", tag(s.ray.image))
    if s.ray.version in named:
        return
    found = f"it runs {inside}" if inside else f"its tag names {named[0]}" if named else "its tag names no Ray version"
    other = f'set ray.version to "{inside}"' if inside else f"use an image whose tag contains {s.ray.version}"
    yield Found(
        f"The RayCluster would declare Ray {s.ray.version} for this image, but {found}. KubeRay's probes and start "
        "commands follow the version; with a wrong one, workers never become ready.",
        f"{other}, or pin the image by digest (@sha256:…)",
    )


@rule("ray.image", source=RAY_IMAGES)
def image_is_gpu_alias(s: CloudSettings) -> Finding:
    """The tag `-gpu` means CUDA 12.1, not "for GPUs"."""
    if is_gpu_alias(s.ray.image):
        yield Found(
            "The tag -gpu is an alias of CUDA 12.1, whatever the rest of the name suggests; H200 and B200 need a later "
            "release.",
            f"name the CUDA version, such as {s.ray.version}-py311-cu128",
        )


@rule("ray.image", "nodes.machine", source=BLACKWELL)
def image_too_old_for_blackwell(s: CloudSettings) -> Finding:
    """B200 and B300 need CUDA 12.8."""
    machine = CATALOG[s.nodes.machine]
    cuda = re.search(r"(?:^|[-_.])cu(\d{3})(?:$|[-_.])", tag(s.ray.image))
    if machine.gpu in BLACKWELL_GPUS and not machine.unsupported and cuda and int(cuda[1]) < BLACKWELL_CUDA:
        yield Found(
            f"CUDA {cuda[1][:2]}.{cuda[1][2:]} has no code for {machine.gpu} GPUs: the first kernel would fail.",
            "use an image for CUDA 12.8 or later, such as a tag with -cu128",
        )


@rule("ray.mode", "ray.entrypoint", source=CONTRACT)
def job_without_entrypoint(s: CloudSettings) -> Finding:
    """A job ends with its entry point, so it needs one."""
    if s.ray.mode != "cluster" and s.ray.entrypoint is None:
        yield Found(
            f"Mode {s.ray.mode} runs one entry point and ends with it; none is set.",
            'set ray.entrypoint, such as "python /app/train.py", or ray.mode to cluster',
        )


@rule("ray.entrypoint", "ray.mode", source=CONTRACT)
def entrypoint_without_job(s: CloudSettings) -> Finding:
    """A cluster gets its jobs later, from its users."""
    if s.ray.mode == "cluster" and s.ray.entrypoint is not None:
        yield Found(
            "A cluster has no entry point: nothing would run this one.",
            "set ray.mode to job or indexed-job, or remove ray.entrypoint and submit it later with `ray job submit`",
        )


@rule("ray.minWorkers", "ray.maxWorkers", "ray.mode", source=JOBS)
def job_size_not_fixed(s: CloudSettings) -> Finding:
    """Nothing adds a node to a job, and it begins when it has every one."""
    if s.ray.mode != "cluster" and s.ray.min_workers != s.ray.max_workers:
        yield Found(
            f"Mode {s.ray.mode} has ray.maxWorkers nodes from beginning to end, {s.ray.max_workers} here; it cannot "
            f"begin with {s.ray.min_workers}.",
            f"set ray.minWorkers to {s.ray.max_workers} (or remove it), or ray.mode to cluster",
        )


@rule("ray.entrypoint", "ray.mode", source=HTTP_MODE)
def torchrun_on_the_head(s: CloudSettings) -> Finding:
    """A RayJob's entry point runs on the head, which has no GPU; torchrun runs on every node."""
    if s.ray.mode == "job" and runs_torchrun(s.ray.entrypoint or ""):
        yield Found(
            "A job's entry point runs on the head only, which has no GPU: torchrun would find nothing to train on.",
            "set ray.mode to indexed-job, which runs torchrun on every node, or let the entry point request GPUs from "
            "Ray",
        )


@rule("ray.entrypoint", "ray.maxWorkers", "ray.mode", source="rdma-ray: docs/indexed-job.md")
def torchrun_on_one_pod(s: CloudSettings) -> Finding:
    """An entry point that begins with torchrun runs on every pod of an Indexed Job, any other on the first only."""
    entrypoint = s.ray.entrypoint or ""
    if s.ray.mode != "indexed-job" or s.ray.max_workers == 1 or entrypoint.split()[:1] == ["torchrun"]:
        return
    if runs_torchrun(entrypoint):
        yield Found(
            "Only an entry point that begins with torchrun runs on every pod. This one runs on the first pod; the "
            f"other {s.ray.max_workers - 1} would be paid for and idle.",
            "begin it with torchrun, and move what comes before into the image or the program",
        )


@rule("ray.minWorkers", "ray.maxWorkers", "queue", source=KUEUE)
def kueue_size_not_fixed(s: CloudSettings) -> Finding:
    """Kueue admits a cluster of a fixed size."""
    if s.queue == "kueue" and s.ray.min_workers != s.ray.max_workers:
        yield Found(
            "Kueue admits a cluster as a whole, so its size is fixed; it rejects one that Ray's autoscaler resizes.",
            f"set ray.minWorkers to {s.ray.max_workers} (or remove it), or queue to none",
        )


def tag(image: str) -> str:
    """Return an image's tag; empty without one."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def is_gpu_alias(image: str) -> bool:
    """Return whether the image's tag ends with the alias `-gpu`."""
    return tag(image).endswith("-gpu")


def runs_torchrun(line: str) -> bool:
    """Return whether a command of a shell's line is torchrun, by any path, or the module that torchrun is a name for.

    Source: PyTorch docs, elastic/run, read 2026-11.
    """
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        words = list(reader)
    except ValueError:
        # A quote that never ends; the shell reports it.
        return False
    begins = True
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        module = words[at + 1 : at + 3] == ["-m", "torch.distributed.run"]
        if begins and (name == "torchrun" or (name.startswith("python") and module)):
            return True
        # A command begins after an operator, and after assignments and wrappers at its beginning.
        begins = set(word) <= set("();<>|&") or (begins and ("=" in word or word in ("env", "exec", "time", "nohup")))
    return False
