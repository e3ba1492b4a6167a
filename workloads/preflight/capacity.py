"""`rdma-ray capacity`: where and how a stack's machine can be had now. It only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console

from infra.settings import EksSettings, GkeSettings
from workloads.exits import Exit
from workloads.options import JsonFile, option
from workloads.preflight import capacity_eks, capacity_gke
from workloads.preflight.answers import ask_all
from workloads.preflight.commands import account_needed, file_of, progress, read_stack
from workloads.preflight.offers import NO, UNKNOWN, Offer, OfferQuestion
from workloads.terminal.console import Terminal, say, table_of, write_json

STYLES: Mapping[str, str] = {NO: "dim", UNKNOWN: "yellow"}


def capacity(
    stack: Annotated[str, option(help="A stack of this clone, or a Pulumi.<stack>.yaml.", metavar="STACK")],
    /,
    *,
    json_file: JsonFile = None,
) -> int:
    """Show where and how a stack's machines can be had now.

    Zones of the stack's region by kinds of capacity, for nodes.max machines: the
    cloud's own score or offer, the list price of a node, and the lines of the
    stack file that choose it. A score is a chance, not a promise, and says nothing
    about your quota: see `rdma-ray preflight`.

    Example: rdma-ray capacity gke
    Exit codes: 0 there is an offer, however small its score, 1 the stack file has
    problems, 2 nothing can be had, 5 it is unknown.
    """
    file = file_of(stack)
    terminal = Terminal(stderr=True, highlight=False)
    with terminal.status("asking for zones"):
        questions = questions_of(file)
    with progress(terminal, len(questions)) as count:
        offers = ranked(ask_all(questions, count))
    if json_file != "-":
        show(offers, Terminal(highlight=False))
    if json_file:
        write_json({"offers": [asdict(offer) for offer in offers]}, json_file)
    return exit_code(offers)


def questions_of(file: Path) -> Sequence[OfferQuestion]:
    """Return the questions about offers for a stack file. Raises WorkloadError."""
    settings, config = read_stack(file)
    if isinstance(settings, GkeSettings):
        return capacity_gke.offers(settings, config)
    if isinstance(settings, EksSettings):
        return capacity_eks.offers(settings, config)
    raise account_needed(file, settings)


def ranked(offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers, best score first, then what has no score, and last what cannot be had; the cheapest first."""

    def rank(offer: Offer) -> tuple[int, float, float, str, str]:
        group = {NO: 2, UNKNOWN: 1}.get(offer.available, 0)
        cost = float("inf") if offer.price is None else offer.price
        return group, -(offer.score or 0.0), cost, offer.where, offer.kind

    return sorted(offers, key=rank)


def exit_code(offers: Sequence[Offer]) -> Exit:
    """Return the exit code of `rdma-ray capacity`."""
    there = {offer.available for offer in offers}
    return Exit.OK if there - {NO, UNKNOWN} else Exit.NOT_AS_ASKED if there != {NO} else Exit.BELOW


def show(offers: Sequence[Offer], console: Console) -> None:
    """Print a line for each offer, then notes and how each was asked."""
    columns = ("where", "capacity", "available", "score", "$/h a node", "to choose it")
    table = table_of(columns, text=("where", "capacity", "available", "to choose it"))
    table.columns[-1].no_wrap = False
    for offer in offers:
        score = "–" if offer.score is None else f"{offer.score:.1f}"
        cost = "–" if offer.price is None else f"{offer.price:.2f}"
        chosen = "\n".join(offer.lines) or ("the stack file says so" if offer.available not in (NO, UNKNOWN) else "–")
        row = (offer.where, offer.kind, offer.available, score, cost, chosen)
        table.add_row(*row, style=STYLES.get(offer.available))
    console.print(table)
    say(console, "$/h: at most, by list prices; – is not known", style="dim")
    for note in dict.fromkeys(f"{offer.where}, {offer.kind}: {offer.note}" for offer in offers if offer.note):
        say(console, note)
    for asked in dict.fromkeys(offer.asked for offer in offers if offer.asked):
        say(console, f"asked: {asked}", style="dim")
