"""Options of `bench nccl` and `bench multigpu`, which the driver reads as JSON. Imports neither torch nor infra.

A field that is None or empty depends on the preset or the stack until `resolve` sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from workloads.exits import WorkloadError
from workloads.nccl.point_patterns import PAIRS, PATTERNS, Limits, choose
from workloads.nccl.presets import DEFAULT, PRESETS, Algorithm, DataType, Mode, Preset, PresetName, environment
from workloads.nccl.units import BUSBW_FACTORS, REDUCTIONS, parse_size, sweep, written_size
from workloads.options import WAIT_S, Hidden, by_gpus, option

if TYPE_CHECKING:
    from infra.catalog.fabrics import Transport
    from infra.outputs import Outputs


class Network(BaseModel, frozen=True):
    """What NCCL's log shows of a transport: patterns of its name, the usual one first, and libfabric's provider.

    `gpu_direct` is whether the machine has GPUDirect RDMA.
    """

    names: tuple[str, ...]
    provider: str | None = None
    gpu_direct: bool = True

    @classmethod
    def of(cls, transport: Transport, *, gpu_direct: bool = True) -> Self | None:
        """Return what the log shows of a transport; None for sockets."""
        if not transport.rdma:
            return None
        return cls(names=transport.networks, provider=transport.provider, gpu_direct=gpu_direct)

    def includes(self, name: str) -> bool:
        """Return whether NCCL's name for a network is one of this one's."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)


class GangOptions(BaseModel):
    """Options of every run on a gang of ranks: `per_node` ranks on each of `nodes` nodes."""

    model_config = ConfigDict(frozen=True, extra="allow")

    nodes: int | None = Field(None, ge=1, description="Nodes. [default: those that the stack keeps]")
    per_node: int | None = Field(
        None, ge=1, description="Ranks per node. [default: one per GPU, or per CPU without GPUs]"
    )
    timeout_s: Annotated[float, option(name="--timeout")] = Field(
        300, ge=1, description="Seconds before a step counts as a hang."
    )
    wait_s: Annotated[float, option(name="--wait")] = Field(WAIT_S, ge=1, description="Seconds to wait for the nodes.")
    inject_fault: Annotated[str | None, option(show=False)] = Field(
        None, description="Inject a fault: corrupt:RANK, stale:RANK or hang:RANK."
    )
    environment: Hidden[dict[str, str]] = {}
    """Variables of the ranks' processes from their start."""
    use_gpu: Hidden[bool] = False
    elastic: Hidden[bool] = False
    """Whether an autoscaler may add nodes, so that a request that does not fit yet is not an error."""
    transport: Hidden[str | None] = None
    """Transport over RDMA NICs (`infra.catalog.fabrics`); None on machines without any."""
    logs: Hidden[bool] = False
    """Whether the ranks send their NCCL logs."""

    @property
    def world(self) -> tuple[int, int]:
        """(nodes, ranks per node) of a resolved model."""
        assert self.nodes is not None
        assert self.per_node is not None
        return self.nodes, self.per_node

    @property
    def gpus_per_rank(self) -> int:
        return 1

    def placed(self, outputs: Outputs) -> Self:
        """Return these options with the ranks and the kind of this stack's nodes. WorkloadError if it has fewer."""
        slots = outputs.nodes.slots_per_node
        nodes, per_node = self.nodes or outputs.nodes.default_gang, self.per_node or slots
        use_gpu, elastic = outputs.nodes.gpus_per_node > 0, outputs.nodes.elastic
        if nodes > outputs.nodes.max:
            raise WorkloadError(
                f"--nodes {nodes}: the stack has at most {outputs.nodes.max} (nodes.max in its stack file)"
            )
        if per_node > slots:
            kind = "GPUs" if use_gpu else "CPUs"
            raise WorkloadError(
                f"--per-node {per_node}: a node of this stack has {slots} {kind}, and a rank uses one of them"
            )
        values = {"nodes": nodes, "per_node": per_node, "use_gpu": use_gpu, "elastic": elastic}
        return self.model_copy(update={**values, "transport": outputs.fabric.rdma})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the output of `to_json`. Unknown fields are errors."""
        return cls.model_validate_json(text, extra="forbid")

    def to_json(self) -> str:
        """Return the resolved model as the driver's argument."""
        return self.model_dump_json(exclude_defaults=True)


def _default(name: str, write: Callable[[Any], str] = str) -> str:
    """Return the part of an option's help with what a run without a preset does."""
    return by_gpus(*(write(getattr(preset, name)) for preset in (DEFAULT.on_cpus(), DEFAULT)))


_size = partial(_default, write=written_size)


class BenchOptions(GangOptions):
    """One benchmark: every size of every operation, in each data type and mode."""

    preset: PresetName | None = Field(None, description="What to measure. Other options override it.")
    ops: Annotated[list[str], option(name="--op", show_default=False)] = Field(
        [], description=f"Operation; repeatable. {_default('ops', ', '.join)}"
    )
    patterns: Annotated[list[str], option(name="--pattern", show_default=False)] = Field(
        [], description=f"p2p: {', '.join(PATTERNS)} or all; repeatable. [default: {PAIRS}]"
    )
    begin: Annotated[str | None, option("-b")] = Field(None, description=f"Smallest size. {_size('begin')}")
    end: Annotated[str | None, option("-e")] = Field(None, description=f"Largest size. {_size('end')}")
    factor: Annotated[int | None, option("-f")] = Field(
        None, description=f"Ratio of consecutive sizes. {_default('factor')}"
    )
    step: Annotated[str | None, option("-i")] = Field(
        None, description="Difference of consecutive sizes, instead of a factor."
    )
    iterations: Annotated[int | None, option("-n")] = Field(
        None, ge=1, description=f"Timed runs of each row. {_default('iterations')}"
    )
    warmup: Annotated[int | None, option("-w")] = Field(
        None, ge=0, description=f"Untimed runs before each row. {_default('warmup')}"
    )
    check: Annotated[int | None, option("-c")] = Field(
        None, ge=0, description=f"Verified runs before and after the timed ones; 0 for none. {_default('check')}"
    )
    dtypes: Annotated[list[DataType], option(name="--dtype", show_default=False)] = Field(
        [], description=f"uint8 is for operations without a sum; repeatable. {_default('dtypes', ', '.join)}"
    )
    modes: Annotated[list[Mode], option(name="--mode", show_default=False)] = Field(
        [],
        description="Runs back to back, a barrier before each run, or CUDA graph replays; repeatable."
        f" {_default('modes', ', '.join)}",
    )
    algo: Algorithm | None = Field(
        None, description="NCCL's algorithm; ring is the fabric mode. [default: NCCL's choice]"
    )
    variables: Annotated[list[str], option(name="--env", metavar="NAME=VALUE", show_default=False)] = Field(
        [], description="Variable for NCCL or gloo on every rank; repeatable."
    )
    no_floor: bool = Field(False, description="Do not require a published bandwidth; all other checks apply.")
    sizes: Hidden[list[int]] = []
    """Bytes."""
    target: Hidden[str | None] = None
    machine: Hidden[str | None] = None
    limits: Hidden[Limits | None] = None
    """Limits of the machine's links; None if unknown."""
    left_out: Hidden[list[str]] = []
    """Rows that `--op all` cannot include."""

    @field_validator("limits", mode="before")
    @classmethod
    def _readable_limits(cls, value: Any) -> Any:
        """Treat limits of another version as unknown."""
        known = set(Limits.__dataclass_fields__)
        return None if isinstance(value, dict) and set(value) != known else value

    def resolve(self, outputs: Outputs, limits: Limits | None, *, logs: bool = False) -> BenchOptions:
        """Return the complete options for this stack, with the limits of its machine type.

        WorkloadError names an option that does not fit the stack or another option.
        """
        placed = self.placed(outputs)
        use_gpu, (nodes, per_node) = placed.use_gpu, placed.world
        if nodes * per_node < 2:
            raise WorkloadError("a single rank has no peer: use more with --nodes or --per-node")
        base = DEFAULT if self.preset is None else PRESETS[self.preset]
        base = base if use_gpu else base.on_cpus()
        ops = _operations(self.ops or base.ops)
        dtypes, modes = self.dtypes or list(base.dtypes), self.modes or list(base.modes)
        if "graph" in modes and not use_gpu:
            raise WorkloadError("--mode graph replays CUDA graphs, but this stack has no GPUs: use throughput, latency")
        byte_sums = [op for op in ops if op in REDUCTIONS] if "uint8" in dtypes else []
        if byte_sums and self.ops and "all" not in self.ops:
            raise WorkloadError(
                f"--dtype uint8: {', '.join(byte_sums)} would add up bytes, whose sums are not exact:"
                f" choose from {', '.join(op for op in BUSBW_FACTORS if op not in REDUCTIONS)}"
            )
        parse_fault(self.inject_fault, nodes * per_node)
        try:
            sizes = self._sweep(base)
            patterns = choose(self.patterns or base.patterns, nodes, per_node)
        except ValueError as error:
            raise WorkloadError(str(error)) from error
        return placed.model_copy(
            update={
                "target": outputs.target,
                "machine": outputs.machine,
                "limits": limits,
                "ops": ops,
                "patterns": patterns,
                "sizes": sizes,
                "dtypes": [dtype for dtype in get_args(DataType) if dtype in dtypes],
                "modes": [mode for mode in get_args(Mode) if mode in modes],
                **{
                    name: getattr(base, name)
                    for name in ("iterations", "warmup", "check")
                    if getattr(self, name) is None
                },
                "environment": environment(self.algo, self.variables, ops, use_gpu),
                "left_out": [f"{op} uint8" for op in byte_sums],
                "logs": logs,
            }
        )

    def _sweep(self, base: Preset) -> list[int]:
        begin = base.begin if self.begin is None else parse_size(self.begin)
        end = base.end if self.end is None else parse_size(self.end)
        step = None if self.step is None else parse_size(self.step)
        # A step overrides the preset's factor; a step and a factor contradict each other.
        factor = self.factor if self.factor is not None or step is not None else base.factor
        # One end alone, beyond the preset's other end, means this size only.
        if self.end is None:
            end = max(begin, end)
        if self.begin is None:
            begin = min(begin, end)
        return sweep(begin, end, factor, step)


DEVICES = 8  # tensors of a worker without GPUs: those of a machine with eight


class MultiGpuOptions(GangOptions):
    """One multi-GPU check: a worker per node with `devices` tensors, on a GPU each or all on the CPU."""

    per_node: Hidden[int] = 1
    nodes: int = Field(2, ge=1, description="Nodes, with a worker on each.")
    devices: int | None = Field(
        None, ge=1, description=f"Tensors per worker. {by_gpus(DEVICES, 'one per GPU of a node')}"
    )
    backend: Literal["auto", "nccl", "gloo"] = Field(
        "auto", description="auto: NCCL on GPUs, which needs CuPy; gloo on a stack without GPUs."
    )

    @property
    def gpus_per_rank(self) -> int:
        assert self.devices is not None
        return self.devices

    def resolve(self, outputs: Outputs) -> MultiGpuOptions:
        """Return the complete options for this stack. WorkloadError names an option that does not fit it."""
        gpus = outputs.nodes.gpus_per_node
        devices = self.devices or gpus or DEVICES
        if self.backend == "nccl" and not gpus:
            raise WorkloadError("--backend nccl: this stack's nodes have no GPUs; --backend gloo checks the sums alone")
        placed = self.placed(outputs)
        if gpus and devices > gpus:
            raise WorkloadError(f"--devices {devices}: a node of this stack has {gpus} GPUs")
        fault = parse_fault(self.inject_fault, self.nodes)
        if fault is not None and (fault.kind, fault.when) != ("corrupt", None):
            raise WorkloadError(f"{self.inject_fault!r} is not a fault of this check: write corrupt:RANK")
        return placed.model_copy(update={"devices": devices})


@dataclass(frozen=True)
class Fault:
    """An injected fault on one rank: `KIND:RANK[:WHEN]`.

    `corrupt` flips one bit of one received element, `stale` keeps the receive buffer unchanged, `hang` never starts.
    `when` is `before` (the first verification), `timed` (the last timed run; for a stale buffer, all of them), `after`
    (the last verification), or None for all of these.
    """

    kind: str
    rank: int
    when: str | None = None


def parse_fault(text: str | None, ranks: int) -> Fault | None:
    """Return the fault in `--inject-fault`; WorkloadError if there is no such fault."""
    if text is None:
        return None
    kind, _, rest = text.partition(":")
    rank, _, when = rest.partition(":")
    known = kind in ("corrupt", "stale", "hang") and when in ("", "before", "timed", "after")
    if not known or not rank.isdigit() or int(rank) >= ranks or (kind == "hang" and when):
        raise WorkloadError(
            f"{text!r} is not a fault: write corrupt:RANK, stale:RANK or hang:RANK with a rank below {ranks};"
            " the first two accept :before, :timed or :after as well"
        )
    return Fault(kind, int(rank), when or None)


def _operations(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in (*BUSBW_FACTORS, "all")]
    if unknown:
        raise WorkloadError(f"--op {unknown[0]}: choose from all, {', '.join(BUSBW_FACTORS)}")
    return list(BUSBW_FACTORS) if "all" in names else list(dict.fromkeys(names))
