"""Decoder-only transformer over bytes: pre-norm blocks, rotary positions, PyTorch's attention kernels, untied head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from workloads.train.gpt.flops import VOCABULARY, Size

ROTARY_BASE = 10_000.0
STD = 0.02


class Block(nn.Module):
    """Residual block over [n, t, width]: causal attention, then two linear layers with GELU, each after a norm."""

    def __init__(self, size: Size, checkpointed: bool) -> None:
        super().__init__()
        width = size.width
        self.heads, self.checkpointed = size.heads, checkpointed
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, stream: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        # Inside of the block, so that FSDP gathers its parameters once for the repeated pass and the gradients.
        if self.checkpointed and torch.is_grad_enabled():
            output: torch.Tensor = checkpoint(
                self._compute, stream, rotation, use_reentrant=False, preserve_rng_state=False
            )
            return output
        return self._compute(stream, rotation)

    def _compute(self, stream: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(stream)).chunk(3, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(
            _rotated(query, rotation), _rotated(key, rotation), value, is_causal=True
        )
        stream = stream + self.projection(mixed.transpose(1, 2).flatten(2))
        added: torch.Tensor = stream + self.down(functional.gelu(self.up(self.mlp_norm(stream))))
        return added


class GPT(nn.Module):
    """[n, t] tokens (int64, t at most the size's context) to [n, t, 256] logits of the token that follows each."""

    def __init__(self, size: Size, checkpointed: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size.width)
        self.blocks = nn.ModuleList(Block(size, checkpointed) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, VOCABULARY, bias=False)
        half = size.width // size.heads // 2
        angles = torch.outer(torch.arange(size.context), ROTARY_BASE ** (-torch.arange(half) / half))
        # [2, context, half]: cosines and sines. In no checkpoint: it follows from the size.
        self.register_buffer("rotation", torch.stack([angles.cos(), angles.sin()]), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                # The residual stream is a sum over all blocks.
                residual = name.endswith(("projection.weight", "down.weight"))
                nn.init.normal_(parameter, std=STD / (2 * size.layers) ** 0.5 if residual else STD)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        stream = self.embedding(tokens)
        rotation = self.get_buffer("rotation")[:, : tokens.shape[1]]
        for block in self.blocks:
            stream = block(stream, rotation)
        logits: torch.Tensor = self.head(self.norm(stream))
        return logits


def _rotated(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotate [n, heads, t, 2·half] by position, in fp32; the result has the input's type."""
    cosine, sine = rotation
    first, second = heads.float().chunk(2, dim=-1)
    turned = torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
    return turned.to(heads.dtype)
