"""`rdma-ray plan`: the plan of a stack file. Only commands that read stack files load this."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from infra.catalog.prices import REGIONS
from infra.plan import Plan
from infra.plan import plan as plan_of
from infra.settings import KubernetesSettings, LocalSettings, Settings, SettingsError, from_stack_file, warnings
from workloads.exits import WorkloadError
from workloads.options import JsonFile, option
from workloads.terminal.console import Terminal, write_json


def read_settings(file: Path, changes: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings in a stack file, with `changes` by path. WorkloadError with every problem."""
    try:
        return from_stack_file(file, changes)
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None


def plan(
    file: Annotated[Path, option(help="A Pulumi.<stack>.yaml.", metavar="FILE")], /, *, json_file: JsonFile = None
) -> None:
    """Validate a stack file, and show what it becomes.

    Without an engine and without a cloud: machine, address ranges, fabric, and
    the variables of a GPU pod with their reasons.

    Example: rdma-ray plan Pulumi.gke.yaml
    Exit codes: 0 valid, 1 it has problems, which are all printed.
    """
    document = plan_of(read_settings(file))
    for warning in warnings(document.settings):
        print(f"warning: {warning}\n", file=sys.stderr)
    if json_file != "-":
        _show_plan(document, Terminal())
    if json_file:
        write_json(_plan_as_json(document), json_file)


def _plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return {warnings, settings, fabric, ranges: [{name, range, room}], hour, pod}; `pod` as in Kubernetes, or null.

    `hour` is {idle, most}, US dollars, or null.
    """
    fabric, pod = plan.fabric, plan.pod
    return {
        "warnings": [str(warning) for warning in warnings(plan.settings)],
        "settings": plan.settings.model_dump(mode="json", by_alias=True),
        "fabric": {
            "transport": fabric.transport,
            "nics": fabric.nics,
            "gbpsPerNic": fabric.gbps_per_nic,
            "gbpsPerNode": fabric.gbps,
            "aligned": fabric.rdma is not None,
        },
        "ranges": [{"name": cut.name, "range": str(cut.network), "room": cut.room} for cut in plan.ranges],
        "hour": plan.hour and dict(zip(("idle", "most"), plan.hour, strict=True)),
        "pod": pod
        and {
            "annotations": dict(pod.annotations),
            "spec": pod.pod(),
            "container": pod.container(),
            "setup": pod.setup,
            "objects": list(pod.objects),
        },
    }


def _show_plan(plan: Plan, console: Console) -> None:
    """Print machines, fabric, addresses, and why each variable is set."""
    settings, machine, fabric = plan.settings, plan.machine, plan.fabric
    facts = Table.grid(padding=(0, 2))
    if isinstance(settings, LocalSettings):
        facts.add_row("target", settings.target)
        facts.add_row("nodes", f"1 head, {settings.nodes.count} workers of {settings.nodes.cpus} CPUs")
        facts.add_row("fabric", "none: every node is a process of this machine")
    elif isinstance(settings, KubernetesSettings):
        own = settings.nodes
        nics = "" if own.nics is None else f", {own.nics} NICs"
        facts.add_row("target", f"{settings.target} {settings.context}, namespace {settings.namespace}")
        facts.add_row("nodes", f"{own.min} to {own.max}" + (f" x {own.machine}" if own.machine else ""))
        facts.add_row("fabric", f"{settings.fabric} ({fabric.transport})")
        facts.add_row("pod", f"{own.cpus} CPUs, {own.memory_gib} GiB, {own.gpus} GPUs{nics}")
    elif machine is not None:
        nodes = settings.nodes
        facts.add_row("target", f"{settings.target} {settings.location}")
        facts.add_row("nodes", f"{nodes.min} to {nodes.max} x {machine.name} by {nodes.capacity}")
        nics = f"{machine.nics} NICs of {machine.gbps_per_nic} Gbit/s" if machine.rdma else "no RDMA NIC"
        gpus = f"{machine.gpus} x {machine.gpu}" if machine.gpus else "no GPU"
        facts.add_row("node", f"{gpus}, {nics}")
        speed = (
            f" ({fabric.transport}), {fabric.gbps} Gbit/s per node, each way" if machine.rdma else ", the pod network"
        )
        facts.add_row("fabric", f"{settings.fabric}{speed}")
        devices = ", all GPUs and NICs" if machine.gpus else ""
        facts.add_row("pod", f"the whole node: {machine.pod_cpus} CPUs, {machine.pod_memory_gib} GiB{devices}")
        facts.add_row("cost", _cost(plan))
    console.print(facts)
    if plan.ranges:
        ranges = Table("range", "name", "room", box=SIMPLE_HEAD, pad_edge=False)
        for cut in plan.ranges:
            ranges.add_row(str(cut.network), cut.name, cut.room)
        console.print(ranges)
    variables = (*(plan.pod.environment if plan.pod else ()), *plan.scripted)
    if variables:
        environment = Table("variable", Column("value", overflow="fold"), "why", box=SIMPLE_HEAD, pad_edge=False)
        for variable in variables:
            environment.add_row(variable.name, variable.value, variable.why)
        console.print(environment)


def _cost(plan: Plan) -> str:
    if plan.hour is None:
        return "not known: no dated list price of these machines"
    idle, most = plan.hour
    where = f"list prices of {REGIONS[plan.settings.target]}, without disks, NAT and traffic"
    return f"${idle:.2f} an hour without work, at most ${most:.2f}: {where}"
