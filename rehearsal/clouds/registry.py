"""The simulated clouds by provider package, imported on demand."""

from __future__ import annotations

import importlib

from rehearsal.engine.kind import Cloud, ResourceKind
from rehearsal.engine.state import View
from rehearsal.engine.values import merged

PACKAGES = ("aws", "gcp", "kubernetes", "random")


def cloud(package: str) -> Cloud:
    """Return the simulated cloud of a provider package."""
    found: Cloud = importlib.import_module(f"rehearsal.clouds.{package}.cloud").CLOUD
    return found


def kind_of(type_: str) -> ResourceKind | None:
    """Return the kind of a type token; None for components and types without one."""
    package = type_.partition(":")[0]
    return cloud(package).kind(type_) if package in PACKAGES else None


def running_nodes(state: View) -> dict[tuple[str, str], int]:
    """Return the number of running nodes of each node group and node pool, by type and id."""
    every = ((type_, id_, kind_of(type_), live) for type_, id_, live in state.all())
    return {(type_, id_): nodes for type_, id_, kind, live in every if kind and (nodes := kind.nodes(live))}


def drift(state: View) -> int:
    """Apply the drift of every cloud; return how many objects changed."""
    touched = 0
    for type_, id_, live in list(state.all()):
        kind = kind_of(type_)
        changes = kind.drift(live, state) if kind else {}
        if changes:
            state.put(type_, id_, merged(live, changes))
            touched += 1
    return touched
