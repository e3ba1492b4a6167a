"""Container images with nccl-tests, Open MPI and sshd in them: where each of these lies, and who says so.

Facts only. The fabric's plugin comes with the node on GKE (gIB, mounted) and with the image on EKS (aws-ofi-nccl).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.pins import EFA_NCCL_TESTS_IMAGE, GIB_DIAGNOSTIC_IMAGE

SSH_PORT = 222
"""The port of GKE's image, and ours where we may choose: it is privileged, so that only root serves logins there."""


@dataclass(frozen=True, kw_only=True)
class NcclImage:
    """An image and what a Job has to know of it.

    tests: the folder of all_gather_perf and the others. mpirun: how it is called; by its whole path it tells the other
    nodes where its own programs lie (mpirun(1), Open MPI 4.1: the same as --prefix). sshd: what serves logins on
    `SSH_PORT`, in the foreground. own_keys: whether the image has a key pair baked in, which then everybody has.
    prepare: what its own examples run first, "" where nothing. unset: variables that the image sets against ours.
    """

    image: str
    tests: str
    mpirun: str
    sshd: str
    own_keys: bool
    prepare: str
    unset: tuple[str, ...]
    source: str


SSHD = "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f /etc/rdma-ray/sshd_config"
"""Our own sshd, with the Job's key and nothing else (`nccl_job_pod/sshd_config`)."""

IMAGES: Mapping[str, NcclImage] = {
    "gke": NcclImage(
        image=GIB_DIAGNOSTIC_IMAGE,
        tests="/third_party/nccl-tests/build",
        mpirun="mpirun",
        sshd="/scripts/container_entry.sh daemon",
        own_keys=True,
        # The image's cache of libraries was written before the node's driver was mounted.
        prepare="/sbin/ldconfig",
        unset=(),
        source="GoogleCloudPlatform/container-engine-accelerators: gpudirect-rdma/nccl-test-managed-rdma.yaml, "
        "2433eeed (the tag); saltysoup/gke-h200-dws-example and gke-ai-hypercompute-custom, 2026-04-06 (the rest)",
    ),
    "eks": NcclImage(
        image=EFA_NCCL_TESTS_IMAGE,
        tests="/opt/nccl-tests/build",
        mpirun="/opt/amazon/openmpi/bin/mpirun",
        sshd=SSHD,
        own_keys=False,
        prepare="",
        # Open MPI takes either a list of interfaces to use or one to leave out; the image has the second.
        unset=("OMPI_MCA_btl_tcp_if_exclude",),
        source="awslabs/awsome-distributed-ai: micro-benchmarks/nccl-tests/nccl-tests.Dockerfile, 0b55ba5f, and "
        "kubernetes/nccl-tests-gb200.yaml, c428b24b, read 2026-11",
    ),
}

PROGRAMS: Mapping[str, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
    "sendrecv": "sendrecv_perf",
}
"""The program of each operation (NVIDIA/nccl-tests: src/Makefile, a0b82b22)."""
