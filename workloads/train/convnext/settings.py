"""Everything about a ConvNeXt run that has more than one sensible answer, and two sets of answers. Pure.

`baseline` is the published trainer that this project is compared with: torchvision's convnext_base on FakeData in fp32,
DDP on Ray Train, without compile (232 images/s per H200 on two nodes, 2025). `tuned` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

from workloads.exits import WorkloadError
from workloads.train.convnext.shapes import SIZES, Size
from workloads.train.data.source import DataConfig, Kind

Preset = Literal["baseline", "tuned"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One ConvNeXt run; the defaults are `baseline`. WorkloadError names a value that cannot be.

    size          "base", "small" or "tiny"; image and classes replace the size's own
    batch         images of each worker in a step; the trainer multiplies it with the workers
    precision     "bf16" is autocast: parameters, gradients and norms stay fp32, and need no gradient scaling
    tf32          fp32 matrix products by TF32 tensor cores (10 bits of mantissa), too; off is PyTorch's default, which
                  has them in cuDNN's convolutions only
    cudnn_benchmark  cuDNN times its algorithms for each new shape and keeps the fastest
    stream        "bf16" keeps the residual stream in bf16; autocast alone leaves it in fp32
    compile       "model" as one graph, which DDP's optimiser splits at its buckets; "blocks" each block's inner layers
    backend       "auto" is inductor where it can work (a GPU, or a C++ compiler), else aot_eager; the report says which
    compile_mode  inductor's: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"
    optimize_ddp  off, a compiled model hands over all gradients at the end of the backward pass: nothing overlaps
    kernels       "fused" takes this project's Triton kernels; unmeasured, so never a default
    compress      "bf16" halves what the gradients' all-reduce moves
    warmup_steps  linear, from 0; decay_steps: a half cosine to 0 over so many steps, None: constant
    data          "synthetic" on the device, or "fakedata", "imagefolder", "ray"; data_path for the last two
    loader        processes that load and decode for each worker, where the data kind has any; items: of made-up data
    """

    preset: Preset = "baseline"
    size: Literal["base", "small", "tiny"] = "base"
    image: int | None = None
    classes: int | None = None
    batch: int = 64
    stochastic_depth: float = 0.5

    precision: Literal["fp32", "bf16"] = "fp32"
    tf32: bool = False
    cudnn_benchmark: bool = False
    channels_last: bool = False
    stream: Literal["as-computed", "bf16"] = "as-computed"
    kernels: Literal["eager", "fused"] = "eager"

    compile: Literal["off", "model", "blocks"] = "off"
    backend: Literal["auto", "inductor", "aot_eager"] = "auto"
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    optimize_ddp: bool = True

    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    fused: bool = False
    warmup_steps: int = 0
    decay_steps: int | None = None

    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True
    bucket_mb: float = 25.0
    compress: Literal["none", "bf16"] = "none"

    data: Kind = "fakedata"
    data_path: str | None = None
    loader: int = 4
    items: int = 1_280_000

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            allowed = get_args(hint)
            if allowed and isinstance(allowed[0], str) and getattr(self, name) not in allowed:
                raise WorkloadError(f"{name} {getattr(self, name)!r}: use one of {', '.join(allowed)}")
        if self.pixels < 32 or self.pixels % 32:
            raise WorkloadError(f"image {self.pixels}: ConvNeXt halves its side five times; use a multiple of 32")
        for name in ("batch", "bucket_mb", "learning_rate"):
            if not getattr(self, name) > 0:
                raise WorkloadError(f"{name} {getattr(self, name)}: it must be above 0")
        if not 0 <= self.stochastic_depth < 1:
            raise WorkloadError(f"stochastic_depth {self.stochastic_depth}: it is a chance, from 0 to below 1")
        if self.compile_mode != "default" and (self.compile == "off" or self.backend == "aot_eager"):
            raise WorkloadError(f"compile_mode {self.compile_mode}: only inductor has modes; use --compile model")
        if self.stream == "bf16" and self.precision != "bf16":
            raise WorkloadError('stream bf16 with precision fp32: use precision "bf16" or stream "as-computed"')
        if self.compile != "off" and self.optimize_ddp and self.bucket_mb < 1:
            raise WorkloadError(
                f"bucket_mb {self.bucket_mb}: Dynamo's DDP optimiser needs at least 1, DDP's first bucket"
            )
        self.source()

    @property
    def shape(self) -> Size:
        """The network with the image and the classes that were asked for."""
        size = SIZES[self.size]
        return replace(size, image=self.image or size.image, classes=self.classes or size.classes)

    def source(self) -> DataConfig:
        """The data that these settings ask for."""
        return DataConfig(
            kind=self.data,
            image=self.pixels,
            classes=self.shape.classes,
            path=self.data_path,
            loader=self.loader,
            channels_last=self.channels_last,
            items=self.items,
        )

    @property
    def pixels(self) -> int:
        """The side of an image."""
        return self.shape.image


PRESETS: dict[Preset, dict[str, Any]] = {
    "baseline": {},
    "tuned": {
        "preset": "tuned",
        "batch": 128,
        "precision": "bf16",
        "tf32": True,
        "cudnn_benchmark": True,
        "channels_last": True,
        "compile": "model",
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "weight_decay": 0.05,
        "fused": True,
        "gradient_as_bucket_view": True,
        "static_graph": True,
        "broadcast_buffers": False,
        "data": "synthetic",
    },
}


def settings(preset: Preset, **changes: Any) -> Settings:
    """A preset with changes by field name. WorkloadError: no such preset or field, or a value that cannot be."""
    if preset not in PRESETS:
        raise WorkloadError(f"preset {preset!r}: use one of {', '.join(PRESETS)}")
    known = get_type_hints(Settings)
    if unknown := sorted(set(changes) - set(known)):
        raise WorkloadError(f"no setting {unknown[0]!r}: there are {', '.join(known)}")
    return Settings(**{**PRESETS[preset], **changes})
