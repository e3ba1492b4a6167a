"""Numbers as tables show them. Pure."""

from __future__ import annotations


def figure(value: float) -> str:
    """Four significant digits without an exponent: 371.9, 12.35, 0.0421, 12022."""
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}" if value >= 1 else f"{value:.4f}"
