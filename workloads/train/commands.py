"""`rdma-ray train …`: the commands that train a model and show what a run did.

Heavy imports (ray, torch, rich, pydantic) stay inside the commands, so that help is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from workloads import running
from workloads.exits import WorkloadError
from workloads.options import Flat, JobOptions
from workloads.train.options import DigitsOptions

train = App(name="train", help="Train a model, with checkpoints.")

Workers = Annotated[int | None, Parameter(validator=Number(gte=1), help="Workers. [default: one per GPU or CPU slot]")]
Name = Annotated[str | None, Parameter(help="Name of a new run. [default: by date and time]")]
Resume = Annotated[str | None, Parameter(metavar="NAME", help="Go on with the run of this name.")]
CheckpointDir = Annotated[
    str | None, Parameter(help="Path or URI that every node sees. [default: the stack's storage]")
]
MaxRun = Annotated[
    float | None,
    Parameter(
        validator=Number(gte=0.01),
        help="Hours after which the machines go away: stop with a checkpoint shortly before.",
    ),
]
Wait = Annotated[float, Parameter(validator=Number(gte=1), help="Seconds to wait for the workers.")]
Out = Annotated[Path | None, Parameter(metavar="DIR", help="Write result.json and run.png into this folder.")]
Fault = Annotated[str | None, Parameter(name="--inject-fault", show=False, help="See workloads/train/faults.py.")]


@train.command
def digits(
    *, options: Flat[DigitsOptions] = DigitsOptions(), out: Out = None, job: Flat[JobOptions] = JobOptions()
) -> int:
    """Train a small ConvNet on 1797 handwritten digits, data parallel over all workers.

    It writes a checkpoint after every epoch and keeps the last two.

    Exit codes: 0 as accurate as requested, 1 error, 2 less accurate, or stopped
    before its end.
    """
    from workloads.train.request import request

    outputs = running.read_outputs(job)
    return _run(outputs, request(outputs, options), out, job)


@train.command(name="convnext")
def train_convnext(
    *,
    preset: Annotated[
        str, Parameter(help="baseline (the published trainer) or tuned; explicit options win.")
    ] = "tuned",
    size: Annotated[
        str | None, Parameter(help="base, small or tiny. [default: base; tiny where there are no GPUs]")
    ] = None,
    steps: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Steps in all. [default: 500; 50 where there are no GPUs]")
    ] = None,
    epochs: Annotated[int | None, Parameter(validator=Number(gte=1), help="Epochs in all, instead of --steps.")] = None,
    batch: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Images of each worker in a step. [default: the preset's]")
    ] = None,
    global_batch: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Images of all workers in a step, instead of --batch: to resume on other workers.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        Parameter(help="synthetic (on the device), fakedata, imagefolder or ray. [default: the preset's]"),
    ] = None,
    data_path: Annotated[
        str | None, Parameter(metavar="PATH", help="Folder of class folders, or of Parquet files for --data ray.")
    ] = None,
    loader: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="Processes that make or decode images, a worker.")
    ] = None,
    items: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Length of made-up data. [default: 1280000]")
    ] = None,
    image: Annotated[
        int | None, Parameter(validator=Number(gte=32), help="Side of an image. [default: the size's]")
    ] = None,
    classes: Annotated[int | None, Parameter(validator=Number(gte=2), help="Classes. [default: the size's]")] = None,
    workers: Workers = None,
    name: Name = None,
    resume: Resume = None,
    checkpoint_dir: CheckpointDir = None,
    checkpoint_every: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Steps between checkpoints. [default: at epochs' ends and the end]"),
    ] = None,
    keep: Annotated[int, Parameter(validator=Number(gte=1), help="Checkpoints to keep.")] = 2,
    max_run: MaxRun = None,
    max_failures: Annotated[
        int, Parameter(validator=Number(gte=0), help="Restarts after failures; preemptions do not count.")
    ] = 3,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of weights and data.")] = 0,
    precision: Annotated[str | None, Parameter(help="fp32 or bf16 (autocast).")] = None,
    tf32: Annotated[bool | None, Parameter(negative="--no-tf32", help="TF32 in matrix products.")] = None,
    cudnn_benchmark: Annotated[
        bool | None, Parameter(negative="--no-cudnn-benchmark", help="cuDNN picks by timing.")
    ] = None,
    channels_last: Annotated[
        bool | None, Parameter(negative="--no-channels-last", help="Memory format of model and images.")
    ] = None,
    stream: Annotated[str | None, Parameter(help="Residual stream: as-computed or bf16.")] = None,
    kernels: Annotated[str | None, Parameter(help="eager or fused (this project's Triton kernels).")] = None,
    compile_: Annotated[str | None, Parameter(help="off, model or blocks.")] = None,
    backend: Annotated[str | None, Parameter(help="auto, inductor or aot_eager.")] = None,
    compile_mode: Annotated[
        str | None,
        Parameter(help="default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs."),
    ] = None,
    optimize_ddp: Annotated[
        bool | None, Parameter(negative="--no-optimize-ddp", help="Split graphs at DDP's buckets.")
    ] = None,
    optimizer: Annotated[str | None, Parameter(help="sgd or adamw.")] = None,
    learning_rate: Annotated[float | None, Parameter(help="Learning rate.")] = None,
    momentum: Annotated[float | None, Parameter(help="SGD's.")] = None,
    weight_decay: Annotated[float | None, Parameter(help="Weight decay.")] = None,
    fused: Annotated[bool | None, Parameter(negative="--no-fused", help="Fused optimiser.")] = None,
    warmup_steps: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="Steps to the full learning rate.")
    ] = None,
    decay_steps: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Steps of a half cosine down to 0.")
    ] = None,
    stochastic_depth: Annotated[float | None, Parameter(help="The last block's chance to be skipped.")] = None,
    gradient_as_bucket_view: Annotated[
        bool | None, Parameter(negative="--no-gradient-as-bucket-view", help="DDP's.")
    ] = None,
    static_graph: Annotated[bool | None, Parameter(negative="--no-static-graph", help="DDP's.")] = None,
    broadcast_buffers: Annotated[bool | None, Parameter(negative="--no-broadcast-buffers", help="DDP's.")] = None,
    bucket_mb: Annotated[float | None, Parameter(help="DDP's bucket_cap_mb.")] = None,
    compress: Annotated[str | None, Parameter(help="none or bf16: what gradients are reduced in.")] = None,
    ema: Annotated[float | None, Parameter(help="Decay of an average of the weights. [default: none]")] = None,
    probe: Annotated[
        int,
        Parameter(
            validator=Number(gte=0), help="Passes with and without the gradients' reduction, timed after the run."
        ),
    ] = 10,
    check_gradients: Annotated[
        bool, Parameter(help="Compare gradients over all ranks; exit with 3 if they differ.")
    ] = False,
    look_every: Annotated[int, Parameter(validator=Number(gte=1), help="Steps between looks at the loss.")] = 10,
    compare: Annotated[
        Path | None,
        Parameter(metavar="FILE", help="Result of one worker (--workers 1 --json FILE), for the scaling efficiency."),
    ] = None,
    wait: Wait = 1800,
    fault: Fault = None,
    out: Out = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """ConvNeXt, data parallel over all workers: its speed, where its time goes, and checkpoints that survive.

    Where there are no GPUs a tiny variant runs on gloo in seconds.

    Exit codes: 0 trained to the end, 1 error, 2 stopped before its end (go on
    by --resume), 3 gradients that differ between ranks.
    """
    knobs = {name: value for name, value in locals().items() if name in KNOBS} | {"compile": compile_}
    from workloads.train.convnext_request import Options, request

    outputs = running.read_outputs(job)
    spec, notes = request(
        outputs,
        Options(
            preset=preset,
            changes=knobs,
            global_batch=global_batch,
            steps=steps,
            epochs=epochs,
            workers=workers,
            seed=seed,
            name=name,
            resume=resume,
            checkpoint_dir=checkpoint_dir,
            checkpoint_every=checkpoint_every,
            keep=keep,
            ema=ema,
            max_run_h=max_run,
            max_failures=max_failures,
            probe=probe,
            check_gradients=check_gradients,
            look_every=look_every,
            compare=compare,
            wait_s=wait,
            fault=fault,
        ),
    )
    for note in notes:
        print(note, file=sys.stderr)
    return _run(outputs, spec, out, job)


KNOBS = (
    *("size", "batch", "data", "data_path", "loader", "items", "image", "classes", "stochastic_depth"),
    *("precision", "tf32", "cudnn_benchmark", "channels_last", "stream", "kernels"),
    *("backend", "compile_mode", "optimize_ddp"),
    *("optimizer", "learning_rate", "momentum", "weight_decay", "fused", "warmup_steps", "decay_steps"),
    *("gradient_as_bucket_view", "static_graph", "broadcast_buffers", "bucket_mb", "compress"),
)
"""Options that are fields of `workloads.train.convnext.settings.Settings` under the same name."""


@train.command(name="report")
def train_report(
    result_file: Annotated[Path, Parameter(metavar="RESULT.json", help="A result of `train … --json FILE`.")],
    /,
    *,
    objects: Annotated[
        list[Path] | None,
        Parameter(
            metavar="FILE",
            help="Kubernetes' events, nodes and worker pods, as `kubectl get … -o json` prints them: the whole way to"
            " the first step, from the machines on. More than once.",
        ),
    ] = None,
    skew: Annotated[float, Parameter(help="Seconds that the run's clock is ahead of Kubernetes'.")] = 0.0,
    out: Out = None,
    svg: Annotated[Path | None, Parameter(metavar="FILE", help="Also the picture as SVG.")] = None,
) -> None:
    """Show a result again, and write its picture; with Kubernetes' own objects, where the start's time went.

    Exit codes: 0 shown, whatever the result; 1 unreadable, or it cannot be written.
    """
    from workloads.client.run import write_file as write
    from workloads.train import report
    from workloads.train.plot import picture
    from workloads.train.read import read_objects, read_result, with_objects

    result = read_result(result_file)
    if objects:
        result = with_objects(result, [found for file in objects for found in read_objects(file)], skew)
    report.show(result.model_dump(mode="json", by_alias=True), running.console(stderr=False))
    if out is not None:
        _write(result.model_dump(mode="json", by_alias=True), out)
    if svg is not None:
        print(write(svg, picture(result, "svg")), file=sys.stderr)


def _run(outputs: Any, spec: Any, out: Path | None, job: JobOptions) -> int:
    from workloads.client.run import Request
    from workloads.interfaces import interface_of
    from workloads.train.request import environment

    if job.detach and out is not None:
        raise WorkloadError("--detach does not wait for a result: leave out --out, or --detach")
    variables = environment(spec, interface_of("127.0.0.1") if outputs.target == "local" else None)
    wanted = Request("train", "workloads.train.driver", [spec.to_json()], variables)
    return running.workload(outputs, wanted, job, finish=lambda result: _write(result, out))


def _write(document: dict[str, Any], out: Path | None) -> None:
    if out is None:
        return
    from workloads.client.run import write_file as write
    from workloads.client.run import write_json
    from workloads.train.plot import picture
    from workloads.train.result import Result

    result = Result.model_validate(document)
    print(write(out / "run.png", picture(result)), file=sys.stderr)
    write_json(result.model_dump(mode="json", by_alias=True), str(out / "result.json"))
    print(out / "result.json", file=sys.stderr)
