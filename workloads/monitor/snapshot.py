"""The document of `rdma-ray top`: what the monitor's driver writes on the head and the client reads.

Its values come unchanged from the cluster. A value that cannot be read is None, and never zero.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads import untrusted
from workloads.exits import WorkloadError
from workloads.hardware.gpu import APPLICATION_XIDS, THROTTLING
from workloads.options import Hidden
from workloads.results.documents import ResultPart, Time

PROBE_STARTS = "the probe is starting"
NOT_PROBED = "not probed: a probe would keep the autoscaler from removing an idle node"
IDLE, RUNNING, DRAINING, DEAD = "idle", "running", "draining", "dead"


class MonitorOptions(BaseModel, frozen=True, extra="forbid"):
    """Request of one monitor job.

    Attributes:
        name: The job's ID, from which the names of its files follow.
        gbps_per_nic: Line rate of each NIC as the stack knows it; None to read it from the NIC.
        elastic: Whether an autoscaler removes idle nodes.
    """

    name: Hidden[str] = Field(pattern=r"^[\w-]{1,80}$")
    cluster: Hidden[str]
    gbps_per_nic: Hidden[int | None] = None
    elastic: Hidden[bool] = False

    @property
    def file(self) -> str:
        """Name of the file with the newest snapshot, in Ray's log folder on the head."""
        return f"rdma-ray-top-{self.name}.json"

    @property
    def lease(self) -> str:
        """Name of the package that the client uploads repeatedly, as long as it lives."""
        return f"rdma-ray-top-{self.name}.zip"


class Lease(BaseModel, frozen=True, extra="forbid"):
    """Content of the lease. The driver ends when `count` has not changed for `LEASE_S` of its own seconds."""

    count: int
    interval_s: float = Field(ge=0.5, le=60)


LEASE_S = 90.0
SIZE = 2**24
"""Bytes of a snapshot as JSON: 1,000 nodes of 8 GPUs and 8 NICs have about 5 MiB."""

Real = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""Numbers that can be added, divided and printed. Whatever runs on the head may write a snapshot."""


class NicState(ResultPart):
    """Port of an RDMA NIC. Rates are Gbit/s over the last interval.

    Attributes:
        gbps: Line rate in each direction.
        errors: Error counters that changed since the probe started.
    """

    name: str
    state: str | None = None
    gbps: Real | None = None
    sent_gbps: Real | None = None
    received_gbps: Real | None = None
    errors: dict[str, Whole] = Field(default_factory=dict)

    @property
    def down(self) -> bool:
        return self.state is not None and self.state != "ACTIVE"


class GpuState(ResultPart):
    """State of a GPU by NVML: percent, bytes, watts, °C, MHz.

    Attributes:
        limited_by: Reasons that limit the clocks now, by NVML's names.
        xids: Xid errors since the probe started.
        ecc_uncorrected: Uncorrected memory errors since the driver was loaded.
    """

    index: Whole
    name: str | None = None
    utilization: Whole | None = None
    memory_used: Whole | None = None
    memory_total: Whole | None = None
    power_w: Real | None = None
    power_limit_w: Real | None = None
    temperature_c: Whole | None = None
    sm_mhz: Whole | None = None
    sm_max_mhz: Whole | None = None
    limited_by: list[str] | None = None
    xids: list[Whole] = Field(default_factory=list)
    ecc_uncorrected: Whole | None = None

    @property
    def throttled(self) -> list[str]:
        return [reason for reason in self.limited_by or () if reason in THROTTLING]

    @property
    def alerts(self) -> list[str]:
        """Faults as text: `thermal`, `Xid 79`, `ECC 2`. Xid errors of applications are not GPU faults."""
        words = {"SwThermalSlowdown": "thermal", "HwThermalSlowdown": "thermal", "HwPowerBrakeSlowdown": "power brake"}
        found = [words[reason] for reason in self.throttled]
        found += [f"Xid {xid}" for xid in self.xids if xid not in APPLICATION_XIDS]
        found += [f"ECC {self.ecc_uncorrected}"] if self.ecc_uncorrected else []
        return list(dict.fromkeys(found))


class Reading(ResultPart):
    """Readings of a probe on its node.

    Attributes:
        seconds: Interval that rates and `cpu_percent` cover; None in the first reading, which has neither.
        missing: Values that it cannot read, and why.
    """

    seconds: Real | None = None
    cpu_percent: Real | None = None
    memory_used: Whole | None = None
    memory_total: Whole | None = None
    gpus: list[GpuState] = Field(default_factory=list)
    nics: list[NicState] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)


class Amount(ResultPart):
    """Amount of a resource of Ray."""

    used: Real
    total: Real


class NodeState(ResultPart):
    """A node of Ray.

    Attributes:
        group: Node group of the autoscaler, if there is one.
        state: `running`, `idle` (none of its resources is in use), `draining` or `dead`.
        idle_s: Seconds for which Ray counts it as idle. The autoscaler removes nodes by it.
        reading: None where no probe has answered; `note` has the reason.
    """

    id: str
    address: str
    role: Literal["head", "worker"]
    group: str = ""
    state: str
    idle_s: Real | None = None
    cpus: Amount
    gpus: Amount
    reading: Reading | None = None
    note: str | None = None

    @property
    def alive(self) -> bool:
        return self.state != DEAD

    @property
    def alerts(self) -> list[str]:
        """Alerts of GPUs and NICs: `thermal`, `Xid 79 ×2`, `NIC down`, `NIC errors`."""
        if self.reading is None:
            return []
        found = [alert for gpu in self.reading.gpus for alert in gpu.alerts]
        found += ["NIC down" for nic in self.reading.nics if nic.down]
        found += ["NIC errors" for nic in self.reading.nics if nic.errors]
        return [f"{alert} ×{n}" if (n := found.count(alert)) > 1 else alert for alert in dict.fromkeys(found)]


class JobRow(ResultPart):
    """A submitted job: running, pending, or one of the last that ended. Without its command, which may hold secrets."""

    id: str
    workload: str = ""
    status: str
    started: Time | None = None
    ended: Time | None = None
    message: str = ""


class ActorClass(ResultPart):
    """Actors of a class, by state. Of the dead ones, Ray remembers the last."""

    name: str
    states: dict[str, Whole]


class PlacementGroupState(ResultPart):
    """A placement group; `why` is set while it waits."""

    id: str
    name: str = ""
    strategy: str
    state: str
    bundles: str
    why: str = ""


class Demand(ResultPart):
    """A pending request for resources, and why it waits."""

    what: str
    count: Whole
    why: str


class Snapshot(ResultPart):
    """State of a cluster at `time`, on the head's clock.

    Attributes:
        starting: Nodes that the autoscaler is starting.
        failed: Reasons why others did not start.
        notes: Values that could not be read.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True, allow_inf_nan=False)

    schema_: Literal["rdma-ray/top/1"] = "rdma-ray/top/1"
    cluster: str
    ray: str
    time: Time
    interval_s: Real
    nodes: list[NodeState]
    jobs: list[JobRow] = Field(default_factory=list)
    actors: list[ActorClass] = Field(default_factory=list)
    groups: list[PlacementGroupState] = Field(default_factory=list)
    demands: list[Demand] = Field(default_factory=list)
    starting: list[str] = Field(default_factory=list)
    failed: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the snapshot as `--json` writes it."""
        return self.model_dump(mode="json", by_alias=True)


def encode(snapshot: Snapshot) -> str:
    """Return a snapshot as a JSON string of compressed JSON, which is a tenth of it plain."""
    text = json.dumps(snapshot.document(), allow_nan=False, separators=(",", ":"))
    return json.dumps(base64.b64encode(zlib.compress(text.encode(), 1)).decode())


def decode(text: object) -> Snapshot:
    """Return the snapshot in a JSON string of `encode`. WorkloadError if it has none.

    Long lists and strings are cut, with a note.
    """
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(str(text), validate=True), SIZE)
        if unpack.unconsumed_tail:
            raise ValueError(f"it has more than {SIZE // 2**20} MiB")
        limit = untrusted.Limit(SIZE)
        snapshot = Snapshot.model_validate(limit.value(untrusted.read(data)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise WorkloadError(f"the monitor's file is not a snapshot of this version: {where}: {first['msg']}") from None
    except (*untrusted.MALFORMED, zlib.error) as error:
        raise WorkloadError(f"the monitor's file is not a snapshot of this version: {error}") from None
    note = [f"{limit.cut} lists, texts or levels, which are too long"] if limit.cut else []
    return snapshot.model_copy(update={"notes": [*snapshot.notes, *note]})
