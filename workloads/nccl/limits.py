"""Point-to-point rows: bandwidth of each pair, and checks against the limits of the links.

Imports neither torch nor infra. Bandwidths in GB/s (decimal). A result above its limit took another path, most often
NVLink or shared memory between two ranks of one machine, and shows nothing about the NICs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from workloads.exits import Exit
from workloads.nccl.point_patterns import Flow, Limits, Variant, fan_in, flows, limit_of
from workloads.nccl.problems import failure, remark
from workloads.nccl.result import BenchResult, EvidenceFinding, Member, Pair, Row, World, micro
from workloads.nccl.units import format_size

TOLERANCE = 1.02
"""Ratio of measured bandwidth to limit that clock inaccuracy explains."""
OP = "p2p"


def pair_figures(
    variant: Variant, size: int, times: Sequence[float], nodes: int, per_node: int, limits: Limits | None
) -> tuple[list[Pair], float, float | None]:
    """Return the `pairs`, `total` and `limit` of a row from its size and each rank's mean seconds per run.

    A pair ends when both of its ranks do: a sender may return while its data is in flight. The total is, per
    direction, the sum of all bytes over the slowest pair's time, B(A→B) = Σ bytes / max t; duplex adds both directions.
    """
    share = size / fan_in(variant, per_node)
    listed = flows(variant, nodes, per_node)
    seconds = {flow: max(times[flow.sender], times[flow.receiver]) for flow in listed}
    directions = [[seconds[flow] for flow in listed if flow.up is up] for up in (True, False)]
    pairs = [
        Pair(
            sender=flow.sender,
            receiver=flow.receiver,
            time_us=micro(time),
            bandwidth=round(share / time / 1e9, 6),
        )
        for flow, time in seconds.items()
    ]
    total = round(sum(round(share * len(way) / max(way) / 1e9, 6) for way in directions if way), 6)
    return pairs, total, limit_of(listed, limits, per_node)


def violations(result: BenchResult, limits: Limits | None = None) -> list[EvidenceFinding]:
    """Return findings about impossible or unverifiable point-to-point rows. Code 5 is a failure, 0 a remark.

    `limits` are those of the requested machine type, by default those in the run's options.
    """
    rows = [row for row in result.rows if row.op == OP]
    if not rows:
        return []
    if result.world is None:
        return [failure("no-pairs", "p2p: the result has no number of nodes")]
    findings = [finding for row in rows for finding in of_row(row, result, limits)]
    if limits is None and result.spec.limits is None and not _shared_by_design(result):
        findings.append(remark("no-limit", "p2p: the line rate of this machine is unknown: no limit was checked"))
    # A pair on one host appears in every row; report it once.
    return list(dict.fromkeys(findings))


def guarded(result: BenchResult) -> BenchResult:
    """Return the result with exit code 5 and warnings in its rows if the point-to-point rows have violations.

    An error and wrong data keep their exit code: they are more severe.
    """
    failures = [finding for finding in violations(result) if finding.code]
    if not failures:
        return result
    changes: dict[str, Any] = {"rows": [_warned(row, result) for row in result.rows]}
    if result.exit_code not in (Exit.ERROR, Exit.WRONG_DATA):
        others = f" ({len(failures) - 1} more findings)" if failures[1:] else ""
        changes |= {"exit_code": int(Exit.NOT_AS_ASKED), "reason": f"{failures[0].text}{others}"}
    return result.model_copy(update=changes)


def of_row(row: Row, result: BenchResult, limits: Limits | None = None) -> list[EvidenceFinding]:
    """Return the findings of one point-to-point row."""
    name = f"{row.op} {row.variant} {format_size(row.size)}"
    if reason := _incomplete(row, result.world):
        return [failure("no-pairs", f"{name}: {reason}")]
    across = Variant.parse(str(row.variant)).across
    shared = _on_one_host(row.pairs or [], result) if across else []
    return [*shared, *_over_limit(row, name, across, result, limits or result.spec.limits)]


def both_units(bandwidth: float) -> str:
    """Format GB/s with Gbit/s, the unit of NICs: `46.5 GB/s (372 Gbit/s)`."""
    return f"{bandwidth:.4g} GB/s ({bandwidth * 8:.4g} Gbit/s)"


def _shared_by_design(result: BenchResult) -> bool:
    """Return whether pairs on one machine are expected: a functional run over gloo. Any other run measures NICs."""
    return result.proves == "function" and result.backend == "gloo"


def _warned(row: Row, result: BenchResult) -> Row:
    if row.op != OP or result.world is None:
        return row
    texts = [finding.text for finding in of_row(row, result) if finding.code]
    return row.model_copy(update={"warnings": [*row.warnings, *texts]})


def _incomplete(row: Row, world: World | None) -> str | None:
    """Return why a row cannot be checked: a missing measurement is never a pass."""
    if not row.pairs or row.total is None or row.variant is None or world is None:
        return "the result has no senders and receivers"
    try:
        expected = flows(Variant.parse(row.variant), world.nodes, world.per_node)
    except ValueError as error:
        return str(error)
    if {(flow.sender, flow.receiver) for flow in expected} != {(pair.sender, pair.receiver) for pair in row.pairs}:
        return "its pairs are not those of the pattern"
    if not all(0 < value < math.inf for value in (row.total, *(pair.bandwidth for pair in row.pairs))):
        return "a bandwidth is not a number above zero"
    return None


def _over_limit(
    row: Row, name: str, across: bool, result: BenchResult, limits: Limits | None
) -> Iterator[EvidenceFinding]:
    assert row.pairs is not None
    assert row.total is not None
    assert result.world is not None
    path = "this did not go through the NIC" if across else "NVLink is slower than that, so the time is wrong"
    per_node = result.world.per_node
    found = [Flow(pair.sender, pair.receiver) for pair in row.pairs]
    known = [limit for limit in (limit_of(found, limits, per_node), row.limit) if limit is not None]
    if known and row.total > TOLERANCE * min(known):
        text = f"{name}: {both_units(row.total)} is over the limit of {both_units(min(known))}: {path}"
        yield failure("over-limit", text)
        return
    # The sum of many slow pairs can hide one pair on another path.
    for pair, flow in zip(row.pairs, found, strict=True):
        limit = limit_of([flow], limits, per_node)
        if limit is not None and pair.bandwidth > TOLERANCE * limit:
            yield failure(
                "over-limit",
                f"{name}: rank {pair.sender} to rank {pair.receiver}, {both_units(pair.bandwidth)}, is over the limit"
                f" of {both_units(limit)} for one pair: {path}",
            )


def _on_one_host(pairs: Sequence[Pair], result: BenchResult) -> Iterator[EvidenceFinding]:
    """Find pairs across nodes whose ranks share a node, a kernel or a host name."""
    members = {member.rank: member for member in result.ranks or []}
    for one, other in sorted({(min(p.sender, p.receiver), max(p.sender, p.receiver)) for p in pairs}):
        shared = _shared(members.get(one), members.get(other))
        if shared is None:
            continue
        if _shared_by_design(result):
            yield remark("same-host", "p2p: pairs share a machine, so no figure here measures a NIC")
            return
        yield failure("same-host", f"p2p: ranks {one} and {other}, a pair across nodes, {shared}")


def _shared(a: Member | None, b: Member | None) -> str | None:
    """Return what shows that two ranks share a host, or that their hosts are unknown; otherwise None."""
    if a is None or b is None:
        return "are not both in the result's list of ranks, so they are not known to be on two hosts"
    if a.node_id == b.node_id:
        return f"ran on one node, {a.host}"
    if a.machine == b.machine:
        return f"ran on one machine: {a.host} and {b.host} share a kernel"
    return f"ran on one host, {a.host}" if a.host == b.host else None
