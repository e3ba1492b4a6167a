"""ConvNeXt as a Task of the trainer: model, wrapping, optimizer and loss from the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from workloads.exits import WorkloadError
from workloads.train.convnext.compilation import Compilation
from workloads.train.convnext.flops import SIZES, per_image
from workloads.train.convnext.model import ConvNeXt
from workloads.train.data.feed import Feed
from workloads.train.data.items import torchvision
from workloads.train.data.loader import source
from workloads.train.data.source import Batch
from workloads.train.options import ConvNeXtOptions, ConvNeXtSettings
from workloads.train.place import summed
from workloads.train.task import Task, parallel, place, warm_up_and_cosine


class ConvNeXtTask(Task):
    """ConvNeXt as a task."""

    def __init__(self, settings: ConvNeXtOptions) -> None:
        self.settings = settings
        self.size = replace(SIZES[settings.size], image=settings.image, classes=settings.classes)
        self.flops_per_sample = per_image(self.size)
        self.data = source(settings)
        self.memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
        # Opened here, so that missing or other classes are an error before training.
        self.evaluates = self.data.test_items is not None
        if settings.min_accuracy is not None:
            self._check_accuracy()
        self.mix = mix(settings)
        self.compilation: Compilation | None = None
        self._losses = 0

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
                f"{asked} is measured at ends of epochs, and --steps {settings.steps} ends before the first, of"
                f" {epoch_steps} steps: use --epochs"
            )

    def model(self, device: torch.device) -> ConvNeXt:
        settings = self.settings
        if settings.kernels == "fused":
            from workloads.train.convnext import depthwise

            depthwise.check(device)
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high" if settings.tf32 else "highest")
            torch.backends.cudnn.benchmark = settings.cudnn_benchmark
        # Initialized on the CPU: the same weights for any device.
        model = ConvNeXt(
            self.size,
            stochastic_depth=settings.stochastic_depth,
            kernels=settings.kernels,
            stream=settings.stream,
        )
        # Before DDP, whose buckets have the parameters' strides and copy gradients of other strides.
        return model.to(memory_format=self.memory_format).to(device)

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        assert isinstance(model, ConvNeXt)
        settings = self.settings
        if settings.compile != "off":
            self.compilation = Compilation(settings, device)
            self.compilation.apply(model)
        prepared = parallel(
            model,
            device,
            gradient_as_bucket_view=settings.gradient_as_bucket_view,
            static_graph=settings.static_graph,
            forward_sync_buffers=settings.broadcast_buffers,
            bucket_cap_mb=settings.bucket_mb,
        )
        if settings.compress == "bf16" and isinstance(prepared, DistributedDataParallel):
            prepared.register_comm_hook(None, bf16_compress_hook)
        return prepared

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
        # At the second forward pass, compilation is complete.
        if self.compilation and self._losses == 1:
            self.compilation.check("the first step")
        self._losses += 1
        with self._autocast(images.device):
            return nn.functional.cross_entropy(model(images), labels, label_smoothing=self.settings.label_smoothing)

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the share of the test images whose label is the first (`accuracy`) or among the first five answers."""
        if not self.evaluates:
            return {}
        rank, world = place()
        best = min(5, self.size.classes)
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
        return {"compile": self.compilation.report() if self.compilation else {"way": "off"}}


def mix(settings: ConvNeXtSettings) -> Any:
    """Return torchvision's MixUp or CutMix of a batch, one of both at random if both are on, or None.

    They draw from torch's CPU generator, which the trainer seeds by (seed, step, rank).
    """
    asked = {"MixUp": settings.mixup, "CutMix": settings.cutmix}
    if not any(asked.values()):
        return None
    v2 = torchvision().transforms.v2
    kinds = [getattr(v2, name)(alpha=alpha, num_classes=settings.classes) for name, alpha in asked.items() if alpha]
    return v2.RandomChoice(kinds)
