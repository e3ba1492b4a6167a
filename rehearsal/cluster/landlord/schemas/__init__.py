"""Definitions of kinds whose own are not public as a module: written from their reference, without unknown fields."""
