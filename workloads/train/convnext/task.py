"""ConvNeXt as a Task of the trainer: model, wrapping, optimizer and loss from the settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from workloads.train.convnext.compilation import Compilation
from workloads.train.convnext.flops import SIZES, per_image
from workloads.train.convnext.model import ConvNeXt
from workloads.train.data.loader import source
from workloads.train.data.source import Batch
from workloads.train.options import ConvNeXtSettings
from workloads.train.task import Task, parallel


class ConvNeXtTask(Task):
    """ConvNeXt as a task."""

    def __init__(self, settings: ConvNeXtSettings) -> None:
        self.settings = settings
        self.size = replace(SIZES[settings.size], image=settings.image, classes=settings.classes)
        self.flops_per_sample = per_image(self.size)
        self.data = source(settings)
        self.memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.compilation: Compilation | None = None
        self._losses = 0

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
        warm_up, decay = self.settings.warmup_steps, self.settings.decay_steps
        if step < warm_up:
            return (step + 1) / warm_up
        if decay is None:
            return 1.0
        return (1 + math.cos(math.pi * min(1.0, (step - warm_up) / decay))) / 2

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        # At the second forward pass, compilation is complete.
        if self.compilation and self._losses == 1:
            self.compilation.check("the first step")
        self._losses += 1
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            return nn.functional.cross_entropy(model(images), labels)

    def report(self) -> dict[str, Any]:
        return {"compile": self.compilation.report() if self.compilation else {"way": "off"}}
