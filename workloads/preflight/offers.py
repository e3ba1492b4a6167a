"""Where and how a stack's machine can be had now: rows of `rdma-ray capacity`, and the questions that give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from infra.catalog.prices import price_of
from workloads.preflight.cli import NoAnswerError

UNKNOWN = "unknown"
NO = "no"
"""Values of `Offer.available` without an answer, which is never a reason to choose an offer, and where nothing can be
had."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A zone and a kind of capacity in which the stack's machine may be had.

    Args:
        where: Zone; a region where the cloud does not say more.
        kind: Kind of capacity, a value of nodes.capacity.
        available: What the cloud says about now, in a few words, such as `likely`, `2 of 4 nodes`, `no`; `UNKNOWN`
            without an answer.
        score: The cloud's own score from 0 to 1 (AWS' 1 to 10 divided by 10); None where it has none. Offers with the
            highest score come first.
        price: US dollars of a node by the hour; None if it is not known.
        lines: Lines of the stack file that choose it, each `path: value` of one setting, such as
            `nodes.capacity: spot`. Empty where the stack file says so already.
        asked: Command line that gives this answer; empty if the catalog alone gives it.
        note: What else matters, or why it is unknown; a whole sentence.
    """

    where: str
    kind: str
    available: str
    score: float | None = None
    price: float | None = None
    lines: tuple[str, ...] = ()
    asked: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class OfferQuestion:
    """A question about offers. Without an answer, `where` and `kind` have one offer that is unknown."""

    where: str
    kind: str
    ask: Callable[[], Iterable[Offer]]
    price: float | None = None

    def answers(self) -> list[Offer]:
        """Ask. A question without an answer is unknown."""
        unknown = Offer(where=self.where, kind=self.kind, available=UNKNOWN, price=self.price)
        try:
            return [*self.ask()] or [_with(unknown, "The answer has nothing about it.")]
        except NoAnswerError as error:
            return [_with(unknown, f"{error.reason}; {error.fix}", error.asked)]


def _with(offer: Offer, note: str, asked: str = "") -> Offer:
    return replace(offer, note=note, asked=asked)


def price(machine: str, kind: str, region: str) -> float | None:
    """Return what a node costs at most by the hour in a region, by list prices, US dollars; None if it is not known."""
    return price_of(machine, kind, region).dollars
