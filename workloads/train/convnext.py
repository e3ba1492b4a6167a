"""torchvision's ConvNeXt as a Task of the trainer: model, wrapping, optimizer and loss from the settings."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.flop_counter import FlopCounterMode

from workloads.exits import WorkloadError
from workloads.train.data.feed import Feed
from workloads.train.data.items import torchvision
from workloads.train.data.loader import source
from workloads.train.data.source import Batch
from workloads.train.options import ConvNeXtOptions, ConvNeXtSettings
from workloads.train.place import summed
from workloads.train.task import Task, parallel, place, warm_up_and_cosine

# Channels of the four stages, of one block each: the layers of ConvNeXt in seconds on a CPU. Not published models. The
# gradients of "small" (3.9 MB) fill several of DDP's buckets, whose first is 1 MiB.
CHANNELS = {"tiny": (8, 16, 32, 64), "small": (32, 64, 128, 256)}


def network(settings: ConvNeXtSettings) -> nn.Module:
    """Return torchvision's ConvNeXt: [n, 3, h, w] to [n, classes] logits. The default device determines its own.

    WorkloadError without torchvision.
    """
    models = torchvision().models
    options = {"stochastic_depth_prob": settings.stochastic_depth, "num_classes": settings.classes}
    if settings.size == "base":
        base: nn.Module = models.convnext_base(**options)
        return base
    channels = CHANNELS[settings.size]
    after = (*channels[1:], None)
    blocks = [models.convnext.CNBlockConfig(*sides, 1) for sides in zip(channels, after, strict=True)]
    made: nn.Module = models.ConvNeXt(blocks, **options)
    return made


def flops_per_image(settings: ConvNeXtSettings) -> float:
    """Return the FLOP of one image's training step: 92.1e9 for "base" at 224 by 224.

    A backward pass is twice the forward's work: gradients of inputs and of weights. It is not counted itself, because
    torch counts that of a grouped convolution as if it were dense: 272.9e9 for "base" (torch 2.15.0).
    """
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network(settings).eval()(torch.empty(1, 3, settings.image, settings.image))
    return float(3 * counter.get_total_flops())


class ConvNeXtTask(Task):
    """ConvNeXt as a task."""

    def __init__(self, settings: ConvNeXtOptions) -> None:
        self.settings = settings
        self.flops_per_sample = flops_per_image(settings)
        self.data = source(settings)
        self.memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
        # Opened here, so that missing or other classes are an error before training.
        self.evaluates = self.data.test_items is not None
        if settings.min_accuracy is not None:
            self._check_accuracy()
        self.mix = mix(settings)
        self._counted = _counts()

    def _check_accuracy(self) -> None:
        """Raise WorkloadError if no accuracy would be measured."""
        settings, asked = self.settings, f"--min-accuracy {self.settings.min_accuracy:g}"
        if not self.evaluates:
            raise WorkloadError(
                f"{asked} requires test images, and --data-path {settings.data_path} has no folders train and val: add"
                " them, or leave out --min-accuracy"
            )
        epoch_steps = self.data.order(settings.global_batch or settings.batch, settings.seed).epoch_steps
        if settings.steps is not None and settings.steps < epoch_steps:
            raise WorkloadError(
                f"{asked} is measured at the end of each epoch, but --steps {settings.steps} ends before"
                f" the first one does, after {epoch_steps} steps: use --epochs"
            )

    def model(self, device: torch.device) -> nn.Module:
        settings = self.settings
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high" if settings.tf32 else "highest")
            torch.backends.cudnn.benchmark = settings.cudnn_benchmark
        # Initialized on the CPU: the same weights for any device. In its format before DDP, whose buckets have the
        # parameters' strides and copy gradients of other strides.
        return network(settings).to(memory_format=self.memory_format).to(device)

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        settings = self.settings
        if settings.compile != "off":
            # fullgraph makes graph breaks and exceeded recompile limits errors, in place of eager code with a warning.
            model.compile(fullgraph=True, dynamic=False, backend=settings.backend)
        return parallel(
            model,
            device,
            gradient_as_bucket_view=settings.gradient_as_bucket_view,
            static_graph=settings.static_graph,
            forward_sync_buffers=settings.broadcast_buffers,
            bucket_cap_mb=settings.bucket_mb,
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        settings = self.settings
        rate, decay, fused = settings.learning_rate, settings.weight_decay, settings.fused
        if settings.optimizer == "adamw":
            return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=fused)
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=settings.momentum, weight_decay=decay, fused=fused)

    def schedule(self, optimizer: torch.optim.Optimizer, epoch_steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        del epoch_steps  # the settings count in steps
        return torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)

    def rate(self, step: int) -> float:
        """Return the factor on the learning rate: a linear warm-up, then constant or a half cosine to 0."""
        return warm_up_and_cosine(step, self.settings.warmup_steps, self.settings.decay_steps)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        if self.mix is not None:
            images, labels = self.mix(images, labels)
            images = images.contiguous(memory_format=self.memory_format)
        with self._autocast(images.device):
            logits = model(images)
            self._check_compiled()
            return nn.functional.cross_entropy(logits, labels, label_smoothing=self.settings.label_smoothing)

    def _check_compiled(self) -> None:
        """Raise WorkloadError if torch.compile was switched off from outside: it then leaves the model as it was."""
        if self.settings.compile != "off" and _counts()["graphs"] == self._counted["graphs"]:
            switched_off = [name for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE") if os.environ.get(name)]
            why = f"{switched_off[0]} is set" if switched_off else "torch.compile left the model as it was"
            raise WorkloadError(f"the first step ran in eager code: 0 graphs compiled, at least 1 expected; {why}")

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the share of the test images whose label is the first (`accuracy`) or among the first five answers."""
        if not self.evaluates:
            return {}
        rank, world = place()
        best = min(5, self.settings.classes)
        counts, images_here = torch.zeros(2, dtype=torch.float64, device=device), 0
        batches = Feed(self.data.test_batches(rank, world, self.settings.batch, device), device, self.memory_format)
        # Eager: compiled, each other size of a batch would be another graph.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"), self._autocast(device):
            for images, labels in batches:
                right = model(images).topk(best).indices == labels[:, None]
                counts += torch.stack([right[:, 0].sum(), right.sum()])
                images_here += len(labels)
        first, five, count = summed(torch.cat([counts, counts.new_tensor([images_here])]))
        return {"accuracy": first / count, "accuracy_5": five / count}

    def _autocast(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def report(self) -> dict[str, Any]:
        """Return the captured graphs, the parts that they were compiled in (DDP's buckets), and graph breaks."""
        if self.settings.compile == "off":
            return {"compile": {"way": "off"}}
        counts = {name: count - self._counted[name] for name, count in _counts().items()}
        return {"compile": {"way": self.settings.compile, "backend": self.settings.backend, **counts}}


def _counts() -> dict[str, int]:
    """Return Dynamo's counts since the start of this process."""
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "parts": counters["aot_autograd"]["ok"],
        "graph_breaks": sum(counters["graph_break"].values()),
    }


def mix(settings: ConvNeXtSettings) -> Any:
    """Return torchvision's MixUp or CutMix of a batch, one of the two at random if both are on, or None.

    They draw from torch's CPU generator, which the trainer seeds by (seed, step, rank).
    """
    asked = {"MixUp": settings.mixup, "CutMix": settings.cutmix}
    if not any(asked.values()):
        return None
    v2 = torchvision().transforms.v2
    kinds = [getattr(v2, name)(alpha=alpha, num_classes=settings.classes) for name, alpha in asked.items() if alpha]
    return v2.RandomChoice(kinds)
