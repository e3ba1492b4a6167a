"""Screen of `rdma-ray top`: tables of the newest snapshot, kept while the cluster does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static

from infra.terminal import printable
from workloads.client.api import UnreachableError
from workloads.exits import WorkloadError
from workloads.monitor.snapshot import Snapshot
from workloads.monitor.source import SnapshotSource
from workloads.monitor.tables import LISTINGS, NODES, OF_ONE_NODE, details, totals
from workloads.monitor.widgets import Listed, Page

INTERVALS_S = (1.0, 2.0, 5.0, 10.0, 30.0)
WIDE = 150  # columns of a terminal from which all tables are visible at once
STALE_INTERVALS = 3  # without a new snapshot, then it is stale
KEYS = """\
↑ ↓  j k       row          g G        first, last row
PgUp PgDn      page         ← →  h l   sideways
Tab Shift+Tab  table        Enter      everything about a row
s S            sort by the next column; reverse the order
/              filter the table; Esc shows all rows again
p              pause: the screen keeps its snapshot
+ -            shorter, longer interval
q Ctrl+C       quit, and stop the monitor job

GPU%  mean utilization     °C  hottest GPU     W  all GPUs
tx rx line   Gbit/s: sent, received, line rate in each direction
alerts       thermal, power brake, Xid of hardware, ECC,
             NIC down, NIC errors: since the probe started
-            no such device, or no reading: Enter shows why"""


class Top(App[WorkloadError | None]):
    """The screen. It ends with an error if the source fails before its first snapshot.

    Args:
        source: Read in a separate thread, because it may wait for the network.
    """

    TITLE = "rdma-ray top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #state { height: auto; max-height: 3; padding: 0 1; }
    #totals { height: auto; padding: 0 1; }
    #state { background: $primary-darken-2; color: $text; text-style: bold; }
    #state.stale { background: $error; }
    #others { height: 1; padding: 0 1; color: $text-muted; }
    Listed { height: 1fr; width: 1fr; border-top: solid $surface-lighten-3; border-title-color: $text-muted; }
    Listed { scrollbar-size: 0 1; background: $background; }
    Listed:focus { border-top: solid $accent; border-title-color: $accent; }
    Listed > .datatable--cursor { background: $background; }
    #nodes > .datatable--cursor { background: $primary-darken-2; }
    Listed:focus > .datatable--cursor { background: $primary; }
    #nodes { height: 3fr; }
    #pending, #jobs { width: 2fr; }
    Horizontal { height: 2fr; }
    #of-node { height: 11; max-height: 50%; }
    #filter { dock: bottom; height: 3; display: none; }
    Page { align: center middle; }
    Page VerticalScroll { width: 90%; max-width: 100; height: auto; max-height: 90%; }
    Page VerticalScroll { border: round $accent; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("question_mark", "help", "help"),
        Binding("tab", "table(1)", "next table", priority=True),
        Binding("shift+tab", "table(-1)", show=False, priority=True),
        Binding("enter", "detail", "detail"),
        Binding("slash", "filter", "filter"),
        Binding("escape", "unfilter", show=False),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", show=False),
        Binding("p", "pause", "pause"),
        Binding("plus,equals_sign", "interval(-1)", "faster"),
        Binding("minus", "interval(1)", "slower"),
    ]

    def __init__(self, source: SnapshotSource, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.source, self.clock = source, clock
        self.snapshot: Snapshot | None = None
        self.problem = ""
        self.changed = clock()
        self.paused = False
        self.tables = [Listed(listing) for listing in LISTINGS]
        self.current = self.tables[0]
        # Not found by id: the timer may fire while the screen ends, after its widgets are removed.
        self.state, self.totals, self.others = (Static(id=name) for name in ("state", "totals", "others"))
        self._ended = threading.Event()

    def compose(self) -> ComposeResult:
        nodes, *others = self.tables
        of_node = [table for table in others if table.listing in OF_ONE_NODE]
        yield self.state
        yield self.totals
        yield nodes
        yield self.others
        yield Horizontal(*of_node, id="of-node")
        yield Horizontal(*(table for table in others if table not in of_node))
        yield Input(id="filter", placeholder="text that a row has in any column; Enter or Esc ends")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._arrange()
        self.tables[0].focus()
        self.set_interval(1, self._show_state)
        self._show_state()
        # A daemon: quitting waits for no answer of the network.
        threading.Thread(target=self._read, daemon=True).start()

    def on_unmount(self) -> None:
        self._ended.set()

    def on_resize(self, _: Resize) -> None:
        self._arrange()

    def _read(self) -> None:
        """Poll the source until the end."""
        while not self._ended.is_set():
            snapshot, problem = None, None
            try:
                snapshot = self.source.poll()
            except WorkloadError as error:
                problem = error
            # The screen may end at any moment.
            with suppress(RuntimeError, CancelledError):
                self.call_from_thread(self.take, snapshot, problem)
            self._ended.wait(self.source.interval_s)

    def take(self, found: Snapshot | None, problem: WorkloadError | None = None) -> None:
        """Show the answer of the source."""
        if problem is not None and self.snapshot is None and not isinstance(problem, UnreachableError):
            self.exit(problem)
            return
        self.problem = str(problem) if problem else ""
        if found is not None and (self.snapshot is None or found.time != self.snapshot.time):
            self.changed = self.clock()
            if not self.paused:
                self.snapshot = found
                self.redraw()
        self._show_state()

    def redraw(self) -> None:
        """Show the snapshot in all tables."""
        if self.snapshot is None:
            return
        self.totals.update(Text(totals(self.snapshot)))
        self.tables[0].update(NODES.rows(self.snapshot, None))
        for table in self.tables[1:]:
            if table.listing not in OF_ONE_NODE:
                table.update(table.listing.rows(self.snapshot, None))
        self._show_node()

    def _show_node(self) -> None:
        selected = self.tables[0].selected()
        if self.snapshot is None:
            return
        for table in self.tables:
            if table.listing in OF_ONE_NODE:
                table.update(table.listing.rows(self.snapshot, selected.key if selected else None))
                if selected:
                    table.border_title = f"{table.title} of {Text(selected.cells[0].text).markup}"
        self._show_others()

    def _show_others(self) -> None:
        """Show the names and sizes of all tables; the visible ones are bold."""
        names = [
            Text(f"{table.listing.name} {len(table.shown)}", "bold" if table.display else "") for table in self.tables
        ]
        self.others.update(Text("  ").join(names))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if event.data_table is self.tables[0]:
            self._show_node()

    def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        self.action_detail()

    @property
    def stale_s(self) -> float | None:
        """Seconds since the last new snapshot, if that is too long; None if it is not."""
        silent = self.clock() - self.changed
        return silent if silent > max(5, STALE_INTERVALS * self.source.interval_s) else None

    def _show_state(self) -> None:
        found, parts = self.snapshot, []
        if found is None:
            parts = ["starting the monitor on the cluster …"]
        else:
            parts = [found.cluster, f"Ray {found.ray}", time.strftime("%H:%M:%S", time.localtime(found.time))]
            parts.append(f"every {self.source.interval_s:g} s")
            parts += ["PAUSED"] if self.paused else []
            if (stale := self.stale_s) is not None:
                parts.append(f"NO NEWS for {stale:.0f} s")
            parts += found.notes
        if self.problem:
            parts.append(printable(self.problem.splitlines()[0]))
        self.state.update(Text(" · ".join(parts)))
        self.state.set_class(bool(self.problem) or self.stale_s is not None, "stale")

    def _arrange(self) -> None:
        """Show all tables on a wide terminal, otherwise the nodes and one more."""
        wide = self.size.width >= WIDE
        second = self.current if self.current is not self.tables[0] else self.tables[3]
        if wide != self.tables[0].wide or not self.tables[0].columns:
            for table in self.tables:
                table.set_columns(wide)
            self.redraw()
        for table in self.tables[1:]:
            table.display = wide or table is second
        for row in self.query(Horizontal):
            row.display = any(table.display for table in row.children)
        self.others.display = not wide
        self._show_others()

    def action_table(self, step: int) -> None:
        """Focus the next table."""
        if len(self.screen_stack) > 1:
            return
        at = (self.tables.index(self.current) + step) % len(self.tables)
        self.current = self.tables[at]
        self._arrange()
        self.current.focus()

    def on_descendant_focus(self) -> None:
        if isinstance(self.focused, Listed):
            self.current = self.focused

    def action_detail(self) -> None:
        """Show everything about the selected row."""
        if row := self.current.selected():
            self.push_screen(Page(row.cells[0].text, "\n".join(details(row.item))))

    def action_help(self) -> None:
        self.push_screen(Page("keys", KEYS))

    def action_filter(self) -> None:
        """Open the input of the filter."""
        entry = self.query_one("#filter", Input)
        entry.display = True
        entry.value = self.current.text_filter
        entry.focus()

    def action_unfilter(self) -> None:
        """Close the input, and show all rows again."""
        self.query_one("#filter", Input).value = ""
        self.on_input_changed(None)
        self.on_input_submitted()

    def on_input_changed(self, _: Input.Changed | None) -> None:
        self.current.text_filter = self.query_one("#filter", Input).value
        self.redraw()

    def on_input_submitted(self) -> None:
        self.query_one("#filter", Input).display = False
        self.current.focus()

    def action_sort(self) -> None:
        self.current.next_order()
        self.redraw()

    def action_reverse(self) -> None:
        self.current.backwards = not self.current.backwards
        self.redraw()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self._show_state()

    def action_interval(self, step: int) -> None:
        """Choose the next interval; the monitor job learns of it with its lease."""
        at = INTERVALS_S.index(self.source.interval_s) if self.source.interval_s in INTERVALS_S else 1
        self.source.interval_s = INTERVALS_S[min(len(INTERVALS_S) - 1, max(0, at + step))]
        self._show_state()
