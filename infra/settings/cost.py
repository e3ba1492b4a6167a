"""What a stack on a cloud costs per hour, from list prices: its parts, its limit `budget.hourly`, and a sharp rise."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from infra.catalog.machines import CATALOG, supported
from infra.catalog.prices import OLD_DAYS, Price, price_of, price_of_item, region_of_zone
from infra.settings.common import CloudBudget, CloudKubernetes, CloudNodes, pairs
from infra.settings.problems import CONTRACT, Finding, Findings, Problem, rule
from infra.terminal import dollars

NODES = WORKERS, SYSTEM = "worker nodes", "CPU nodes"
LEFT_OUT = "boot disks, traffic, logs, metrics and buckets"
"""What no part counts: it depends on use, which the stack file does not state."""
ZONES = 2
"""Zones with an address of each interface endpoint, and of the control plane."""
NAT_MACHINES = 32
"""Most machines that Cloud NAT bills for by the hour (Cloud NAT pricing; prices.yaml)."""
OWN = "rdma-ray:prices of the stack file"
AMOUNT = re.compile(r"\d{1,6}(\.\d{1,6})?")


@dataclass(frozen=True)
class Part:
    """Part of a stack's cost: its units, as few as run without work and at most, and the price of each per hour."""

    name: str
    idle: float
    most: float
    each: Price


@dataclass(frozen=True)
class Cost:
    """Cost of a stack per hour, US dollars.

    The sums are None while a price of nodes is unknown. Another part without a price is not in them (`left_out`).
    """

    parts: tuple[Part, ...]

    @cached_property
    def idle(self) -> float | None:
        """Without work: with `nodes.min` worker nodes and one CPU node."""
        return self._sum([(part, part.idle) for part in self.parts])

    @cached_property
    def most(self) -> float | None:
        """With `nodes.max` worker nodes and `cluster.systemNodes` CPU nodes."""
        return self._sum([(part, part.most) for part in self.parts])

    @property
    def workers(self) -> Part:
        """The worker nodes."""
        return next(part for part in self.parts if part.name == WORKERS)

    @property
    def at_most(self) -> bool:
        """Whether a price is an upper limit, so that the sums are, too."""
        return any(part.each.at_most for part in self.parts if part.most)

    @property
    def unknown(self) -> str:
        """Why `most` is None; empty if it is known."""
        return next((part.each.note for part in self.parts if part.each.dollars is None and part.name in NODES), "")

    @property
    def left_out(self) -> str:
        """What is not in the sums."""
        without = [part.name for part in self.parts if part.each.dollars is None and part.name not in NODES]
        return ", ".join([*without, LEFT_OUT])

    def _sum(self, counts: list[tuple[Part, float]]) -> float | None:
        if any(part.each.dollars is None for part, count in counts if count and part.name in NODES):
            return None
        return sum(count * (part.each.dollars or 0) for part, count in counts)


def amounts(settings: CostRules) -> str:
    """Return what a stack costs per hour, and in a run of `nodes.maxHours`."""
    cost, hours = settings.cost, settings.nodes.max_hours
    most = f"an unknown maximum ({cost.unknown})" if cost.most is None else f"at most {dollars(cost.most)}"
    text = f"{dollars(cost.idle)} an hour without work, {most}"
    return f"{text} (in {hours} h, nodes.maxHours, {dollars(cost.most * hours)})" if hours and cost.most else text


def summary(settings: CostRules) -> str:
    """Return what a stack costs per hour, and what is not included, as one sentence."""
    return f"{amounts(settings)}: list prices, without {settings.cost.left_out}"


def age(cost: Cost, today: datetime.date) -> str:
    """Return a warning about prices that are older than `OLD_DAYS`; empty if there are none."""
    old = {part.each.date: part.each.age_days(today) for part in cost.parts if part.most}
    oldest = max(old, key=lambda each: old[each], default="")
    if not oldest or old[oldest] <= OLD_DAYS:
        return ""
    return f"list prices of {oldest} are {old[oldest]} days old: put yours into rdma-ray:prices, or update this project"


class CostRules:
    """Part of a cloud's settings. No model, so that its fields keep their order."""

    if TYPE_CHECKING:
        target: str
        location: str
        nodes: CloudNodes
        cluster: CloudKubernetes
        budget: CloudBudget
        prices: tuple[str, ...]

        @property
        def own_cluster(self) -> bool:
            """Whether the stack makes the cluster."""

        @property
        def other_parts(self) -> Iterator[Part]:
            """The parts of this cloud besides its nodes and the cluster."""

    @property
    def region(self) -> str:
        """Region of the stack; empty if a zone's id abbreviates a region without a listed price."""
        return region_of_zone(self.target, self.location)

    @property
    def cost(self) -> Cost:
        """Cost per hour."""
        region, nodes, cluster = self.region, self.nodes, self.cluster
        own = {name: float(amount) for name, amount in pairs(self.prices) if AMOUNT.fullmatch(amount)}

        def priced(machine: str, kind: str) -> Price:
            return Price(dollars=own[machine], source=OWN) if machine in own else price_of(machine, kind, region)

        # The most expensive kind of capacity: the autoscaler decides how many machines come from which.
        kinds = [priced(nodes.machine, kind) for kind in nodes.capacities]
        each = max(kinds, key=lambda price: float("inf") if price.dollars is None else price.dollars)
        fee = price_of_item(f"{self.target} cluster", region)
        parts = (
            Part(WORKERS, nodes.min, nodes.max, each),
            Part(SYSTEM, 1, cluster.system_nodes, priced(cluster.system_machine, "on-demand")),
            *((Part("cluster fee", 1, 1, fee),) if self.own_cluster else ()),
            *self.other_parts,
        )
        return Cost(parts)

    @rule("prices", source=CONTRACT)
    def price_malformed(self) -> Findings:
        known = dict.fromkeys((*supported(self.target), self.cluster.system_machine))
        named = [name for name, _ in pairs(self.prices)]
        for name, amount in pairs(self.prices):
            if named.count(name) > 1:
                yield Finding(f"{name} has several prices.", "keep one of them")
            elif name not in CATALOG and name != self.cluster.system_machine:
                yield Finding(
                    f"{name} is not a machine of this stack.", f"write MACHINE=DOLLARS, of {', '.join(known)}"
                )
            elif not AMOUNT.fullmatch(amount):
                fix = f"write {name}=DOLLARS, such as {name}=12.50"
                yield Finding(f"{amount or 'Nothing'} is not an amount of US dollars per hour.", fix)

    @rule("budget.hourly", "nodes.max", "nodes.machine", source=CONTRACT)
    def cost_above_limit(self) -> Findings:
        limit = self.budget.hourly
        if limit is None:
            return
        cost = self.cost
        if cost.most is None:
            fix = f'add the price per hour to prices, such as ["{self.nodes.machine}=12.50"], or remove budget.hourly'
            yield Finding(f"The limit cannot be checked: {cost.unknown}.", fix)
        elif cost.most > limit:
            fix = f"lower nodes.max, or raise budget.hourly to {_whole(cost.most)}"
            yield Finding(f"The stack may cost {dollars(cost.most, at_most=cost.at_most)} an hour.", fix)


def _whole(amount: float) -> int:
    return -int(-amount // 1)


def rise(settings: CostRules, before: float) -> Problem | None:
    """Return the problem of a change that raises the cost of the worker nodes `budget.maxRise` times or more.

    `budget.hourly` accepts the new amount: it is a limit that a person has written into the stack file.

    Args:
        before: What all worker nodes of the running stack cost at most, US dollars per hour.
    """
    part, budget = settings.cost.workers, settings.budget
    if part.each.dollars is None or before <= 0 or budget.hourly is not None:
        return None
    now, most = part.most * part.each.dollars, settings.cost.most
    # The outputs are rounded to cents.
    if now < 0.999 * budget.max_rise * before:
        return None
    finding = Finding(
        f"This change raises the worker nodes from at most {dollars(before)} to at most {dollars(now)} an hour, "
        f"{now / before:.2g} times as much.",
        f"if you mean it, set budget.hourly to {_whole(now if most is None else most)}, the new maximum of the whole "
        "stack; or raise budget.maxRise",
        CONTRACT,
    )
    values = ("(not set)", f"{budget.max_rise:g}", str(settings.nodes.max), settings.nodes.machine)
    return finding.problem(("budget.hourly", "budget.maxRise", "nodes.max", "nodes.machine"), values)
