"""`rdma-ray train …`: the commands that train a model and show what a run did.

Imports of matplotlib stay inside the commands to keep help fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from workloads.client.connection import Connection
from workloads.client.run import run_job
from workloads.options import Flat, JobOptions
from workloads.results.files import write_file
from workloads.terminal.console import Terminal
from workloads.train import report
from workloads.train.options import ConvNeXtOptions, DigitsOptions, GPTOptions, TrainRunOptions
from workloads.train.request import environment, resolve, resolve_convnext, resolve_gpt

train = App(name="train", help="Train a model, with checkpoints.")

Out = Annotated[Path | None, Parameter(metavar="DIR", help="Write result.json and run.png into this folder.")]


@train.command
def digits(
    *, options: Flat[DigitsOptions] = DigitsOptions(), out: Out = None, job: Flat[JobOptions] = JobOptions()
) -> int:
    """Train a small ConvNet on 1797 handwritten digits, data parallel.

    It writes a checkpoint after every epoch and keeps the last two.

    Example: rdma-ray train digits --epochs 5 --json result.json
    Exit codes: 0 as accurate as requested, 1 error, 2 less accurate, or stopped
    before its end.
    """
    with Connection(job) as stack:
        return _run(stack, resolve(stack.outputs, options), out, job)


@train.command
def convnext(
    *, options: Flat[ConvNeXtOptions] = ConvNeXtOptions(), out: Out = None, job: Flat[JobOptions] = JobOptions()
) -> int:
    """Train ConvNeXt, data parallel, and measure its speed and where its time goes.

    Without GPUs, a tiny variant runs on gloo in seconds.

    Example: rdma-ray train convnext --steps 200 --out report
    Exit codes: 0 trained to the end, 1 error, 2 stopped before its end (continue
    with --resume) or less accurate than --min-accuracy, 3 gradients that differ
    between ranks.
    """
    with Connection(job) as stack:
        request, notes = resolve_convnext(stack.outputs, options)
        for note in notes:
            print(note, file=sys.stderr)
        return _run(stack, request, out, job)


@train.command
def gpt(*, options: Flat[GPTOptions] = GPTOptions(), out: Out = None, job: Flat[JobOptions] = JobOptions()) -> int:
    """Train a small language model on the bytes of a text, with DDP or FSDP2.

    Without GPUs, the smallest size runs on gloo in seconds. The last tenth of the
    text is held out: its loss is the validation loss.

    Example: rdma-ray train gpt --size medium --parallel fsdp --steps 1000
    Exit codes: 0 trained to the end, 1 error, 2 stopped before its end (continue
    with --resume), 3 gradients that differ between ranks.
    """
    with Connection(job) as stack:
        return _run(stack, resolve_gpt(stack.outputs, options), out, job)


@train.command(name="report")
def train_report(
    result_file: Annotated[Path, Parameter(metavar="RESULT.json", help="A result of `train … --json FILE`.")],
    /,
    *,
    objects: Annotated[
        tuple[Path, ...],
        Parameter(
            metavar="FILE",
            help="Events, nodes and worker pods, as `kubectl get … -o json` prints them: they add the time from the"
            " machines' start on. May be repeated.",
        ),
    ] = (),
    skew: Annotated[float, Parameter(help="Seconds by which the run's clock is ahead of that of Kubernetes.")] = 0.0,
    out: Out = None,
    svg: Annotated[Path | None, Parameter(metavar="FILE", help="Also write the picture as SVG.")] = None,
) -> None:
    """Show a result again and write its picture.

    With Kubernetes objects, it includes the time before the run.

    Example: rdma-ray train report result.json --out report
    Exit codes: 0 shown, whatever the result; 1 unreadable, or it cannot be written.
    """
    from workloads.train.plot import picture, write_report
    from workloads.train.result import TrainResult

    result = TrainResult.read(result_file)
    if objects:
        result = report.with_objects(result, objects, skew)
    report.show(result, Terminal())
    written = write_report(result, out) if out is not None else []
    if svg is not None:
        written.append(write_file(svg, picture(result, "svg")))
    for path in written:
        print(path, file=sys.stderr)


def _run(stack: Connection, request: TrainRunOptions, out: Path | None, job: JobOptions) -> int:
    variables = environment(request, stack.outputs)
    return run_job(stack, "train", request.model_dump_json(), job, environment=variables, out=out)
