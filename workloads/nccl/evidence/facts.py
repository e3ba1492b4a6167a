"""What the evidence consists of, typed. Pure: neither ray nor torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Transport = Literal["NET", "P2P", "SHM", "NVLS", "COLLNET"]


class Part(BaseModel):
    """A part of the evidence: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Channel(Part):
    """One connection from NCCL's log: `Channel 00/0 : 0[0] -> 8[0] [send] via NET/gIB/0/GDRDMA`.

    Ranks of the communicator; `plugin` (gIB, Libfabric, Socket, IB …) and `device` (its NIC) only for NET; `gdrdma`
    whether the NIC reads and writes the GPU's memory itself. `end` is the side that wrote the line, whose NIC `device`
    is; `size` counts the ranks of the communicator where the log tells which one it was. Equal connections on several
    channels are one entry. A COLLNET entry has its own rank on both sides.
    """

    sender: int
    receiver: int
    transport: Transport
    plugin: str | None
    device: int | None
    gdrdma: bool
    end: Literal["send", "receive"] | None = None
    size: int | None = None


class Choice(Part):
    """What NCCL chose for an operation (`AllReduce`) of a size in bytes: `RING` and `SIMPLE`."""

    op: str
    size: int
    algorithm: str
    protocol: str


class LogFacts(Part):
    """What NCCL_DEBUG=INFO output says, of one rank or of several whose logs were put together.

    `plugin` is the network that NCCL chose (gIB, Libfabric, Socket, IB), None where the log does not say. `hcas` are
    the NICs in use by name, in the log's order. `gdrdma_hcas` are the indexes of those with `GPU Direct RDMA Enabled`,
    `no_gdrdma_hcas` those with `Disabled`. `algorithms` are `Algo RING proto SIMPLE` choices as `RING/SIMPLE`.
    `hosts` maps ranks to host names as far as the log tells. `truncated` is whether the log ends in the middle of the
    initialisation or of a line. `warnings` are NCCL WARN lines. `lines` counts those of NCCL.

    Of several ranks: `plugins` and `versions` are all that were seen, `nics_by_host` the names by host, `nics_found`
    the number of NICs that Libfabric found by host (it joins several into one device, so that `hcas` are fewer),
    `provider` its provider (`efa`) and `fabric` (`efa-direct`). `choices` are the algorithms by operation and size,
    `nvls_channels` how many channels NVLink SHARP got. `unfinished` are the ranks whose initialisation began and did
    not end, `warnings_left_out` how many further lines of warning there were,
    `channels_left_out` how many connections a result of many ranks does not repeat (see `thinned`).
    """

    nccl_version: str | None
    plugin: str | None
    plugin_version: str | None
    nranks: int | None
    nnodes: int | None
    hosts: dict[int, str]
    hcas: list[str]
    gdrdma_hcas: list[int]
    no_gdrdma_hcas: list[int]
    channels: list[Channel]
    algorithms: list[str]
    warnings: list[str]
    truncated: bool
    lines: int
    plugins: list[str] = []
    versions: list[str] = []
    nics_by_host: dict[str, list[str]] = {}
    nics_found: dict[str, int] = {}
    provider: str | None = None
    fabric: str | None = None
    choices: list[Choice] = []
    nvls_channels: int | None = None
    unfinished: list[int] = []
    warnings_left_out: int = 0
    channels_left_out: int = 0


class Counter(Part):
    """What a NIC counted during the run: bytes sent and received, and errors, after minus before.

    `errors` and `congestion` (notifications and marks) hold the counters that moved. `details` are EFA's bytes by kind
    of operation. `reset` says that the NIC began to count anew meanwhile, so that the figures are the least it did.
    """

    nic: str
    sent: int
    received: int
    errors: dict[str, int]
    congestion: dict[str, int] = {}
    details: dict[str, int] = {}
    reset: bool = False


class Nic(Part):
    """A port of an RDMA NIC as the kernel shows it: `state` ACTIVE or DOWN, `rate` such as `400 Gb/sec (4X NDR)`."""

    name: str
    state: str | None
    rate: str | None
    link_layer: str | None
    firmware: str | None
    pci: str | None
    numa_node: int | None


class RankEvidence(Part):
    """The evidence of one rank. `counters` are those of its whole node, and only on one rank of each node.

    So are `nics` and `driver`, the version of the GPUs' kernel driver.
    """

    rank: int
    log: LogFacts | None
    counters: list[Counter] | None
    host: str | None = None
    nics: list[Nic] | None = None
    driver: str | None = None


class Evidence(Part):
    """All ranks' evidence. `image` is the container image's digest where the cluster tells, `topology` by node.

    `missing` says what could not be had, on which ranks, and why.
    """

    ranks: list[RankEvidence]
    image: str | None
    topology: dict[str, str]
    missing: list[str]
