"""What the links can carry at most, and what a point-to-point result must not show. Pure: neither torch nor infra.

Bandwidths in GB/s (decimal). A result above its limit is no record: the data took another way than the one that was to
be measured (most often NVLink or shared memory between two ranks of one machine), so that it says nothing of the NICs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.exits import Exit
from workloads.nccl.point_patterns import Flow, Variant, flows, goes_up
from workloads.nccl.result import Finding, Member, Pair, Result, Row
from workloads.nccl.sizes import format_size

TOLERANCE = 1.02
"""How far a measured bandwidth may be above its limit: the room for clocks, not for another way."""
OP = "p2p"


@dataclass(frozen=True)
class Limits:
    """The links of one machine type. `gbps_per_nic` in Gbit/s, each way; `nvlink` in GB/s, one GPU, each way."""

    machine: str
    gpus: int
    nics: int
    gbps_per_nic: float
    nvlink: float | None = None

    @property
    def nic(self) -> float:
        """One NIC, each way, GB/s."""
        return self.gbps_per_nic / 8

    def of_gpus(self, gpus: int) -> float:
        """The most that so many GPUs of one node can send, or receive, through the NICs next to them.

        Where GPUs share a NIC (p4d) the NICs are counted as if no two of these GPUs did: a limit may be too high, but
        never below what is possible.
        """
        return min(self.nics, gpus * max(1, self.nics // self.gpus)) * self.nic

    def of(self, found: Sequence[Flow], per_node: int) -> float | None:
        """The most that these flows of one direction can carry together; None where no figure is known.

        Across nodes the narrower side of each pair of nodes counts, as in an incast the one receiver's. Within a node
        it is NVLink: each GPU in `found` has one partner.
        """
        if any(flow.sender // per_node == flow.receiver // per_node for flow in found):
            return None if self.nvlink is None else self.nvlink * len(found)
        sides: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
        for flow in found:
            senders, receivers = sides.setdefault((flow.sender // per_node, flow.receiver // per_node), (set(), set()))
            senders.add(flow.sender)
            receivers.add(flow.receiver)
        return sum(min(self.of_gpus(len(a)), self.of_gpus(len(b))) for a, b in sides.values())


def limit_of(found: Sequence[Flow], limits: Limits | None, per_node: int) -> float | None:
    """The limit of a row: that of each direction in it, added up."""
    if limits is None:
        return None
    directions = [[flow for flow in found if goes_up(flow) is up] for up in (True, False)]
    parts = [limits.of(one_way, per_node) for one_way in directions if one_way]
    known = [part for part in parts if part is not None]
    return round(sum(known), 3) if len(known) == len(parts) else None


@dataclass(frozen=True)
class Setting:
    """What a row's figures are held against: the links, and who ran where.

    `by_design` is whether pairs that share a machine are expected: a run over gloo that claims to prove functions only.
    One that has NCCL below it, or claims a fabric, was to measure the NICs.
    """

    nodes: int
    per_node: int
    members: Mapping[int, Member]
    by_design: bool
    limits: Limits | None


def violations(result: Result, limits: Limits | None = None) -> list[Finding]:
    """What the point-to-point rows of a result show that cannot be, or cannot be known. Code 5 fails, 0 is a remark.

    `limits` are those of the machine that was paid for; without them those that the run was given count.
    """
    rows = [row for row in result.rows if row.op == OP]
    if not rows:
        return []
    setting = setting_of(result, limits)
    if setting is None:
        return [Finding(code=Exit.NOT_AS_ASKED, kind="no-pairs", text="p2p: the result does not say on how many nodes")]
    found = [finding for row in rows for finding in of_row(row, setting)]
    if setting.limits is None and not setting.by_design:
        found.append(
            Finding(code=0, kind="no-limit", text="p2p: no line rate is known for this machine: no limit was checked")
        )
    # A pair on one host shows in every row that it took part in: said once.
    return list(dict.fromkeys(found))


def guarded(result: Result) -> Result:
    """The same result, which says 5 where its point-to-point rows are not what was asked for.

    The rows get the findings as warnings. An error and wrong data stay what they are: they weigh more.
    """
    failures = [finding for finding in violations(result) if finding.code]
    if not failures:
        return result
    others = f" ({len(failures) - 1} more findings)" if failures[1:] else ""
    changes: dict[str, Any] = {"rows": [_warned(row, result) for row in result.rows]}
    if result.exit_code not in (Exit.ERROR, Exit.WRONG_DATA):
        changes |= {"exit_code": int(Exit.NOT_AS_ASKED), "reason": f"{failures[0].text}{others}"}
    return result.model_copy(update=changes)


def of_row(row: Row, setting: Setting) -> list[Finding]:
    """The findings of one point-to-point row. Those with code 5 belong into the row's own warnings."""
    name = f"{row.op} {row.variant} {format_size(row.size)}"
    if reason := _incomplete(row, setting):
        return [Finding(code=Exit.NOT_AS_ASKED, kind="no-pairs", text=f"{name}: {reason}")]
    assert row.pairs is not None
    across = Variant.parse(str(row.variant)).across
    shared = _on_one_host(row.pairs, setting) if across else []
    return [*shared, *_over_limit(row, name, across, setting)]


def _incomplete(row: Row, setting: Setting) -> str | None:
    """Why a row cannot be checked: a measurement that is missing is never a pass."""
    if not row.pairs or row.total is None or row.variant is None:
        return "the result does not say who sent to whom"
    try:
        expected = flows(Variant.parse(row.variant), setting.nodes, setting.per_node)
    except ValueError as error:
        return str(error)
    if {(flow.sender, flow.receiver) for flow in expected} != {(pair.sender, pair.receiver) for pair in row.pairs}:
        return "its pairs are not those of the pattern"
    if not all(0 < value < math.inf for value in (row.total, *(pair.bandwidth for pair in row.pairs))):
        return "a bandwidth is not a number above zero"
    return None


def setting_of(result: Result, limits: Limits | None = None) -> Setting | None:
    """What this result's rows are held against; None where it does not say on how many nodes it ran."""
    if result.world is None:
        return None
    return Setting(
        nodes=result.world.nodes,
        per_node=result.world.per_node,
        members={member.rank: member for member in result.ranks or []},
        by_design=result.proves == "function" and result.backend == "gloo",
        limits=limits or from_spec(result.spec),
    )


def from_spec(spec: Mapping[str, Any]) -> Limits | None:
    """The limits that a run was given by whoever knew the machine; None for none, and for what are no limits."""
    given = spec.get("limits")
    if not isinstance(given, Mapping) or set(given) != {field.name for field in dataclasses.fields(Limits)}:
        return None
    return Limits(**given)


def _warned(row: Row, result: Result) -> Row:
    setting = setting_of(result)
    if row.op != OP or setting is None:
        return row
    said = [finding.text for finding in of_row(row, setting) if finding.code]
    return row.model_copy(update={"warnings": [*row.warnings, *said]})


def _over_limit(row: Row, name: str, across: bool, setting: Setting) -> Iterator[Finding]:
    assert row.pairs is not None
    assert row.total is not None
    way = "this did not go through the NIC" if across else "NVLink is not that fast, so that the time is not right"
    found = [Flow(pair.sender, pair.receiver) for pair in row.pairs]
    known = [limit for limit in (limit_of(found, setting.limits, setting.per_node), row.limit) if limit is not None]
    if known and row.total > TOLERANCE * min(known):
        text = f"{name}: {both_units(row.total)} is over the limit of {both_units(min(known))}: {way}"
        yield Finding(code=Exit.NOT_AS_ASKED, kind="over-limit", text=text)
        return
    # One pair that went another way can hide in the sum of many that were slow.
    for pair in row.pairs:
        limit = limit_of([Flow(pair.sender, pair.receiver)], setting.limits, setting.per_node)
        if limit is not None and pair.bandwidth > TOLERANCE * limit:
            text = (
                f"{name}: rank {pair.sender} to rank {pair.receiver}, {both_units(pair.bandwidth)}, is over the limit"
                f" of {both_units(limit)} for one pair: {way}"
            )
            yield Finding(code=Exit.NOT_AS_ASKED, kind="over-limit", text=text)


def _on_one_host(pairs: Sequence[Pair], setting: Setting) -> Iterator[Finding]:
    """Pairs across nodes whose ranks share a node, a kernel or a host name."""
    for one, other in sorted({(min(p.sender, p.receiver), max(p.sender, p.receiver)) for p in pairs}):
        shared = _shared(setting.members.get(one), setting.members.get(other))
        if shared is None:
            continue
        if setting.by_design:
            text = "p2p: pairs share a machine, so that no figure here is a NIC's"
            yield Finding(code=0, kind="same-host", text=text)
            return
        text = f"p2p: ranks {one} and {other}, a pair across nodes, {shared}"
        yield Finding(code=Exit.NOT_AS_ASKED, kind="same-host", text=text)


def _shared(a: Member | None, b: Member | None) -> str | None:
    """What two ranks have in common that two nodes must not, or None."""
    if a is None or b is None:
        return "are not both in the result's list of ranks: that they ran on two hosts cannot be shown"
    if a.node_id == b.node_id:
        return f"ran on one node, {a.host}"
    if a.machine == b.machine:
        return f"ran on one machine: {a.host} and {b.host} share a kernel"
    return f"ran on one host, {a.host}" if a.host == b.host else None


def both_units(bandwidth: float) -> str:
    """`46.5 GB/s (372 Gbit/s)`: what is measured, and what NICs are sold by."""
    return f"{bandwidth:.4g} GB/s ({bandwidth * 8:.4g} Gbit/s)"
