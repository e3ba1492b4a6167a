"""Where and how a machine of Google Cloud can be had now: zones of the stack's region by kinds of capacity."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from infra.settings import GkeSettings
from workloads.preflight.answers import refused
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.fields import entries, text
from workloads.preflight.gcloud import Account, Question
from workloads.preflight.gke_place import machines_left, zones_of
from workloads.preflight.gke_stock import MODELS, advice, score_of
from workloads.preflight.offers import NO, UNKNOWN, Offer, OfferQuestion, price

CALENDAR_DAYS, CALENDAR_AHEAD_DAYS = 7, 28
"""Days of a reservation to ask for, and days from tomorrow on which it may begin (our choice: a week, as the longest
flex-start node, within four weeks)."""
NEW_RESERVATION = "your-reservation"
SHOWN = 8


def offers(settings: GkeSettings, config: Mapping[str, Any]) -> Sequence[OfferQuestion]:
    """Return the questions about offers, after one about the zones that have the machine type.

    Args:
        config: The map of the stack file, which also configures the provider.
    """
    question = Question(settings, Account.of(config, os.environ))
    machine, region = settings.machine, question.region
    questions: list[OfferQuestion] = []
    zones = [question.zone]
    try:
        reply = question.account.ask("compute", "machine-types", "list", f"--filter=name={machine.name}")
        listed = zones_of(reply, machine.name)
    except NoAnswerError as error:
        questions.append(OfferQuestion(where="other zones", kind="any", ask=partial(_raise, error)))
    else:
        zones = [zone for zone in listed if zone.startswith(f"{region}-")]
        others = [zone for zone in listed if zone not in zones]
        if others or not zones:
            elsewhere = Offer(
                where="other regions" if zones else region,
                kind="any",
                available=UNKNOWN if others else NO,
                asked=reply.asked,
                note=_elsewhere(others, machine.name),
            )
            questions.append(OfferQuestion(where="other regions", kind="any", ask=partial(iter, (elsewhere,))))
    lines = partial(lines_of, settings, config)
    for zone in zones:
        for model in dict.fromkeys(MODELS[kind] for kind in machine.capacities if kind in MODELS):
            kinds = [kind for kind in machine.capacities if MODELS.get(kind) == model]
            ask = partial(_scored, question, kinds, zone, lines)
            cost = price(machine.name, kinds[0], region)
            questions.append(OfferQuestion(where=zone, kind=kinds[0], ask=ask, price=cost))
        if "on-demand" in machine.capacities:
            on_demand = Offer(
                where=zone,
                kind="on-demand",
                available=UNKNOWN,
                price=price(machine.name, "on-demand", region),
                lines=lines(zone, "on-demand"),
                note="The zone has the type; Google does not say how many are free.",
            )
            questions.append(OfferQuestion(where=zone, kind="on-demand", ask=partial(iter, (on_demand,))))
    if "reservation" in machine.capacities:
        cost = price(machine.name, "reservation", region)
        held, calendar = partial(_reserved, question, lines), partial(_calendar, question, lines)
        questions.append(OfferQuestion(where=region, kind="reservation", ask=held, price=cost))
        if machine.rdma:
            questions.append(OfferQuestion(where=region, kind="calendar", ask=calendar, price=cost))
    return questions


def lines_of(settings: GkeSettings, config: Mapping[str, Any], zone: str, kind: str, name: str = "") -> tuple[str, ...]:
    """Return the lines of the stack file that choose a zone and a kind of capacity, and a reservation by name."""
    nodes = config.get("rdma-ray:nodes")
    written = nodes if isinstance(nodes, Mapping) else {}
    lines = []
    if zone != settings.location:
        lines.append(f"location: {zone}")
    if kind != settings.nodes.capacity:
        lines.append(f"nodes.capacity: {kind}")
        lines += [f"remove nodes.{key}" for key in ("fallback", "compact") if key in written]
        if "maxRunHours" in written and not kind.startswith("flex-start"):
            lines.append("remove nodes.maxRunHours")
    if kind == "reservation" and name != settings.nodes.reservation:
        lines.append(f"nodes.reservation: {name}")
    elif kind != "reservation" and settings.nodes.reservation is not None:
        lines.append("remove nodes.reservation")
    if kind == "flex-start-queued" and settings.queue != "kueue":
        lines.append("queue: kueue")
    return tuple(lines)


def _scored(question: Question, kinds: Sequence[str], zone: str, lines: Any) -> Iterator[Offer]:
    """Yield the offers of the kinds of capacity that one score is about."""
    settings, size = question.settings, question.settings.nodes.max
    cost = {kind: price(settings.machine.name, kind, question.region) for kind in kinds}
    try:
        reply = advice(question, kinds[0], zone)
    except NoAnswerError as error:
        asked = refused(error, "unsupported").asked
        note = f"Google does not offer the type by {MODELS[kinds[0]]} there."
        yield from (
            Offer(where=zone, kind=kind, available=NO, price=cost[kind], asked=asked, note=note) for kind in kinds
        )
        return
    score = score_of(reply, zone, size)
    note = f"Chance that all {size} nodes can be had now."
    if score.uptime_s is not None and MODELS[kinds[0]] == "SPOT":
        note = f"{note} Most run for {score.uptime_s / 60:.0f} minutes or longer before Google takes them."
    if score.obtainability is None:
        note = "The answer has no score for the zone."
    for kind in kinds:
        yield Offer(
            where=zone,
            kind=kind,
            available=score.words,
            score=score.obtainability,
            price=cost[kind],
            lines=lines(zone, kind),
            asked=reply.asked,
            note=note,
        )


def _reserved(question: Question, lines: Any) -> Iterator[Offer]:
    """Yield the project's reservations of the machine type."""
    machine, needed = question.settings.machine.name, question.settings.nodes.max
    cost = price(machine, "reservation", question.region)
    reply = question.account.ask("compute", "reservations", "list")
    listed = entries({"": reply.document}, "")
    if listed is None:
        return
    seen = 0
    for held in listed:
        kind = (text(held, "specificReservation", "instanceProperties", "machineType") or "").rpartition("/")[2]
        zone, name = (text(held, "zone") or "").rpartition("/")[2], text(held, "name")
        if kind != machine or not zone or name is None:
            continue
        seen += 1
        left = machines_left(held)
        ready = text(held, "status") == "READY" and left is not None
        available = UNKNOWN if not ready else NO if not left else f"{min(left or 0, needed):.0f} of {needed} nodes"
        yield Offer(
            where=zone,
            kind="reservation",
            available=available,
            score=min(1.0, (left or 0) / needed) if ready else None,
            price=cost,
            lines=lines(zone, "reservation", name),
            asked=reply.asked,
            note=f"Reservation {name}.",
        )
    if not seen:
        note = f"The project has no reservation of {machine}; another project may share one."
        yield Offer(where=question.region, kind="reservation", available=NO, price=cost, asked=reply.asked, note=note)


def _calendar(question: Question, lines: Any) -> Iterator[Offer]:
    """Yield where and when a reservation of calendar mode could begin."""
    settings = question.settings
    first = datetime.now(UTC).date() + timedelta(days=1)
    reply = question.account.ask(
        *("beta", "compute", "advice", "calendar-mode", f"--region={question.region}"),
        f"--machine-type={settings.machine.name}",
        f"--vm-count={settings.nodes.max}",
        f"--duration-range=min={CALENDAR_DAYS}d,max={CALENDAR_DAYS}d",
        f"--start-time-range=from={first},to={first + timedelta(days=CALENDAR_AHEAD_DAYS)}",
    )
    documents = reply.document if isinstance(reply.document, list) else [reply.document]
    for recommendation in (each for document in documents for each in entries(document, "recommendations") or ()):
        of_specs = recommendation.get("recommendationsPerSpec")
        for spec in of_specs.values() if isinstance(of_specs, Mapping) else ():
            start, end = text(spec, "startTime"), text(spec, "endTime")
            zone = (text(spec, "location") or "").rpartition("/")[2]
            if not start or not end or not zone.startswith(f"{question.region}-"):
                continue
            yield Offer(
                where=zone,
                kind="reservation",
                available=f"from {start[:10]} to {end[:10]}",
                price=price(settings.machine.name, "reservation", question.region),
                lines=lines(zone, "reservation", NEW_RESERVATION),
                asked=reply.asked,
                note="Calendar mode: reserve it with gcloud beta compute future-reservations create.",
            )


def _elsewhere(zones: Sequence[str], machine: str) -> str:
    if not zones:
        return f"No zone in the answer offers {machine}."
    more = f" and {len(zones) - SHOWN} more" if len(zones) > SHOWN else ""
    return f"{machine} is offered in {', '.join(zones[:SHOWN])}{more}: set location to one of them and ask again."


def _raise(error: NoAnswerError) -> Iterator[Offer]:
    raise error
