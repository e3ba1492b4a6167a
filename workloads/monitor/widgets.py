"""Widgets of the screen: a table that writes only changed cells, and a page of text over the screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from workloads.monitor.tables import Listing, TableRow


class Listed(DataTable[Text]):
    """A listing of the snapshot. It writes only cells that changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("g", "scroll_top", show=False),
        Binding("G", "scroll_bottom", show=False),
        Binding("h", "scroll_left", show=False),
        Binding("l", "scroll_right", show=False),
    ]

    def __init__(self, listing: Listing) -> None:
        super().__init__(
            cursor_type="row",
            cursor_foreground_priority="renderable",
            cell_padding=0,
            id=listing.name.replace(" ", "-"),
        )
        self.listing, self.wide = listing, False
        self.kept: list[int] = []
        """Columns on this terminal."""
        self.shown: list[TableRow] = []
        self.text_filter = ""
        self.sort_by: int | None = None
        self.backwards = False
        self.written = 0
        """Cells written since the start."""

    def set_columns(self, wide: bool) -> None:
        """Make the columns for a wide or a narrow terminal."""
        self.wide, self.shown = wide, []
        self.clear(columns=True)
        self.kept = [index for index, column in enumerate(self.listing.columns) if wide or not column.wide]
        for index in self.kept:
            column = self.listing.columns[index]
            self.add_column(Text(f" {column.title}", justify="left" if column.left else "right"), key=str(index))

    def update(self, rows: Iterable[TableRow]) -> None:
        """Show these rows, filtered and sorted. The cursor stays on its row."""
        before, selected = self.shown, self.selected()
        self.shown = self._sorted([row for row in rows if self._matches(row)])
        for at, row in enumerate(self.shown):
            if at >= len(before):
                self.add_row(*(self._drawn(row, index) for index in self.kept), key=str(at))
                self.written += len(self.kept)
                continue
            for index, column in zip(self.kept, self.ordered_columns, strict=True):
                if row.cells[index].shown != before[at].cells[index].shown:
                    text = self._drawn(row, index)
                    self.update_cell(str(at), str(index), text, update_width=text.cell_len > column.content_width)
                    self.written += 1
        for at in range(len(self.shown), len(before)):
            self.remove_row(str(at))
        keys = [row.key for row in self.shown]
        if selected is not None and selected.key in keys and keys[self.cursor_row] != selected.key:
            self.move_cursor(row=keys.index(selected.key), animate=False)
        self.border_title = self.title

    @property
    def title(self) -> str:
        """Name of the table, its rows, filter and order."""
        parts = [f"{self.listing.name} {len(self.shown)}"]
        if self.text_filter:
            parts.append(f"with {self.text_filter!r}")
        if self.sort_by is not None:
            parts.append(f"by {self.listing.columns[self.sort_by].title}{' reversed' if self.backwards else ''}")
        parts += [f"({self.listing.unit})"] if self.listing.unit else []
        return Text(" ".join(parts)).markup

    def next_order(self) -> None:
        """Sort by the next visible column; after the last one, as Ray lists them."""
        choices = [None, *self.kept]
        self.sort_by = choices[(choices.index(self.sort_by) + 1) % len(choices)]

    def selected(self) -> TableRow | None:
        """Return the row under the cursor."""
        return self.shown[self.cursor_row] if 0 <= self.cursor_row < len(self.shown) else None

    def _matches(self, row: TableRow) -> bool:
        return not self.text_filter or any(self.text_filter.lower() in cell.text.lower() for cell in row.cells)

    def _drawn(self, row: TableRow, index: int) -> Text:
        cell = row.cells[index]
        return Text(f" {cell.text}", cell.style, justify="left" if self.listing.columns[index].left else "right")

    def _sorted(self, rows: list[TableRow]) -> list[TableRow]:
        if (index := self.sort_by) is None:
            return rows
        # The unknown is last in both directions.
        known = [row for row in rows if row.cells[index].order is not None]
        known.sort(key=lambda row: row.cells[index].order, reverse=self.backwards)
        return known + [row for row in rows if row.cells[index].order is None]


class Page(ModalScreen[None]):
    """Text over the screen, until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "app.pop_screen", "close")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.heading, self.text = title, text

    def compose(self) -> ComposeResult:
        box = VerticalScroll(Static(Text(self.text)))
        box.border_title, box.border_subtitle = Text(self.heading).markup, "Esc closes"
        yield box
