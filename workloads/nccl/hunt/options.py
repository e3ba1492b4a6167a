"""Options of `bench hunt`. `resolve` sets the fields that depend on the stack; the driver reads the model as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from workloads.exits import WorkloadError
from workloads.nccl.options import GangOptions, Network
from workloads.nccl.units import parse_size
from workloads.options import Hidden, by_gpus, option

if TYPE_CHECKING:
    from infra.outputs import Outputs


DEFAULTS: dict[str, tuple[Any, Any]] = {
    "size": ("4M", "1G"), "iterations": (5, 20), "samples": (3, 5), "threshold": (0.5, 0.9),
}  # fmt: skip
"""Without GPUs, and with. Ranks on CPUs share cores: their noise of tens of percent hides smaller slowdowns."""
_DEFAULT = {name: by_gpus(*pair) for name, pair in DEFAULTS.items()}


class HuntOptions(GangOptions):
    """One hunt: the search's settings, and the all_gather of each test."""

    unit: Literal["node", "rank"] = Field(
        "node", description="Unit to accuse: a node, or a rank (one GPU, also on a single node)."
    )
    size: str | None = Field(None, description=f"Size of each all_gather. {_DEFAULT['size']}")
    iterations: Annotated[int | None, option("-n")] = Field(
        None, ge=1, description=f"Runs per sample. {_DEFAULT['iterations']}"
    )
    samples: int | None = Field(None, ge=1, description=f"Samples per test; their median counts. {_DEFAULT['samples']}")
    threshold: float | None = Field(
        None,
        ge=0.05,
        le=0.99,
        description=f"Fail below this share of the fleet's reference. {_DEFAULT['threshold']}",
    )
    floor: float | None = Field(None, ge=0, description="Busbw of healthy nodes in GB/s; two nodes alone require it.")
    full: bool = Field(False, description="Measure every pair (up to 32 units).")
    single: Annotated[bool, option(name="--burn", negative="--no-burn")] = Field(
        True, description="Measure each unit alone first."
    )
    timeout_s: Annotated[float, option(name="--timeout")] = Field(
        120, ge=1, description="Seconds before a test counts as a hang."
    )
    seed: int = Field(0, description="Seed of the random choice of partners.")
    inject_fault: Hidden[None] = None
    """Tests put a fault into the transport or the device, below the code that has to find it."""
    target: Hidden[str] = ""
    nics: Hidden[int | None] = None
    """RDMA NICs of a node."""
    network: Hidden[Network | None] = None
    """Network that NCCL's log has to name; None on machines without RDMA."""

    def resolve(self, outputs: Outputs, *, gpu_direct: bool = True) -> HuntOptions:
        """Return the complete options for this stack. WorkloadError names an option that does not fit."""
        placed = self.placed(outputs)
        update = {name: getattr(self, name) or pair[placed.use_gpu] for name, pair in DEFAULTS.items()}
        network = Network.of(outputs.fabric.row, gpu_direct=gpu_direct)
        facts = {"target": outputs.target, "nics": outputs.fabric.nics, "network": network}
        resolved = placed.model_copy(update={**update, **facts})
        if resolved.units < 2:
            raise WorkloadError(
                f"one {self.unit} has nothing to be compared with: use more --nodes, or --unit rank for the GPUs of one"
            )
        try:
            parse_size(resolved.size or "")
        except ValueError as error:
            raise WorkloadError(f"--size: {error}") from error
        return resolved

    @property
    def rails(self) -> int:
        """Ranks of a unit."""
        return self.world[1] if self.unit == "node" else 1

    @property
    def units(self) -> int:
        nodes, per_node = self.world
        return nodes * per_node // self.rails

    @property
    def bytes(self) -> int:
        """Size of the all_gather over all ranks of a test."""
        return parse_size(self.size or "")


SHORT = {"size": ("4M", "64M"), "iterations": (5, 5), "samples": (1, 3), "threshold": (0.5, 0.8)}
"""Options without GPUs, and with: seconds per test, so a wider threshold than that of `bench hunt` (our choice)."""
SHORT_S = 60.0


def request_of(nodes: int, per_node: int, wait_s: float, outputs: Outputs) -> str:
    """Return the request of a check of so many nodes. WorkloadError if there is nothing to compare."""
    if nodes < 2:
        raise WorkloadError(f"--check: {nodes} node has no other one to reduce with: add --nodes 2")
    short = {name: pair[outputs.nodes.gpus_per_node > 0] for name, pair in SHORT.items()}
    options = HuntOptions.model_validate(
        {"nodes": nodes, "per_node": per_node, "wait_s": wait_s, "timeout_s": SHORT_S, "single": False, **short}
    )
    return options.resolve(outputs).to_json()
