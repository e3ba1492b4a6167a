"""Definitions of kinds whose own are not public as a module: written from their reference, without unknown fields."""

from rehearsal.cluster.landlord.schemas import compute_class

__all__ = ["compute_class"]
