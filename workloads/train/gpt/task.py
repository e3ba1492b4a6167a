"""Language model as a Task of the trainer: DDP or FSDP2, precision, optimizer and schedule from the settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from workloads.train.data.feed import Feed
from workloads.train.data.source import Batch
from workloads.train.gpt.data import Sequences, Text
from workloads.train.gpt.flops import SIZES, VOCABULARY, per_token
from workloads.train.gpt.model import GPT
from workloads.train.options import GPTOptions
from workloads.train.place import summed
from workloads.train.task import Task, parallel, place, warm_up_and_cosine

BETAS = (0.9, 0.95)


class GPTTask(Task):
    """Language model as a task."""

    unit = "tokens"

    def __init__(self, options: GPTOptions) -> None:
        self.options = options
        size = SIZES[options.size]
        self.size = replace(size, context=options.context or size.context)
        self.text = Text(options.data_path)
        self.data = Sequences(self.text, self.size.context)
        self.units = self.size.context
        self.flops_per_sample = per_token(self.size) * self.units
        self.identity = {"text": self.text.sha256, "context": self.size.context}

    def model(self, device: torch.device) -> GPT:
        # Initialized on the CPU: the same weights for any device.
        return GPT(self.size, self.options.checkpoint_activations).to(device)

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        if self.options.parallel == "ddp":
            # The one buffer is constant.
            return parallel(model, device, gradient_as_bucket_view=True, forward_sync_buffers=False)
        assert isinstance(model, GPT)
        half = torch.bfloat16 if self.options.precision == "bf16" else None
        # Gradients are summed in fp32: the policy's default is the parameters' type.
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32 if half else None)
        mesh = init_device_mesh(device.type, (place()[1],))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)  # in place
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return AdamW, which first clips the gradients' norm over all ranks. Norms' weights do not decay."""
        options = self.options
        matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
        vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
        groups = [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        fused = next(model.parameters()).device.type == "cuda"
        optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, betas=BETAS, fused=fused)

        def clip(*_: Any) -> None:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)

        optimizer.register_step_pre_hook(clip)
        return optimizer

    def schedule(self, optimizer: torch.optim.Optimizer, epoch_steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        options = self.options
        steps = options.steps or (options.epochs or 1) * epoch_steps
        decay = options.decay_steps or max(1, steps - options.warmup_steps)
        return torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: warm_up_and_cosine(step, options.warmup_steps, decay, options.least_rate)
        )

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self._losses(model, batch).mean()

    def _losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return each sequence's mean cross entropy in nats per token."""
        tokens, following = batch
        # FSDP casts by its own policy.
        enabled = self.options.precision == "bf16" and self.options.parallel == "ddp"
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=enabled):
            logits = model(tokens)
        losses = nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten(), reduction="none")
        return losses.view_as(following).mean(1)

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the mean loss over held-out text, in nats per token."""
        rank, world = place()
        total = torch.zeros(2, dtype=torch.float64, device=device)
        counts: list[int] = []

        def batches() -> Any:
            for batch, count in self.data.test_batches(rank, world, self.options.batch):
                counts.append(count)
                yield batch

        # Not inference_mode: FSDP would keep its tensors, which the next backward pass cannot save.
        with torch.no_grad():
            for batch in Feed(batches(), device, self.memory_format):
                used = self._losses(model, batch)[: counts[-1]]
                total += torch.stack([used.double().sum(), total.new_tensor(float(counts[-1]))])
        if isinstance(model, FSDPModule):
            model.reshard()  # the root keeps its parameters for a backward pass, which does not follow
        loss, count = summed(total)
        return {"validation_loss": loss / count, "bits_per_byte": loss / count / math.log(2)}

    def report(self) -> dict[str, Any]:
        text = self.text
        return {"text": {"name": text.name, "bytes": len(text.data), "sha256": text.sha256}, "vocabulary": VOCABULARY}
