"""The check's result for people: every tensor of every worker, and what ran."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from workloads.client.view import ProgressView
from workloads.events import Event

PHASES = {
    "placement": "waiting for the nodes",
    "start": "starting the workers",
    "rendezvous": "forming the group",
    "reduce": "adding up over all devices",
}


class MultiGpuView(ProgressView):
    """The phases are the progress."""

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.say(PHASES[event["name"]])
            case "waiting":
                self.say(f"waiting for the nodes for {event['seconds']} s: {event['text']}")


def show(result: dict[str, Any], console: Console) -> None:
    """Print the evidence, then the verdict; nothing but the reason where no tensor was read."""
    if result["workers"]:
        console.print(_table(result))
        console.print(result["ran"], highlight=False, soft_wrap=True)
    if notice := result.get("notice"):
        console.print(notice, style="yellow", markup=False, soft_wrap=True)
    if result.get("machines") == 1:
        console.print("all workers on one machine: a functional proof", style="yellow")
    if fault := result.get("injected_fault"):
        console.print(f"a fault was injected on purpose: {fault}", style="yellow")
    for worker in result["workers"]:
        if log := worker["log"]:
            console.print(
                f"worker {worker['rank']}: NCCL {log['nccl_version']}, network {log['plugin']},"
                f" GPUDirect RDMA on NICs {log['gdrdma_hcas']}",
                markup=False,
                soft_wrap=True,
            )
    console.print(result["reason"], style="red" if result["exit_code"] else "green", markup=False, soft_wrap=True)


def _table(result: dict[str, Any]) -> Table:
    table = Table(
        title=f"{len(result['workers'])} workers of {result['spec']['devices']} tensors, {result['backend']}",
        caption=f"every element must be {result['expected']:g}",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("worker", "address", "tensor", "device"):
        table.add_column(name, no_wrap=True)
    table.add_column("before", justify="right")
    table.add_column("after", no_wrap=True)
    for worker in result["workers"]:
        table.add_section()
        for index, tensor in enumerate(worker["tensors"]):
            right = all(value == result["expected"] for value in tensor["values"])
            after = " ".join(f"{value:g}" for value in tensor["values"])
            table.add_row(
                str(worker["rank"]),
                worker["ip"],
                str(index),
                tensor["device"],
                f"{tensor['start']:g}",
                after if right else f"[red]{after}[/]",
            )
    return table
