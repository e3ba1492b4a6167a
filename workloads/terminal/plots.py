"""Style of all plots and pictures: the same data is the same file, on every machine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.text import Text

from infra.terminal import printable

INK, SOFT, GRID, BAD = "#1c2127", "#5c6773", "#e3e7eb", "#b3261e"
LINES = ("#1f5fbf", "#b35900", "#6b4fa3", "#00796b")
"""Colors of lines, which color-blind readers can distinguish as well."""
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "DejaVu Sans",  # matplotlib's own: the same picture everywhere
    "text.color": INK,
    "text.parse_math": False,  # names may contain dollar signs
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": SOFT,
    "axes.prop_cycle": cycler(color=LINES),
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "grid.color": GRID,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.2,
    "legend.frameon": False,
    "legend.handlelength": 1.2,
    "lines.linewidth": 1.8,
    "xtick.color": SOFT,
    "xtick.major.size": 0,
    "ytick.color": SOFT,
    "ytick.major.size": 0,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "rdma-ray",
}


@contextmanager
def style() -> Iterator[None]:
    """Use matplotlib's defaults with this project's style, instead of the user's configuration."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def encoded(drawing: Figure, kind: Literal["png", "svg"]) -> bytes:
    """Return a figure as a file without date and program, so that equal figures are equal files."""
    for text in drawing.findobj(Text):
        if (safe := printable(text.get_text())) != text.get_text():  # SVG is XML, which has no control characters
            text.set_text(safe)
    written = io.BytesIO()
    names = ("Software",) if kind == "png" else ("Date", "Creator", "Format", "Type")
    drawing.savefig(written, format=kind, metadata=dict.fromkeys(names))
    return written.getvalue()
