"""`make test-matrix`: every combination of settings goes up in a rehearsal or is refused with a reason.

The settings are machine, capacity, fallback, ComputeClass, fabric, queue and workload kind, on every simulated target.
The real engine brings each legal combination up against simulated clouds; its invariants must hold, and its preview
must be empty after drift. The workload kind does not depend on the machine: kinds other than "cluster" go up with one
machine per cloud, and validation runs for all.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.fabrics import FABRICS
from infra.catalog.machines import CATALOG
from infra.catalog.pins import RAY_IMAGE
from infra.settings import parse
from infra.settings.load import CONTRACTS
from infra.settings.problems import Problem, SettingsError
from rehearsal.clouds.registry import drift
from rehearsal.engine.commands import Engine, EngineError
from rehearsal.engine.workspace import Workspace, in_parallel
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Graph
from rehearsal.invariants.invariant import Stack
from rehearsal.invariants.violations import violations

STACK = "matrix"
LOCATIONS = {"gke": "us-central1-b", "eks": "us-east-2a"}
WEST = {"p4de.24xlarge": "us-west-2a", "p6-b300.48xlarge": "us-west-2a"}
"""Zones of machines that us-east-2 does not have: no zone of AWS has all of the catalog."""
RESERVATIONS = {"gke": "ours", "eks": "cr-0123456789abcdef0"}
RESERVED = {"reservation", "capacity-block"}
SHOWN = {"gke": "a3-ultragpu-8g", "eks": "p5en.48xlarge"}
"""The machine for every workload kind: that of the stack files."""


@dataclass(frozen=True)
class Cell:
    """One combination of the settings that constrain each other."""

    target: str
    machine: str
    capacity: str
    fallback: str | None
    compute_class: bool
    fabric: str
    queue: str
    mode: str

    def __str__(self) -> str:
        words = (self.machine, self.capacity, self.fallback, self.compute_class and "computeClass", self.fabric)
        more = (self.queue != "none" and self.queue, self.mode != "cluster" and self.mode)
        return " ".join(str(word) for word in (*words, *more) if word)

    @property
    def location(self) -> str:
        """Return a zone in which the simulated cloud has the machine."""
        return WEST.get(self.machine, LOCATIONS[self.target])

    @property
    def shown(self) -> bool:
        """Whether it is brought up if it is legal. If not, another combination covers it."""
        return self.mode == "cluster" or self.machine == SHOWN[self.target]

    @property
    def raw(self) -> dict[str, Any]:
        """Return the stack file of this combination, without the namespace."""
        nodes = {"machine": self.machine, "capacity": self.capacity, "fallback": self.fallback, "max": 2}
        if RESERVED & {self.capacity, self.fallback}:
            nodes["reservation"] = RESERVATIONS[self.target]
        if not FABRICS[self.fabric].from_zero and self.capacity in ("on-demand", "spot", "reservation"):
            # Claims do not scale a pool up from zero.
            nodes["min"] = 1
        if (self.queue, self.capacity, self.fallback) == ("kueue", "reservation", None):
            # All nodes stay up, so that Kueue can schedule by topology where the combination allows it.
            nodes["min"] = nodes["max"]
        return {
            "target": self.target,
            "location": self.location,
            "nodes": {key: value for key, value in nodes.items() if value is not None},
            **({"computeClass": True} if self.compute_class else {}),
            "fabric": self.fabric,
            "queue": self.queue,
            "ray": {
                "image": RAY_IMAGE,
                "mode": self.mode,
                **({} if self.mode in ("cluster", "service") else {"entrypoint": "python /app/train.py"}),
            },
            **({"service": {"application": "app:app", "deployment": "Model"}} if self.mode == "service" else {}),
            "protect": False,
        }

    def problems(self) -> tuple[Problem, ...]:
        """Return why it is refused; empty if it is legal."""
        try:
            parse(self.raw, stack=STACK)
        except SettingsError as error:
            return error.problems
        return ()


def cells(target: str) -> Iterator[Cell]:
    """Yield every combination of a target."""
    machines = [name for name, machine in CATALOG.items() if machine.cloud == target]
    paths = ("nodes.capacity", "fabric", "queue", "ray.mode")
    ways, fabrics, queues, modes = (CONTRACTS[target][path].names for path in paths)
    seconds = (None, *ways) if target == "gke" else (None,)
    classes = (False, True) if target == "gke" else (False,)
    for one in product(machines, ways, seconds, classes, fabrics, queues, modes):
        yield Cell(target, *one)


def deploy(cell: Cell, workspace: Workspace) -> tuple[Engine, Stack]:
    """Bring a legal combination up. Raises `EngineError`."""
    file = workspace.folder.with_suffix(".yaml")
    named = {f"rdma-ray:{key}": value for key, value in cell.raw.items()}
    provider = {"gcp:project": "my-project"} if cell.target == "gke" else {"aws:region": cell.location[:-1]}
    file.write_text(yaml.safe_dump({"config": {**provider, **named}}))
    engine = Engine.deployed(workspace, STACK, file)
    return engine, Stack(Graph.from_deployment(engine.deployment()), parse(cell.raw, stack=STACK))


def goes_up(cell: Cell, workspace: Workspace) -> list[str]:
    """Bring a legal combination up and return the problems."""
    try:
        engine, stack = deploy(cell, workspace)
    except EngineError as error:
        return [error.said.text]
    wrong = violations(stack)
    with engine.cloud_state.transaction() as state:
        drift(state)
    preview = engine.preview()
    return wrong if preview.ok else [*wrong, preview.text]


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix; return 1 if a legal combination does not go up or an illegal one is refused without a fix."""
    parser = argparse.ArgumentParser(prog="make test-matrix", description=__doc__)
    parser.add_argument("--target", choices=sorted(LOCATIONS), action="append")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    began, failed = time.monotonic(), 0
    with ForkServer() as fork_server, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for target in options.target or sorted(LOCATIONS):
            every = list(cells(target))
            legal = [cell for cell in every if not cell.problems()]
            unexplained = [cell for cell in every if any(not one.fix or not one.message for one in cell.problems())]
            shown = [cell for cell in legal if cell.shown]
            print(f"{target}: {len(every)} combinations, {len(every) - len(legal)} refused, {len(shown)} to go up")
            failed += len(unexplained)
            failed += _run(shown, folder / target, fork_server, options.workers)
    print(f"{'all as expected' if not failed else f'{failed} FAILED'}, {(time.monotonic() - began) / 60:.1f} min")
    return 1 if failed else 0


def _run(legal: list[Cell], folder: Path, fork_server: ForkServer, workers: int) -> int:
    """Bring all combinations up, several at a time; return how many failed."""
    folder.mkdir()
    workspaces = [Workspace(folder / str(number), fork_server.bin) for number in range(workers)]

    def show(cell: Cell, wrong: list[str]) -> None:
        print(f"  {'FAILED' if wrong else 'up'}: {cell}", *wrong, sep="\n    ", flush=True)

    failed = sum(map(bool, in_parallel(legal, workspaces, goes_up, show)))
    shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    sys.exit(main())
