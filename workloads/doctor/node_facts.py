"""What the probe of a Ray node finds: its result on the client, which has no Ray."""

from __future__ import annotations

from workloads.hardware.gpu import GpuReading
from workloads.hardware.nic import Nic
from workloads.results.documents import ResultPart

KIND = "node-probe"  # event with one node's probe


class ProbedGpu(GpuReading):
    """A GPU of a node: its UUID, and its state now."""

    uuid: str


class NodeFacts(ResultPart):
    """State of one Ray node. A field that could not be read is None, and `missing` says why.

    Attributes:
        started, ended: Times on the node's own clock; `sent` and `answered` are the head's, around them.
        versions: Of Ray, Python, torch and NCCL; None for one that is not there.
        libraries: Which of the libraries that plugins of NCCL load the loader finds.
        plugin: NCCL's network plugin by file name, with the beginning of its SHA-256; None without one.
        shm: Bytes of /dev/shm. memlock: limit of locked memory in bytes, -1 if there is none.
        lustre: Which of LUSTRE_DRIVERS are loaded; None where no Lustre file system is mounted.
        head: The name of the head's Service; `head_error` says why it does not resolve.
    """

    node_id: str
    ip: str
    host: str
    sent: float = 0.0
    answered: float = 0.0
    started: float
    ended: float
    versions: dict[str, str | None]
    libraries: dict[str, bool]
    plugin: str | None = None
    shm: int | None
    memlock: int
    ipc_lock: bool
    lustre: list[str] | None = None
    head: str | None = None
    head_error: str | None = None
    driver: str | None
    nics: list[Nic]
    gpus: list[ProbedGpu]
    missing: list[str]
