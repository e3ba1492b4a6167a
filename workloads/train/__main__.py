"""Training under torchrun, without Ray: the loop and the options of `rdma-ray train`.

torchrun --nproc-per-node 2 -m workloads.train gpt --checkpoint-dir /shared/train

Any launcher that sets torchrun's variables will do. What Ray Train adds is absent: restarts after failures (torchrun's
--max-restarts continues from the last checkpoint), notices of preemption, and the journal of failures.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch.distributed as dist

try:
    from cyclopts import App, CycloptsError, Parameter
except ModuleNotFoundError:  # other images
    sys.exit("workloads.train needs the package cyclopts: install it, or add --pip cyclopts to rdma-ray run")

from workloads.exits import Exit, WorkloadError
from workloads.options import Flat, JsonFile, json_to_stdout, usage_error
from workloads.results.events import Event, emit, handled
from workloads.results.files import write_file
from workloads.train.lines import heading, lines, progress
from workloads.train.options import ConvNeXtOptions, DigitsOptions, GPTOptions, TrainRunOptions
from workloads.train.outcome import finished, judge, opened, reached
from workloads.train.place import TrainerRank, in_torchrun
from workloads.train.request import Launched, StartedRanks, resolve, resolve_convnext, resolve_gpt
from workloads.train.result import TrainResult
from workloads.train.trainer import train

QUIET_S = 10.0
"""Seconds between lines with the loss."""

app = App(
    name="python -m workloads.train",
    help="Train a model on the ranks that torchrun has started.",
    help_format="plaintext",
    version_flags=(),
    default_parameter=Parameter(negative=()),
)


@app.command
def digits(*, options: Flat[DigitsOptions] = DigitsOptions(), json_file: JsonFile = None) -> int:
    """Train a small ConvNet on 1797 handwritten digits."""
    return run(options, json_file, lambda stack: resolve(stack, options))


@app.command
def convnext(*, options: Flat[ConvNeXtOptions] = ConvNeXtOptions(), json_file: JsonFile = None) -> int:
    """Train ConvNeXt."""
    return run(options, json_file, lambda stack: resolve_convnext(stack, options)[0])


@app.command
def gpt(*, options: Flat[GPTOptions] = GPTOptions(), json_file: JsonFile = None) -> int:
    """Train a small language model on the bytes of a text, with DDP or FSDP2."""
    return run(options, json_file, lambda stack: resolve_gpt(stack, options))


def run(asked: TrainRunOptions, json_file: str | None, complete: Callable[[Launched], TrainRunOptions]) -> int:
    """Train on this rank. Every rank returns the same exit code; rank 0 prints, and writes the result."""
    began = time.time()
    place = in_torchrun()
    try:
        # One name and one time for all ranks.
        spec = place.together(lambda: requested(asked, complete, place))
        spec = place.gather(spec.model_copy(update={"submitted": began}))[0]
        with handled(printer(place.rank)):
            result = outcome(spec, place, began)
    finally:
        dist.destroy_process_group()
    if place.rank == 0:
        show(result, json_file)
    return result.exit_code


def requested(
    asked: TrainRunOptions, complete: Callable[[Launched], TrainRunOptions], place: TrainerRank
) -> TrainRunOptions:
    """Return the completed request. WorkloadError names the option that does not fit."""
    if asked.workers not in (0, place.world):
        raise WorkloadError(f"--workers {asked.workers}: torchrun has started {place.world} ranks; leave it out")
    if isinstance(asked, ConvNeXtOptions) and asked.data == "ray":
        raise WorkloadError("--data ray: torchrun has no Ray to read with; use --data imagefolder")
    gpus = place.world if place.device.type == "cuda" else 0
    return complete(Launched(StartedRanks(slots_per_node=place.world, gpus_per_node=gpus)))


def outcome(spec: TrainRunOptions, place: TrainerRank, began: float) -> TrainResult:
    """Train, and return the result. Errors that a new start may fix are raised: they end the rank."""
    measured: dict[str, Any] = {}
    try:
        place.together(lambda: opened(spec, restarted()) if place.rank == 0 else True)
        emit("note", text="under torchrun: no restarts but its own, and no notice of preemptions")
        record = train(spec, place, began)
        backend = "nccl" if spec.use_gpu else "gloo"
        measured = reached(record, began) | {"backend": backend, "versions": {"torch": version("torch")}}
        code, reason = judge(record, spec.min_accuracy)
    except WorkloadError as error:
        code, reason = error.code, str(error)
    return finished(spec, began, int(code), reason, measured)


def restarted() -> bool:
    """Return whether torchrun or `rdma-ray run` has started this command before, and it failed."""
    return any(int(os.environ.get(name) or 0) for name in ("TORCHELASTIC_RESTART_COUNT", "RDMA_RAY_RESTART"))


def printer(rank: int) -> Callable[[Event], None]:
    """Return a function that prints events on rank 0: each evaluation, and the loss every `QUIET_S`."""
    last = 0.0

    def print_event(event: Event) -> None:
        nonlocal last
        if rank == 0 and (text := progress(event)) and (event["kind"] != "look" or time.monotonic() - last >= QUIET_S):
            last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    return print_event


def show(result: TrainResult, json_file: str | None) -> None:
    """Print the figures, and write the JSON document."""
    text = [heading(result)] + [f"{name:<20} {value}" for name, value in lines(result)] if result.step else []
    print("\n".join([*text, result.reason]), file=sys.stderr if json_file == "-" or result.exit_code else sys.stdout)
    if json_file == "-":
        print(result.as_json())
    elif json_file:
        write_file(Path(json_file), result.as_json() + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code of the rank. Usage errors are 1."""
    tokens = json_to_stdout(sys.argv[1:] if arguments is None else arguments)
    try:
        return app(tokens, exit_on_error=False, print_error=False, result_action="return_value") or Exit.OK
    except (CycloptsError, WorkloadError) as error:
        if os.environ.get("RANK", "0") == "0":
            print(usage_error(error) if isinstance(error, CycloptsError) else error, file=sys.stderr)
        return Exit.ERROR


if __name__ == "__main__":
    sys.exit(main())
