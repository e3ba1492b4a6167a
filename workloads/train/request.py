"""Resolve options to the request of a run on a stack, and report errors that can be found without a cluster."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from workloads.exits import WorkloadError
from workloads.results.events import new_id
from workloads.train.logs import forwarded
from workloads.train.options import GPT, STEPS, ConvNeXtOptions, ConvNeXtSettings, GPTOptions, Single, TrainRunOptions
from workloads.train.result import TrainResult

if TYPE_CHECKING:
    from infra.outputs import Outputs

WITHOUT_GPUS: dict[str, Any] = {"size": "tiny", "batch": 16, "backend": "aot_eager", "loader": 0}
"""Defaults without GPUs, for a run of seconds: inductor would compile C++ for a minute first."""

R = TypeVar("R", bound=TrainRunOptions)


@dataclass(frozen=True)
class StartedRanks:
    """Ranks that a launcher has already started, in the form of a stack's nodes."""

    slots_per_node: int
    gpus_per_node: int
    max: int = 1
    default_gang: int = 1
    elastic: bool = False


@dataclass(frozen=True)
class Launched:
    """Torchrun or an equal launcher, in the form of a stack's outputs."""

    nodes: StartedRanks
    storage: None = None
    target: str = "torchrun"


Stack: TypeAlias = "Outputs | Launched"


def resolve(outputs: Stack, options: R) -> R:
    """Return the options completed for this stack. WorkloadError names an option that does not fit."""
    if options.name and options.resume:
        raise WorkloadError("--name starts a run and --resume continues one: use only one of them")
    name = options.resume or options.name or new_id(options.task)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise WorkloadError(f"run name {name!r}: it becomes a folder; use letters, digits, dots, dashes, underscores")
    workers = gang(outputs, options.workers)
    if options.global_batch < workers:
        raise WorkloadError(
            f"--global-batch {options.global_batch}: {workers} workers need a sample each; use fewer --workers"
        )
    if not options.checkpoint_dir and outputs.storage is None:
        where = f"{outputs.target} has" if isinstance(outputs, Launched) else "the stack has"
        raise WorkloadError(f"{where} no storage that all nodes share: choose a path or URI with --checkpoint-dir")
    storage = options.checkpoint_dir or f"{outputs.storage.path if outputs.storage else ''}/train"
    if options.log and "://" in storage:
        raise WorkloadError(
            f"--log {options.log} with --checkpoint-dir {storage}: TensorBoard files grow, and object stores cannot"
            " append; choose a mounted folder with --checkpoint-dir"
        )
    decided = {
        "name": name,
        "workers": workers,
        "checkpoint_dir": storage,
        "use_gpu": outputs.nodes.gpus_per_node > 0,
        "elastic": outputs.nodes.elastic,
        "submitted": time.time(),
    }
    return options.model_copy(update=decided)


def gang(outputs: Stack, workers: int) -> int:
    """Return the number of workers: the requested one, or one for every GPU or CPU slot of the default gang."""
    slots = outputs.nodes.slots_per_node
    if workers > outputs.nodes.max * slots:
        raise WorkloadError(f"--workers {workers}: the stack has {outputs.nodes.max} nodes with {slots} slots each")
    return workers or outputs.nodes.default_gang * slots


def resolve_convnext(outputs: Stack, options: ConvNeXtOptions) -> tuple[ConvNeXtOptions, list[str]]:
    """Return the resolved options, and notes on chosen defaults. WorkloadError names an option that does not fit."""
    nodes, notes = outputs.nodes, []
    if not nodes.gpus_per_node:
        skipped = {"batch"} if options.global_batch else set()
        if options.compile == "off":
            skipped.add("backend")
        usual = {name: value for name, value in WITHOUT_GPUS.items() if name not in {*options.given, *skipped}}
        if usual:
            chosen = ", ".join(f"{name} {value}" for name, value in usual.items())
            notes.append(f"no GPUs in this stack: {chosen} by default")
            given = {name: getattr(options, name) for name in options.given}
            options = ConvNeXtOptions(**given, **usual)
    workers = gang(outputs, options.workers)
    if options.data == "ray" and not nodes.gpus_per_node and workers >= nodes.max * nodes.slots_per_node:
        raise WorkloadError(
            f"--data ray reads in tasks on CPUs without a worker, but {workers} workers hold all CPUs: use"
            f" --workers {workers - 1}"
        )
    _check_path(outputs, options.data_path, folder=True)
    update: dict[str, Any] = {}
    if options.global_batch:
        update["batch"] = -(-options.global_batch // workers)
    else:
        update["global_batch"] = options.batch * workers
    if not options.epochs:
        update["steps"] = options.steps or STEPS[nodes.gpus_per_node > 0]
    options = options.model_copy(update=update)
    if options.compare is not None:
        options = options.model_copy(update={"single": single(options.compare, options)})
    return resolve(outputs, options), notes


def resolve_gpt(outputs: Stack, options: GPTOptions) -> GPTOptions:
    """Return the resolved options. WorkloadError names an option that does not fit."""
    _check_path(outputs, options.data_path, folder=False)
    on_gpus = outputs.nodes.gpus_per_node > 0
    chosen = {name: pair[on_gpus] for name, pair in GPT.items() if name not in options.model_fields_set}
    if options.epochs:
        chosen.pop("steps", None)
    workers = gang(outputs, options.workers)
    if options.global_batch:
        chosen["batch"] = -(-options.global_batch // workers)
    options = options.model_copy(update=chosen)
    return resolve(
        outputs, options.model_copy(update={"global_batch": options.global_batch or options.batch * workers})
    )


def _check_path(outputs: Stack, path: str | None, folder: bool) -> None:
    """Raise WorkloadError if a local stack lacks the data."""
    if path and outputs.target == "local" and not (Path(path).is_dir() if folder else Path(path).exists()):
        kind = "folder" if folder else "file or folder"
        raise WorkloadError(f"--data-path {path}: no such {kind} on this machine, on which all nodes run")


def single(file: Path, options: ConvNeXtOptions) -> Single:
    """Return the rate of one worker from the result in `file`, whose workers must do the same work."""
    try:
        result = TrainResult.read(file)
    except WorkloadError as error:
        raise WorkloadError(f"--compare {error}; create one with --workers 1 --json {file}") from error
    if result.world != 1 or result.figures is None:
        raise WorkloadError(
            f"--compare {file}: the result of {result.world or 0} workers; the scaling efficiency needs the result of"
            f" one: --workers 1 --json {file}"
        )
    # The number and the location of the images do not change the work of a step.
    for name in ConvNeXtSettings.model_fields.keys() - {"items", "data_path"}:
        there, here = getattr(result.spec, name, None), getattr(options, name)
        if there != here:
            raise WorkloadError(
                f"--compare {file}: {name} was {there!r} there and is {here!r} here: compare runs with equal settings"
            )
    return Single(units_per_s=result.figures.units_per_s, file=str(file))


def environment(options: TrainRunOptions, outputs: Outputs) -> dict[str, str]:
    """Return the job's variables."""
    variables = forwarded() | {
        # Ray's default is 60 s. Scaling from zero takes minutes, and so does a first import of torch.
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(options.wait),
        # By default, Ray polls its workers every 2 s, and each report waits for the poll.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    }
    if options.use_gpu:
        # `observe` reports ranks that wait for each other, without ending them: a slow checkpoint is not a hang.
        variables |= {"RAY_TRAIN_ENABLE_NCCL_HANG_DETECTOR": "1", "RAY_TRAIN_NCCL_RAS_ACTION": "observe"}
        # The flight recorder's names that torch 2.13 and 2.15 read (pytorch: c10d/FlightRecorder.hpp, 2.15.0).
        variables |= {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
        if "://" not in options.checkpoint_dir:
            variables["TORCH_FR_DUMP_TEMP_FILE"] = f"{options.checkpoint_dir}/{options.name}/{options.dumps}"
    if outputs.target == "local":
        # Nodes on one machine are never preempted.
        variables["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"
    return variables
