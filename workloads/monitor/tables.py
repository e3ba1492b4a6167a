"""Tables of a snapshot, one definition for the screen and for plain text: columns, cells, and totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel

from infra.terminal import printable
from workloads.hardware.nic import natural
from workloads.monitor.snapshot import DEAD, DRAINING, IDLE, Demand, GpuState, NicState, NodeState, Snapshot

NOTHING = "-"
_BLOCKS = " ▏▎▍▌▋▊▉█"
_STATE_STYLES = {
    DEAD: "red",
    DRAINING: "yellow",
    IDLE: "dim",
    "FAILED": "red",
    "STOPPED": "yellow",
    "PENDING": "yellow",
}


class TableCell(NamedTuple):
    """Text of a cell, its sort key (None: last), and its style."""

    text: str
    order: Any = None
    style: str = ""

    @property
    def shown(self) -> tuple[str, str]:
        return self.text, self.style


class TableRow(NamedTuple):
    """Row of a table; `item` is the part of the snapshot that it shows."""

    key: str
    cells: tuple[TableCell, ...]
    item: BaseModel


class Column(NamedTuple):
    """Column of a table; `wide` ones need a wide terminal."""

    title: str
    left: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Listing:
    """Table of a snapshot.

    Args:
        rows: Returns the rows; those of the GPUs and NICs are of the node with this ID.
        unit: Unit of columns whose titles name none.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Snapshot, str | None], Iterable[TableRow]]
    unit: str = ""


def _text(value: str | None, style: str = "") -> TableCell:
    text = printable(value or "").replace("\n", " ")
    return TableCell(text or NOTHING, natural(text) if text else None, style)


def _number(value: float | None, form: str = "{:.0f}", style: str = "") -> TableCell:
    return TableCell(NOTHING) if value is None else TableCell(form.format(value), value, style)


def bar(value: float | None, total: float | None, width: int = 8) -> str:
    """Return a bar of `width` characters, filled in eighths; empty without a value."""
    if value is None or not total:
        return ""
    eighths = round(min(1, max(0, value / total)) * width * 8)
    full, rest = divmod(eighths, 8)
    return (_BLOCKS[8] * full + (_BLOCKS[rest] if rest else "")).ljust(width)


def _barred(value: float | None, total: float | None, form: str, style: str) -> TableCell:
    if value is None:
        return TableCell(NOTHING)
    text = form.format(value)
    return TableCell(f"{bar(value, total)} {text}" if total else text, value, style)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def gpus_of(node: NodeState) -> list[GpuState]:
    return node.reading.gpus if node.reading else []


def nics_of(node: NodeState) -> list[NicState]:
    return node.reading.nics if node.reading else []


def _nodes(snapshot: Snapshot, _: str | None) -> Iterable[TableRow]:
    for node in snapshot.nodes:
        reading, gpus, nics = node.reading, gpus_of(node), nics_of(node)
        memory = (
            100 * reading.memory_used / reading.memory_total
            if reading is not None and reading.memory_used is not None and reading.memory_total
            else None
        )
        alerts = ", ".join(node.alerts)
        idle = f"idle {duration(node.idle_s)}" if node.state == IDLE and node.idle_s is not None else node.state
        cells = (
            _text(f"{node.address}{' head' if node.role == 'head' else ''}", "bold" if node.role == "head" else ""),
            TableCell(idle, node.state, _STATE_STYLES.get(node.state, "")),
            _number(reading.cpu_percent if reading else None),
            TableCell(f"{node.gpus.used:g}/{node.gpus.total:g}", node.gpus.used)
            if node.gpus.total
            else TableCell(NOTHING),
            _number(_mean(gpu.utilization for gpu in gpus), style="green"),
            _number(max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None)),
            _number(_sum(gpu.power_w for gpu in gpus)),
            _number(_sum(nic.sent_gbps for nic in nics), style="cyan"),
            _number(_sum(nic.received_gbps for nic in nics), style="cyan"),
            _number(_sum(nic.gbps for nic in nics), style="dim"),
            _text(alerts, "bold red") if alerts else TableCell(""),
            _number(memory),
            TableCell(f"{node.cpus.used:g}/{node.cpus.total:g}", node.cpus.used),
            _text(node.group),
            _text(node.note, "dim") if node.note else TableCell(""),
        )
        yield TableRow(node.id, cells, node)


def _gpus(snapshot: Snapshot, node_id: str | None) -> Iterable[TableRow]:
    for gpu in (gpu for node in snapshot.nodes if node.id == node_id for gpu in gpus_of(node)):
        limits = ", ".join(gpu.limited_by or ())
        alerts = ", ".join(gpu.alerts)
        used, total = gpu.memory_used, gpu.memory_total
        memory = (
            TableCell(NOTHING) if used is None or not total else TableCell(f"{used / 1e9:.0f}/{total / 1e9:.0f}", used)
        )
        watts = _number(gpu.power_w)
        if gpu.power_w is not None and gpu.power_limit_w:
            watts = TableCell(f"{gpu.power_w:.0f}/{gpu.power_limit_w:.0f}", gpu.power_w)
        cells = (
            TableCell(str(gpu.index), gpu.index),
            _barred(gpu.utilization, 100, "{:3.0f}", "green"),
            memory,
            _number(gpu.temperature_c, style="red" if "thermal" in gpu.alerts else ""),
            watts,
            _number(gpu.sm_mhz),
            _text(alerts, "bold red") if alerts else TableCell(limits, limits, "dim"),
            _text(gpu.name),
        )
        yield TableRow(str(gpu.index), cells, gpu)


def _nics(snapshot: Snapshot, node_id: str | None) -> Iterable[TableRow]:
    for nic in (nic for node in snapshot.nodes if node.id == node_id for nic in nics_of(node)):
        errors = ", ".join(f"{name} {count}" for name, count in nic.errors.items())
        cells = (
            _text(nic.name),
            _barred(nic.sent_gbps, nic.gbps, "{:5.1f}", "cyan"),
            _barred(nic.received_gbps, nic.gbps, "{:5.1f}", "cyan"),
            _number(nic.gbps, "{:g}"),
            _text(nic.state, "bold red" if nic.down else ""),
            _text(errors, "red") if errors else TableCell(""),
        )
        yield TableRow(nic.name, cells, nic)


def _jobs(snapshot: Snapshot, _: str | None) -> Iterable[TableRow]:
    for job in snapshot.jobs:
        ran = None if job.started is None else max(0, (job.ended or snapshot.time) - job.started)
        cells = (
            _text(job.id),
            _text(job.status, _STATE_STYLES.get(job.status, "")),
            TableCell(duration(ran) if ran is not None else NOTHING, ran),
            _text(job.workload),
            _text(job.message, "dim") if job.message and job.status != "SUCCEEDED" else TableCell(""),
        )
        yield TableRow(job.id, cells, job)


def _actors(snapshot: Snapshot, _: str | None) -> Iterable[TableRow]:
    for actors in snapshot.actors:
        states = ", ".join(f"{count} {state}" for state, count in actors.states.items())
        yield TableRow(actors.name, (_text(actors.name), _text(states)), actors)


def _groups(snapshot: Snapshot, _: str | None) -> Iterable[TableRow]:
    for group in snapshot.groups:
        style = "" if group.state == "CREATED" else "yellow"
        cells = (
            _text(group.name or group.id[:8]),
            _text(group.state, style),
            _text(group.why, style) if group.why else TableCell(""),
            _text(group.bundles),
            _text(group.strategy),
        )
        yield TableRow(group.id, cells, group)


def _demands(snapshot: Snapshot, _: str | None) -> Iterable[TableRow]:
    found = [*snapshot.demands]
    found += [Demand(what=name, count=1, why="node is starting") for name in snapshot.starting]
    found += [Demand(what=reason, count=1, why="node did not start") for reason in snapshot.failed]
    for demand in found:
        style = "red" if demand.why.startswith("infeasible") else "yellow"
        cells = (TableCell(str(demand.count), demand.count), _text(demand.why, style), _text(demand.what))
        yield TableRow(f"{demand.what} {demand.why}", cells, demand)


def _columns(titles: str, left: str = "", wide: str = "") -> tuple[Column, ...]:
    return tuple(Column(title, title in left.split(), title in wide.split()) for title in titles.split())


NODES = Listing(
    "nodes",
    _columns(
        "node state CPU% GPUs GPU% °C W tx rx line alerts mem% CPUs group note",
        left="node state alerts group note",
        wide="mem% CPUs group note",
    ),
    _nodes,
    "tx, rx, line in Gbit/s",
)
GPUS = Listing("GPUs", _columns("GPU GPU% GB °C W MHz limits model", left="GPU% limits model"), _gpus)
NICS = Listing("NICs", _columns("NIC tx rx line link errors", left="NIC tx rx link errors"), _nics, "Gbit/s")
JOBS = Listing("jobs", _columns("job status ran kind message", left="job status kind message"), _jobs)
ACTORS = Listing("actors", _columns("class states", left="class states"), _actors)
GROUPS = Listing(
    "placement groups",
    _columns("group state why bundles strategy", left="group state why bundles strategy"),
    _groups,
)
DEMANDS = Listing("pending", _columns("count why demand", left="why demand"), _demands)
LISTINGS = (NODES, GPUS, NICS, JOBS, ACTORS, GROUPS, DEMANDS)
OF_ONE_NODE = (GPUS, NICS)


def totals(snapshot: Snapshot) -> str:
    """Return the cluster in one line: nodes, GPUs, power, RDMA against line rate, jobs, pending demands, alerts."""
    alive = [node for node in snapshot.nodes if node.alive]
    gpus = [gpu for node in alive for gpu in gpus_of(node)]
    nics = [nic for node in alive for nic in nics_of(node)]
    parts = [f"{len(alive)} nodes"]
    if dead := len(snapshot.nodes) - len(alive):
        parts.append(f"{dead} dead")
    if total := sum(node.gpus.total for node in alive):
        busy = _mean(gpu.utilization for gpu in gpus)
        parts.append(
            f"GPUs {sum(node.gpus.used for node in alive):g}/{total:g}{'' if busy is None else f' at {busy:.0f} %'}"
        )
    if (watts := _sum(gpu.power_w for gpu in gpus)) is not None:
        parts.append(f"{watts / 1e3:.1f} kW")
    if line := _sum(nic.gbps for nic in nics):
        sent, received = _sum(nic.sent_gbps for nic in nics) or 0, _sum(nic.received_gbps for nic in nics) or 0
        parts.append(f"RDMA tx {sent / 1e3:.1f} rx {received / 1e3:.1f} of {line / 1e3:.1f} Tbit/s")
    active = sum(job.status in ("RUNNING", "PENDING") for job in snapshot.jobs)
    parts.append(f"jobs {active}")
    if snapshot.demands:
        parts.append(f"pending {sum(demand.count for demand in snapshot.demands)}")
    if alerts := sum(bool(node.alerts) for node in alive):
        parts.append(f"ALERTS on {alerts}")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Return `42s`, `7m`, `3h`, `2d`: the largest whole unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.0f}s"


def details(item: BaseModel) -> list[str]:
    """Return every field of an item in lines, nested ones indented."""
    return list(_lines(item.model_dump(), ""))


def _lines(value: Any, indent: str) -> Iterable[str]:
    for name, field in value.items():
        if isinstance(field, list) and field and isinstance(field[0], dict):
            yield f"{indent}{name}:"
            for entry in field:
                known = (f"{key} {_plain(key, one)}" for key, one in entry.items() if one not in (None, [], {}))
                yield f"{indent}  {', '.join(known)}"
        elif isinstance(field, dict):
            yield f"{indent}{name}:{'' if field else ' ' + NOTHING}"
            yield from _lines(field, indent + "  ")
        else:
            yield f"{indent}{name}: {_plain(name, field)}"


def _plain(name: str, value: Any) -> str:
    if value is None or value in ("", []):
        return NOTHING
    if name in ("started", "ended"):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if name.startswith("memory_"):
        return f"{value / 1e9:.1f} GB"
    if isinstance(value, float):
        return f"{round(value, 1):g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return printable(str(value))
