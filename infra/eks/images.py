"""Where images of operators come from: their own registries, or a mirror where nodes have no way to the Internet."""

from __future__ import annotations


def mirrored(repository: str, mirror: str | None) -> str:
    """An image's repository, or the same path in the mirror: quay.io/kuberay/operator is MIRROR/kuberay/operator."""
    return repository if mirror is None else f"{mirror.rstrip('/')}/{repository.partition('/')[2]}"
