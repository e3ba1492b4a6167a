"""`rdma-ray top`: the screen, or one snapshot as a table or as JSON."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from rich.console import Console

from workloads.client.api import UnreachableError
from workloads.client.connection import Connection
from workloads.exits import Exit, WorkloadError
from workloads.monitor.snapshot import PROBE_STARTS, Snapshot
from workloads.monitor.source import START_S, MonitorJob, SnapshotSource
from workloads.monitor.tables import LISTINGS, OF_ONE_NODE, totals
from workloads.options import Flat, ResultOptions, option
from workloads.terminal.console import present, say, table_of

LONGEST_CELL = 60  # characters
PIPE_WIDTH = 160  # columns of a table that goes to a file or a pipe
LEAST_S, MOST_S = 1, 60
Once = Annotated[bool, option(help="Print one snapshot, and exit.")]
Interval = Annotated[float, option("-i", help=f"Seconds between snapshots, {LEAST_S} to {MOST_S}; + and - change it.")]


def top(*, once: Once = False, interval: Interval = 2, options: Flat[ResultOptions] = ResultOptions()) -> int:
    """Watch nodes, GPUs, RDMA NICs, jobs and pending demands.

    Press ? for the keys.

    Example: rdma-ray top --once --json
    Exit codes: 0 ended with q, or one snapshot printed; 1 error.
    """
    if not LEAST_S <= interval <= MOST_S:
        raise WorkloadError(f"--interval {interval:g}: should be {LEAST_S} to {MOST_S} seconds")
    if options.json_file and not once:
        raise WorkloadError("--json writes one snapshot: add --once")
    # Textual draws on stderr.
    if not once and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise WorkloadError("`rdma-ray top` needs a terminal; --once prints one snapshot, --once --json as JSON")
    with Connection(options) as connection:
        outputs = connection.outputs
        print(f"starting the monitor on {outputs.ray.cluster}", file=sys.stderr)
        with MonitorJob(connection.api, outputs, interval) as job:
            if once:
                snapshot = one(job)
                present(snapshot, show, snapshot.document(), options.json_file)
                return Exit.OK
            from workloads.monitor.app import Top

            if error := Top(job).run():
                raise error
    return Exit.OK


def one(source: SnapshotSource, timeout_s: float = START_S, pause_s: float = 0.5) -> Snapshot:
    """Return a complete snapshot, or at the timeout the newest one.

    WorkloadError if there is none.
    """
    deadline, snapshot, problem = time.monotonic() + timeout_s, None, None
    while time.monotonic() < deadline:
        try:
            snapshot = source.poll() or snapshot
        except UnreachableError as error:
            problem = error
        if snapshot is not None and complete(snapshot):
            return snapshot
        time.sleep(pause_s)
    if snapshot is None:
        raise problem or WorkloadError(f"the monitor wrote no snapshot within {timeout_s:.0f} s")
    return snapshot


def shorten(text: str) -> str:
    """Cut a cell that would leave no room for the others."""
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


def complete(snapshot: Snapshot) -> bool:
    """Return whether every probe has answered twice, as rates need."""
    return all(
        node.note != PROBE_STARTS and (node.reading is None or node.reading.seconds is not None)
        for node in snapshot.nodes
    )


def show(snapshot: Snapshot, console: Console) -> None:
    """Print a snapshot's tables, each if it has rows."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.time))
    say(console, f"{snapshot.cluster} · Ray {snapshot.ray} · {moment}")
    say(console, totals(snapshot))
    if not console.is_terminal:
        console.width = max(console.width, PIPE_WIDTH)
    for listing in LISTINGS:
        kept = [index for index, column in enumerate(listing.columns) if not column.wide]
        columns = [listing.columns[index] for index in kept]
        for node in snapshot.nodes if listing in OF_ONE_NODE else [None]:
            if rows := list(listing.rows(snapshot, node.id if node else None)):
                title = f"{listing.name}{f' of {node.address}' if node else ''}"
                table = table_of(
                    [column.title for column in columns],
                    [column.title for column in columns if column.left],
                    title=f"{title} ({listing.unit})" if listing.unit else title,
                )
                for row in rows:
                    table.add_row(*(shorten(row.cells[index].text) for index in kept))
                console.print(table)
    for note in snapshot.notes:
        say(console, f"not read: {note}")
