"""The matrix of pairs and the table of rails: as CSV, as text and as a picture (SVG, which needs nothing to draw it).

A cell is the last measured bandwidth of a pair, in GB/s busbw; a pair that was not measured stays blank, one whose test
broke shows how.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.text import Text

from workloads.nccl.hunt.result import HuntResult, Test

CELL, LABEL, TOP, LEGEND = 28, 190, 60, 70  # pixels
WIDEST = 40  # units up to which a matrix has room in a terminal
BLANK = "#e8e8e8"
BROKEN = "#7b1fa2"
# From well below the reference to at it; chosen to be told apart in print and by colour-blind readers.
SCALE = ((0.5, "#b2182b"), (0.8, "#ef8a62"), (0.9, "#fddbc7"), (0.95, "#d1e5f0"), (float("inf"), "#4393c3"))


@dataclass(frozen=True)
class Cell:
    """One pair, or one rail of a pair."""

    value: float | None
    share: float | None
    broken: str | None
    failed: bool | None

    @property
    def colour(self) -> str:
        if self.broken:
            return BROKEN
        if self.share is None:
            return BLANK
        return next(colour for limit, colour in SCALE if self.share < limit)

    @property
    def text(self) -> str:
        return self.broken or ("" if self.value is None else f"{self.value:.4g}")


Matrix = Mapping[tuple[int, int], Cell]


def cell(test: Test) -> Cell:
    return Cell(test.value, test.share, test.broken, test.failed)


def matrix(result: HuntResult) -> dict[tuple[int, int], Cell]:
    """(lower unit, higher unit) → what their last test gave. Units that never met have no entry."""
    found: dict[tuple[int, int], Cell] = {}
    for test in result.tests:
        if test.kind == "pair":
            first, second = sorted(test.units)
            found[first, second] = cell(test)
    return found


def units_of(pairs: Matrix) -> list[int]:
    """The units that have a cell, so that a fleet of hundreds shows those in question."""
    return sorted({unit for pair in pairs for unit in pair})


def pairs_csv(result: HuntResult) -> str:
    """A square matrix, symmetric, GB/s; blank where not measured."""
    pairs = matrix(result)
    units = units_of(pairs)
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow(["GB/s busbw", *(result.units[unit].name for unit in units)])
    for row in units:
        cells = [pairs.get((min(row, other), max(row, other))) for other in units]
        write.writerow([result.units[row].name, *(found.text if found else "" for found in cells)])
    return out.getvalue()


def rails_csv(result: HuntResult) -> str:
    """One line per rail test: who, which rail, shifted or not, GB/s, share of the reference."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow(["unit", "partner", "rail", "shifted", "GB/s busbw", "share", "failed"])
    for test in result.tests:
        if test.kind == "rail":
            first, second = (result.units[unit].name for unit in test.units)
            failed = "" if test.failed is None else str(test.failed).lower()
            write.writerow(
                [first, second, test.rail, str(test.shifted).lower(), cell(test).text, test.share or "", failed]
            )
    return out.getvalue()


def as_text(result: HuntResult) -> Text:
    """The matrix for a terminal, coloured; units by number. Empty where it has no pairs or no room."""
    pairs = matrix(result)
    units = units_of(pairs)
    text = Text()
    if not units or len(units) > WIDEST:
        return text
    wide = max(6, *(len(found.text) + 1 for found in pairs.values()))
    text.append("pairs, GB/s busbw\n".rjust(5))
    text.append(" " * 5 + "".join(f"{unit:>{wide}}" for unit in units) + "\n")
    for row in units:
        text.append(f"{row:>5}")
        for other in units:
            found = pairs.get((min(row, other), max(row, other)))
            shown = "·" if found is None else found.text
            text.append(f"{shown:>{wide}}", style="" if found is None else style(found))
        text.append("\n")
    return text


def style(found: Cell) -> str:
    """By the verdict, as a run on CPUs has a threshold of its own; the picture's colours are by share."""
    if found.broken:
        return "bold magenta"
    return "" if found.failed is None else "bold red" if found.failed else "green"


def as_svg(result: HuntResult) -> str:
    """The matrix as a picture, with a legend and each cell's figures in its title."""
    pairs = matrix(result)
    units = units_of(pairs)
    names = [f"{unit}: {result.units[unit].name}" for unit in units]
    width = LABEL + CELL * max(len(units), 12) + 20
    height = TOP + CELL * len(units) + LEGEND
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="sans-serif" font-size="11">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-size="14">Bandwidth of pairs, GB/s busbw; grey: not measured</text>',
    ]
    accused = {one.unit for one in result.accused}
    for index, unit in enumerate(units):
        weight = ' font-weight="bold" fill="#b2182b"' if unit in accused else ""
        x, y = LABEL + CELL * index + CELL / 2, TOP + CELL * index + CELL / 2 + 4
        parts.append(f'<text x="{x}" y="{TOP - 8}" text-anchor="middle"{weight}>{unit}</text>')
        parts.append(f'<text x="{LABEL - 8}" y="{y}" text-anchor="end"{weight}>{escape(_short(names[index]))}</text>')
    for i, row in enumerate(units):
        for j, other in enumerate(units):
            found = pairs.get((min(row, other), max(row, other))) if row != other else None
            parts += _drawn(LABEL + CELL * j, TOP + CELL * i, found, f"{row} and {other}")
    parts += _legend(TOP + CELL * len(units) + 20)
    return "\n".join([*parts, "</svg>\n"])


def write(result: HuntResult, folder: Path) -> list[Path]:
    """Write pairs.csv, rails.csv, pairs.txt and pairs.svg into `folder`; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "pairs.csv": pairs_csv(result),
        "rails.csv": rails_csv(result),
        "pairs.txt": as_text(result).plain,
        "pairs.svg": as_svg(result),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def _drawn(x: float, y: float, found: Cell | None, who: str) -> list[str]:
    colour = found.colour if found else BLANK
    title = f"{who}: {found.text}" if found else f"{who}: not measured"
    if found and found.share is not None:
        title += f" GB/s, {found.share:.0%} of the reference"
    square = f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="{colour}">'
    return [f"{square}<title>{escape(title)}</title></rect>"]


def _legend(y: float) -> list[str]:
    limits = [limit for limit, _ in SCALE[:-1]]
    labels = [f"below {limits[0]:.0%}", *(f"{a:.0%} to {b:.0%}" for a, b in itertools.pairwise(limits))]
    labels.append(f"{limits[-1]:.0%} and more")
    entries: Sequence[tuple[str, str]] = [
        *((label, colour) for label, (_, colour) in zip(labels, SCALE, strict=True)),
        ("broken", BROKEN),
    ]
    parts = [f'<text x="10" y="{y + 10}">share of the reference</text>']
    for index, (label, colour) in enumerate(entries):
        x, line = 150 + 120 * (index % 3), y + 20 * (index // 3)
        parts.append(f'<rect x="{x}" y="{line}" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="{line + 11}">{label}</text>')
    return parts


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:29]}…"
