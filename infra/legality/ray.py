"""Rules about Ray: how many workers, which release, which image."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.catalog.machines import CATALOG
from infra.catalog.pins import RAY_IN
from infra.problems import OUR_CONTRACT, Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

KUBERAY = "ray-project/kuberay: ray-operator/controllers/ray/utils/validation.go, v1.7.0"
RAY_IMAGES = "ray-project/ray: ray-images.json and image_tags_lib.py, read 2026-08"
RAY_VERSIONS = "ray-project/kuberay: samples, rayVersion is the image's Ray, v1.7.0"
BLACKWELL = "CUDA before 12.8 has no code for compute capability 10.0 (sm_100); GKE preflight notes, 2026-08"

TOKEN_SINCE = (2, 52, 0)
BLACKWELL_GPUS = ("B200", "B300", "GB200")
BLACKWELL_CUDA = 128
LOCAL_CPUS = 1024


def nodes_min_above_max(s: Settings) -> Problem | None:
    """The fewest nodes are more than the most."""
    if s.target == "local" or s.nodes.min <= s.nodes.max:
        return None
    return Problem(
        settings=("nodes.min", "nodes.max"),
        says=f"The cluster cannot keep at least {s.nodes.min} and at most {s.nodes.max} nodes.",
        fix=f"raise nodes.max to {s.nodes.min}, or lower nodes.min",
        source=OUR_CONTRACT,
    )


def workers_above_nodes(s: Settings) -> Problem | None:
    """A worker takes a node whole, so there are never more workers than nodes."""
    if s.target == "local" or s.ray.max_workers <= s.nodes.max:
        return None
    return Problem(
        settings=("ray.maxWorkers", "nodes.max"),
        says=f"A Ray worker takes all GPUs and NICs of a node, so of {s.ray.max_workers} workers only {s.nodes.max} "
        "ever start, and a job that needs the rest waits for ever.",
        fix=f"lower ray.maxWorkers to {s.nodes.max}, or raise nodes.max",
        source="GKE docs gke-ai-hypercompute-custom, 2026-04-06: an RDMA pod takes every GPU and NIC of its node",
    )


def workers_min_above_max(s: Settings) -> Problem | None:
    """The fewest workers are more than the most."""
    if s.target == "local" or s.queue == "kueue" or s.ray.min_workers <= s.ray.max_workers:
        return None
    return Problem(
        settings=("ray.minWorkers", "ray.maxWorkers"),
        says=f"KubeRay refuses a group of at least {s.ray.min_workers} and at most {s.ray.max_workers} workers.",
        fix=f"raise ray.maxWorkers to {s.ray.min_workers}, or lower ray.minWorkers",
        source=KUBERAY,
    )


def ray_too_old_for_tokens(s: Settings) -> Problem | None:
    """Without a token, whoever reaches the dashboard runs code."""
    if _numbers(s.ray.version) >= TOKEN_SINCE:
        return None
    return Problem(
        settings=("ray.version",),
        says=f"Ray {s.ray.version} knows no token: whoever reaches its dashboard runs programs on every node.",
        fix='set ray.version to "2.52.0" or later',
        source=f"{KUBERAY}; CVE-2023-48022",
    )


def image_runs_another_ray(s: Settings) -> Problem | None:
    """The image's tag says which Ray is in it, and it is the one that KubeRay is told."""
    image = s.ray.image
    if s.target == "local" or image is None or "@sha256:" in image or _gpu_alias(image):
        return None
    tag = _tag(image)
    inside = RAY_IN.get(image)
    named = [inside] if inside else re.findall(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", tag)
    if s.ray.version in named:
        return None
    found = f"it runs {inside}" if inside else f"its tag names {named[0]}" if named else "its tag names no Ray version"
    other = f'set ray.version to "{inside}"' if inside else f"use an image whose tag contains {s.ray.version}"
    return Problem(
        settings=("ray.image", "ray.version"),
        says=f"KubeRay would be told that the image runs Ray {s.ray.version}, but {found}: probes and start commands "
        "follow the version, and a wrong one leaves workers that never become ready.",
        fix=f"{other}, or pin the image by digest (@sha256:…)",
        source=RAY_VERSIONS,
    )


def image_is_the_gpu_alias(s: Settings) -> Problem | None:
    """`-gpu` is not "for GPUs", it is CUDA 12.1."""
    if s.target == "local" or s.ray.image is None or not _gpu_alias(s.ray.image):
        return None
    return Problem(
        settings=("ray.image",),
        says="The tag -gpu stands for CUDA 12.1, whatever else the image's name suggests; H200 and B200 need newer.",
        fix=f"name the CUDA version, such as {s.ray.version}-py311-cu128",
        source=RAY_IMAGES,
    )


def image_too_old_for_blackwell(s: Settings) -> Problem | None:
    """B200 and B300 need CUDA 12.8."""
    machine = CATALOG.get(s.nodes.machine or "")
    if s.target == "local" or s.ray.image is None or machine is None or machine.cloud != s.target:
        return None
    cuda = re.search(r"(?:^|[-_.])cu(\d{3})(?:$|[-_.])", _tag(s.ray.image))
    if machine.gpu not in BLACKWELL_GPUS or machine.unsupported or cuda is None or int(cuda[1]) >= BLACKWELL_CUDA:
        return None
    return Problem(
        settings=("ray.image", "nodes.machine"),
        says=f"CUDA {cuda[1][:2]}.{cuda[1][2:]} has no code for {machine.gpu} GPUs: the first kernel would fail.",
        fix="use an image for CUDA 12.8 or later, such as a tag with -cu128",
        source=BLACKWELL,
    )


def local_cpus_beyond_reason(s: Settings) -> Problem | None:
    """Ray starts a worker process for every logical CPU that is asked for."""
    if (
        s.target != "local"
        or s.nodes.count is None
        or s.nodes.cpus is None
        or s.nodes.count * s.nodes.cpus <= LOCAL_CPUS
    ):
        return None
    return Problem(
        settings=("nodes.count", "nodes.cpus"),
        says=f"{s.nodes.count} nodes with {s.nodes.cpus} logical CPUs each let Ray start "
        f"{s.nodes.count * s.nodes.cpus} worker processes on this one machine.",
        fix=f"keep the product at {LOCAL_CPUS} or less; local clusters are for trying things out",
        source="rdma-ray, this project's choice, 2026-11",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _gpu_alias(image: str) -> bool:
    return bool(re.search(r"-gpu$", _tag(image)))


RULES: tuple[Rule, ...] = (
    nodes_min_above_max,
    workers_above_nodes,
    workers_min_above_max,
    ray_too_old_for_tokens,
    image_runs_another_ray,
    image_is_the_gpu_alias,
    image_too_old_for_blackwell,
    local_cpus_beyond_reason,
)
