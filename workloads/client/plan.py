"""`rdma-ray plan`: the plan of a stack file. Only commands that read stack files load this."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from infra.plan import Plan
from infra.plan import plan as plan_of
from infra.settings import (
    CloudSettings,
    KubernetesSettings,
    LocalSettings,
    Settings,
    SettingsError,
    from_stack_file,
    warnings,
)
from infra.settings.cost import Cost, age, amounts
from infra.terminal import dollars
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
    if isinstance(document.settings, CloudSettings) and (old := age(document.settings.cost, datetime.date.today())):
        print(f"warning: {old}\n", file=sys.stderr)
    if json_file != "-":
        _show_plan(document, Terminal())
    if json_file:
        write_json(_plan_as_json(document), json_file)


def _plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return {warnings, settings, fabric, ranges: [{name, range, room}], cost, pod}; `pod` as in Kubernetes, or null.

    `cost` is {idle, most, atMost, parts}, US dollars per hour, or null.
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
        "cost": _cost_as_json(plan.settings.cost) if isinstance(plan.settings, CloudSettings) else None,
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
        if settings.teams:
            quotas = ", ".join(f"{team.quota} of {team.name}" for team in settings.teams)
            facts.add_row("teams", f"{quotas}; {nodes.max - settings.team_nodes} of the stack's own Ray")
        nics = f"{machine.nics} NICs of {machine.gbps_per_nic} Gbit/s" if machine.rdma else "no RDMA NIC"
        gpus = f"{machine.gpus} x {machine.gpu}" if machine.gpus else "no GPU"
        facts.add_row("node", f"{gpus}, {nics}")
        speed = (
            f" ({fabric.transport}), {fabric.gbps} Gbit/s per node, each way" if machine.rdma else ", the pod network"
        )
        facts.add_row("fabric", f"{settings.fabric}{speed}")
        devices = ", all GPUs and NICs" if machine.gpus else ""
        facts.add_row("pod", f"the whole node: {machine.pod_cpus} CPUs, {machine.pod_memory_gib} GiB{devices}")
        facts.add_row("cost", amounts(settings))
    console.print(facts)
    if isinstance(settings, CloudSettings):
        _show_cost(settings.cost, console)
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


def _show_cost(cost: Cost, console: Console) -> None:
    """Print each part of the cost with its price and source, and the sums."""
    table = Table(
        "US dollars per hour", "", "each", "without work", "at most", "list price", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in table.columns[1:5]:
        column.justify = "right"
    for part in cost.parts:
        each = part.each.dollars
        sums = [
            "unknown" if each is None and count else f"{count * (each or 0):,.2f}" for count in (part.idle, part.most)
        ]
        count = f"{part.idle:g}" if part.idle == part.most else f"{part.idle:g} to {part.most:g}"
        price = "unknown" if each is None else f"{'≤ ' if part.each.at_most else ''}{each:,.{2 if each >= 1 else 4}f}"
        table.add_row(part.name, count, price, *sums, ": ".join(filter(None, (part.each.date, part.each.note))))
    total = [dollars(cost.idle), dollars(cost.most, at_most=cost.at_most)]
    table.add_row("total", "", "", *total, f"without {cost.left_out}", style="bold")
    console.print(table)


def _cost_as_json(cost: Cost) -> dict[str, Any]:
    return {
        "idle": cost.idle,
        "most": cost.most,
        "atMost": cost.at_most,
        "parts": [
            {
                "name": part.name,
                "idle": part.idle,
                "most": part.most,
                "each": part.each.dollars,
                "atMost": part.each.at_most,
                "date": part.each.date,
                "source": part.each.source,
                "note": part.each.note,
            }
            for part in cost.parts
        ],
    }
