"""Sizes of the language model, and their floating-point operations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 256
"""A token is a byte."""


@dataclass(frozen=True)
class Size:
    """Blocks, width of the residual stream, attention heads, and tokens of a sequence."""

    layers: int
    width: int
    heads: int
    context: int


SIZES = {
    "tiny": Size(2, 64, 4, 128),  # 0.1 M parameters: a step takes milliseconds on a CPU
    "small": Size(12, 768, 12, 1024),  # 85 M
    "medium": Size(24, 1024, 16, 1024),  # 303 M
    "large": Size(24, 1536, 16, 2048),  # 680 M
    "xl": Size(24, 2048, 16, 2048),  # 1.2 B
}


def parameters_in_products(size: Size) -> int:
    """Return the weights that each token is multiplied with: 12·width² of a block, and the head."""
    return size.layers * 12 * size.width**2 + size.width * VOCABULARY


def per_token(size: Size) -> float:
    """Return the FLOP of one token of a training step, forward and backward: 6·N + 12·layers·width·context.

    N are the weights in matrix products. The second term is attention's, counted without the causal mask, as in the
    MFU of Chowdhery et al. 2022 (arXiv 2204.02311, appendix B). Work repeated by activation checkpointing, norms and
    the embedding's look-up do not count.
    """
    return float(6 * parameters_in_products(size) + 12 * size.layers * size.width * size.context)
