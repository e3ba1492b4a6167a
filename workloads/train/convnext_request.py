"""From the options of `train convnext` to a Spec: presets, what is usual where there are no GPUs, every refusal that
needs no cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from infra.outputs import Outputs
from workloads.exits import WorkloadError
from workloads.train.convnext.settings import Preset, Settings, settings
from workloads.train.read import read_result
from workloads.train.request import gang, specification
from workloads.train.spec import Plan, Spec

WITHOUT_GPUS: dict[str, Any] = {"size": "tiny", "batch": 16, "backend": "aot_eager", "loader": 0}
"""Unless asked for otherwise: the whole path in seconds. inductor would compile C++ for a minute first."""
STEPS_ON_GPUS, STEPS_ON_CPUS = 500, 50


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for; None leaves it to the preset. `changes` are fields of Settings by name."""

    preset: str = "tuned"
    changes: Mapping[str, Any] = field(default_factory=dict)
    global_batch: int | None = None
    steps: int | None = None
    epochs: int | None = None
    workers: int | None = None
    seed: int = 0
    name: str | None = None
    resume: str | None = None
    checkpoint_dir: str | None = None
    checkpoint_every: int | None = None
    keep: int = 2
    ema: float | None = None
    max_run_h: float | None = None
    max_failures: int = 3
    probe: int = 10
    check_gradients: bool = False
    look_every: int = 10
    compare: Path | None = None
    wait_s: float = 1800
    fault: str | None = None


def request(outputs: Outputs, options: Options) -> tuple[Spec, list[str]]:
    """The run on this stack, and what was decided for the user; WorkloadError names what does not fit."""
    use_gpu = outputs.nodes.gpus_per_node > 0
    changes = {name: value for name, value in options.changes.items() if value is not None}
    notes = []
    if not use_gpu:
        usual = {name: value for name, value in WITHOUT_GPUS.items() if name not in changes}
        if changes.get("compile") == "off":
            usual.pop("backend", None)
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in usual.items())
        if flags:
            notes.append(f"no GPUs in this stack: {flags}, unless you say otherwise")
        changes = usual | changes
    workers = gang(outputs, options.workers)
    if options.global_batch is not None:
        if "batch" in options.changes and options.changes["batch"] is not None:
            raise WorkloadError("--batch counts images per worker and --global-batch over all: give one of the two")
        changes["batch"] = -(-options.global_batch // workers)
    chosen = settings(cast(Preset, options.preset), **changes)
    _refuse(outputs, options, chosen, workers)
    plan = Plan(
        batch=options.global_batch or chosen.batch * workers,
        steps=_steps(options, use_gpu),
        epochs=options.epochs,
        seed=options.seed,
        look_every=options.look_every,
        checkpoint_every=options.checkpoint_every,
        keep=options.keep,
        ema=options.ema,
        probe=options.probe,
        check_gradients=options.check_gradients,
        max_run_s=None if options.max_run_h is None else 3600 * options.max_run_h,
        fault=options.fault,
    )
    extra: dict[str, Any] = {"preset": chosen.preset, "size": chosen.size, "submitted": time.time()}
    if options.compare is not None:
        extra["single"] = single(options.compare, chosen)
    spec = specification(
        outputs,
        task="convnext",
        config=asdict(chosen),
        plan=plan,
        workers=workers,
        name=options.name,
        resume=options.resume,
        checkpoint_dir=options.checkpoint_dir,
        wait_s=options.wait_s,
        max_failures=options.max_failures,
        extra=extra,
    )
    return spec, notes


def _steps(options: Options, use_gpu: bool) -> int | None:
    if options.steps is not None and options.epochs is not None:
        raise WorkloadError("--steps and --epochs both say how long to train: give one of the two")
    if options.epochs is not None:
        return None
    return options.steps or (STEPS_ON_GPUS if use_gpu else STEPS_ON_CPUS)


def _refuse(outputs: Outputs, options: Options, chosen: Settings, workers: int) -> None:
    """What this stack cannot do, however the options look by themselves."""
    nodes = outputs.nodes
    if chosen.data == "ray" and not nodes.gpus_per_node and workers >= nodes.max * nodes.slots_per_node:
        raise WorkloadError(
            f"--data ray reads by tasks on CPUs that no worker holds, and {workers} workers hold all of them: use"
            f" --workers {workers - 1}"
        )
    if chosen.data_path and outputs.target == "local" and not Path(chosen.data_path).is_dir():
        raise WorkloadError(f"--data-path {chosen.data_path}: no such folder on this machine, which is all nodes")
    if chosen.kernels == "fused" and not nodes.gpus_per_node:
        raise WorkloadError("--kernels fused: they are for GPUs, and this stack has none; use --kernels eager")
    if options.ema is not None and not 0 < options.ema < 1:
        raise WorkloadError(f"--ema {options.ema}: the share of the average that stays at each step, between 0 and 1")
    if options.global_batch is not None and options.global_batch < workers:
        raise WorkloadError(
            f"--global-batch {options.global_batch}: {workers} workers need an image each; use fewer --workers"
        )


def single(file: Path, chosen: Settings) -> dict[str, Any]:
    """The rate of one worker alone, out of the result in `file`, which must be of the same work per worker."""
    try:
        result = read_result(file)
    except WorkloadError as error:
        raise WorkloadError(f"--compare {error}; make one by --workers 1 --json {file}") from error
    if result.world != 1 or result.figures is None:
        raise WorkloadError(
            f"--compare {file}: the result of {result.world or 0} workers; the scaling efficiency needs that of one:"
            f" --workers 1 --json {file}"
        )
    theirs, ours = result.spec.get("config") or {}, asdict(chosen)
    # What a worker does in a step; how many images the run has, and where they lie, is no part of it.
    different = [name for name in ours if name not in ("items", "data_path") and theirs.get(name) != ours[name]]
    if different:
        name = different[0]
        there, here = theirs.get(name), ours[name]
        raise WorkloadError(
            f"--compare {file}: {name} was {there!r} there and is {here!r} here: compare like with like"
        )
    return {"images_per_s": result.figures.images_per_s, "file": str(file)}
