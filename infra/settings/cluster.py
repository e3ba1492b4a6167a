"""Settings and rules that every target on Kubernetes has: both clouds and a cluster of the user's."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from infra.catalog.fabrics import FABRICS, Fabric
from infra.catalog.pins import AWS_RAY_TRAIN, RAY_IMAGE, RAY_IN
from infra.settings.common import ClusterAccess
from infra.settings.cost import Cost
from infra.settings.fields import KUBERAY
from infra.settings.pods import LAYOUT, PodRules, not_a_mount_path
from infra.settings.problems import CONTRACT, Finding, Findings, rule
from infra.settings.service import ServiceRules
from infra.settings.teams import Team

BLACKWELL = "NVIDIA docs, Blackwell Compatibility Guide, 2025-05: CUDA before 12.8 has no code for sm_100"
HTTP_MODE = "ray-project/kuberay: HTTPMode submits the entry point to the head, v1.6.2"
JOB_SIZE = (
    "Kubernetes docs, concepts/workloads/controllers/job, read 2026-11; ray-project/kuberay: rayjob_controller.go "
    "(preRunningDeadlineSeconds ends with a cluster that is ready), v1.6.2"
)
RAY_IMAGES = "ray-project/ray: ray-images.json and image_tags_lib.py, read 2026-08"
RAY_VERSIONS = "ray-project/kuberay: samples, rayVersion is the image's Ray, v1.7.0"
WHOLE_NODE = "GKE docs gke-ai-hypercompute-custom, 2026-04-06: an RDMA pod takes every GPU and NIC of its node"
BLACKWELL_GPUS = ("B200", "B300", "GB200", "RTX PRO 6000")
BLACKWELL_CUDA = 128
WITHOUT = {
    "rayproject/ray": ("rdma-ray", "torchrun"),
    **{image.partition(":")[0]: ("rdma-ray",) for image in (RAY_IMAGE, AWS_RAY_TRAIN)},
}
"""Commands that others' images lack, whatever the tag, by repository (ray-project/ray: docker/base-deps; AWS' as in
pins.py). Without torchrun there is no torch."""
OWN_IMAGE = "build this project's image with `rdma-ray image build --push`, which sets ray.image (docs/images.md)"


class ClusterSettings(PodRules, ServiceRules):
    """Part of a target's settings. No model, so that its fields keep their order."""

    if TYPE_CHECKING:
        fabric: str
        monitoring: str
        protect: bool

        @property
        def access(self) -> ClusterAccess:
            """Access to the cluster."""

        @property
        def own_cluster(self) -> bool:
            """Whether the stack makes the cluster."""

        @property
        def cost(self) -> Cost | None:
            """Cost per hour; None where the cluster is not the stack's."""

        @property
        def location(self) -> str | None:
            """Zone of the nodes; None if not known."""

        @property
        def namespace(self) -> str:
            """Namespace of Ray's objects."""

        @property
        def local_queue(self) -> str | None:
            """LocalQueue that admits the workload; None without a queue."""

        @property
        def cpus_per_node(self) -> int | None:
            """CPUs that a worker requests."""

        @property
        def nics_per_node(self) -> int | None:
            """RDMA NICs of a node; None if not known."""

        @property
        def node_wait_s(self) -> int:
            """Seconds that a pod may wait for its node."""

    @property
    def team(self) -> Team | None:
        """Team of these settings; None for the stack's own Ray."""
        return None

    @property
    def fabric_row(self) -> Fabric:
        """Catalog row of the fabric."""
        return FABRICS[self.fabric]

    @property
    def gpu_price(self) -> float | None:
        """Price of a GPU for an hour, US dollars; None if it is not known."""
        node = self.cost.workers.each.dollars if self.cost else None
        return node / self.gpus_per_node if node is not None and self.gpus_per_node else None

    @rule("nodes.min", "nodes.max", source=CONTRACT)
    def nodes_min_above_max(self) -> Findings:
        least, most = self.nodes.min, self.nodes.max
        if least > most:
            fix = f"raise nodes.max to {least}, or lower nodes.min"
            yield Finding(f"The cluster cannot have at least {least} and at most {most} nodes.", fix)

    @rule("nodes.maxHours", "nodes.min", source=CONTRACT)
    def permanent_nodes_have_no_limit(self) -> Findings:
        least = self.nodes.min
        if self.nodes.max_hours and least > 0:
            fix = "set nodes.min to 0, or remove nodes.maxHours"
            yield Finding(f"nodes.maxHours does not limit the bill: nodes.min keeps {least} idle nodes up.", fix)

    @rule("storage.mountPath", source=LAYOUT)
    def mount_path_hides_system(self) -> Findings:
        return not_a_mount_path(self.storage.mount_path)

    @rule("ray.maxWorkers", "nodes.max", source=WHOLE_NODE)
    def workers_above_nodes(self) -> Findings:
        workers, nodes = self.ray.max_workers, self.nodes.max
        if workers > nodes:
            fix, extra = f"lower ray.maxWorkers to {nodes}, or raise nodes.max", workers - nodes
            yield Finding(f"A Ray worker takes a whole node: {extra} of {workers} workers would wait forever.", fix)

    @rule("ray.cpuWorkers", "ray.mode", source=CONTRACT)
    def cpu_workers_of_indexed_job(self) -> Findings:
        if self.ray.cpu_workers and self.ray.mode == "indexed-job":
            fix = "set ray.cpuWorkers to 0, or choose another ray.mode"
            yield Finding("All pods of an Indexed Job are alike, so it has no CPU workers.", fix)

    @rule("ray.check", "ray.mode", source=CONTRACT)
    def check_of_indexed_job(self) -> Findings:
        if self.ray.check != "off" and self.ray.mode == "indexed-job":
            fix = "set ray.check to off, or choose another ray.mode"
            yield Finding("An Indexed Job fails with its first bad node, so a check cannot wait for another one.", fix)

    @rule("ray.check", "ray.image", source=RAY_IMAGES)
    def check_without_torch(self) -> Findings:
        if self.ray.check == "full" and "torchrun" in _missing(self.ray.image):
            fix = f"set ray.check to quick, or {OWN_IMAGE}"
            yield Finding("The image has no torch, which the reduction of a full check needs.", fix)

    @rule("ray.minWorkers", "ray.maxWorkers", source=KUBERAY)
    def workers_min_above_max(self) -> Findings:
        least, most = self.ray.min_workers, self.ray.max_workers
        if least > most:
            fix = f"raise ray.maxWorkers to {least}, or lower ray.minWorkers"
            yield Finding(f"KubeRay rejects a worker group of at least {least} and at most {most} workers.", fix)

    @rule("ray.image", "ray.version", source=RAY_VERSIONS)
    def image_runs_another_ray(self) -> Findings:
        version, inside = self.ray.version, RAY_IN.get(self.ray.image)
        named = [inside] if inside else re.findall(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", _tag(self.ray.image))
        if "@sha256:" in self.ray.image or _tag(self.ray.image).endswith("-gpu") or version in named:
            return
        actual = f"the image runs {inside}" if inside else f"the tag names {named[0] if named else 'no Ray version'}"
        fix = f'set ray.version to "{inside}"' if inside else f"use an image whose tag contains {version}"
        yield Finding(
            f"KubeRay would probe and start this image as Ray {version}, but {actual}: no worker would become ready.",
            f"{fix}, or pin the image by digest (@sha256:…)",
        )

    @rule("ray.image", source=RAY_IMAGES)
    def image_is_gpu_alias(self) -> Findings:
        if _tag(self.ray.image).endswith("-gpu"):
            fix = f"choose a tag with the CUDA version, such as {self.ray.version}-py311-cu128"
            yield Finding("A tag that ends with -gpu means CUDA 12.1, which is too old for H200 and B200 GPUs.", fix)

    @rule("ray.image", "nodes.machine", source=BLACKWELL)
    def image_too_old_for_blackwell(self) -> Findings:
        machine, cuda = self.machine, re.search(r"(?:^|[-_.])cu(\d{3})(?:$|[-_.])", _tag(self.ray.image))
        if not machine or machine.gpu not in BLACKWELL_GPUS or machine.unsupported:
            return
        if cuda and int(cuda[1]) < BLACKWELL_CUDA:
            fix = "use an image for CUDA 12.8 or later, such as a tag with -cu128"
            yield Finding(
                f"CUDA {cuda[1][:2]}.{cuda[1][2:]} has no code for {machine.gpu} GPUs: the first kernel fails.", fix
            )

    @rule("ray.image", source=RAY_IMAGES, warning=True)
    def image_has_no_torch(self) -> Findings:
        if "torchrun" in _missing(self.ray.image):
            needs = self.fabric_row.transport.needs
            lacks = f"neither torch nor {needs}" if needs else "no torch"
            yield Finding(
                f"This image has {lacks}: benchmarks and training fail, and so does your code unless it brings them.",
                OWN_IMAGE,
            )

    @rule("ray.image", "ray.entrypoint", source=RAY_IMAGES)
    def entrypoint_is_not_in_the_image(self) -> Findings:
        command = (self.ray.entrypoint or "").split()[:1]
        if command and command[0] in _missing(self.ray.image):
            yield Finding(f"This image has no {command[0]}, so the job would fail on nodes that cost money.", OWN_IMAGE)

    @rule("ray.entrypoint", "ray.mode", source=CONTRACT)
    def entrypoint_without_job(self) -> Findings:
        mode, job = self.ray.mode, self.ray.mode in ("job", "indexed-job")
        if not job and self.ray.entrypoint is not None:
            fix = "set ray.mode to job or indexed-job, or remove ray.entrypoint"
            other = " and submit it with `ray job submit`" if mode == "cluster" else ""
            yield Finding(f"Mode {mode} has no entry point, so nothing would run this one.", fix + other)
        elif job and self.ray.entrypoint is None:
            fix = 'set ray.entrypoint, such as "python /app/train.py", or ray.mode to cluster'
            yield Finding(f"Mode {mode} runs one entry point and ends with it, but none is set.", fix)

    @rule("ray.minWorkers", "ray.maxWorkers", "ray.mode", source=JOB_SIZE)
    def job_size_not_fixed(self) -> Findings:
        mode, least, most = self.ray.mode, self.ray.min_workers, self.ray.max_workers
        if mode in ("job", "indexed-job") and least != most:
            fix = f"set ray.minWorkers to {most} (or remove it), or ray.mode to cluster"
            yield Finding(f"Mode {mode} always has ray.maxWorkers nodes ({most}) and cannot start with {least}.", fix)

    @rule("ray.entrypoint", "ray.mode", "ray.maxWorkers", source="rdma-ray: docs/indexed-job.md")
    def torchrun_not_on_every_pod(self) -> Findings:
        line, others = self.ray.entrypoint or "", self.ray.max_workers - 1
        if not _runs_torchrun(line):
            return
        if self.ray.mode == "job":
            fix = "set ray.mode to indexed-job, which runs torchrun on every node, or write rdma-ray run -- torchrun …"
            yield Finding("A job's entry point runs on the head only, which has no GPU for torchrun.", fix, HTTP_MODE)
        elif self.ray.mode == "indexed-job" and others and line.split()[0] != "torchrun":
            fix = "begin it with torchrun, and move the preceding commands into the image or the program"
            yield Finding(f"It begins without torchrun, so one pod runs it; {others} more idle at full cost.", fix)


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _missing(image: str) -> tuple[str, ...]:
    """Return the commands that are known to be missing in an image."""
    repository = image.partition("@")[0].removeprefix("index.").removeprefix("docker.io/")
    return WITHOUT.get(repository.removesuffix(f":{_tag(image)}"), ())


def _runs_torchrun(line: str) -> bool:
    """Return whether a shell command line runs torchrun, by any path or as a module.

    Source: PyTorch docs, elastic/run, read 2026-11.
    """
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        words = list(reader)
    except ValueError:
        # An unterminated quote; the shell reports it.
        return False
    begins = True
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        module = words[at + 1 : at + 3] == ["-m", "torch.distributed.run"]
        if begins and (name == "torchrun" or (name.startswith("python") and module)):
            return True
        # A command begins after an operator, and after leading assignments and wrappers.
        begins = set(word) <= set("();<>|&") or (begins and ("=" in word or word in ("env", "exec", "time", "nohup")))
    return False
