"""A matplotlib figure as SVG inside a page: text stays text, in the page's font and in its colours, light or dark."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from workloads.nccl.page.figures import Palette

# Colours that stand for the page's: matplotlib knows no CSS variables, so each is replaced after drawing.
_ROLES = {
    "ink": "#a0a001",
    "soft": "#a0a002",
    "grid": "#a0a003",
    "bad": "#a0a004",
    "one": "#a0a005",
    "two": "#a0a006",
    "three": "#a0a007",
    "four": "#a0a008",
    "on-bar": "#ffffff",
}
THEMED = Palette(
    ink=_ROLES["ink"],
    soft=_ROLES["soft"],
    grid=_ROLES["grid"],
    bad=_ROLES["bad"],
    series=(_ROLES["one"], _ROLES["two"], _ROLES["three"], _ROLES["four"]),
)


@contextmanager
def settings() -> Iterator[None]:
    """Matplotlib as this report needs it, whatever the user's own configuration says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "rdma-ray",
                "font.family": "DejaVu Sans",
                # A dollar in a host name is no formula.
                "text.parse_math": False,
            }
        )
        yield


def inline(drawing: Figure, name: str, description: str) -> Markup:
    """The figure as an `<svg>` element: `name` makes its ids unique on the page, screen readers say `description`."""
    written = io.BytesIO()
    drawing.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue().decode()
    text = text[text.index("<svg") :]
    # Its style element would apply to the whole page.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(?:xlink:)?href="#([^"]*)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", text)
    for role, colour in _ROLES.items():
        text = text.replace(colour, f"var(--{role})")
    text = re.sub(r">\s+<", "><", text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None, "matplotlib writes a viewBox"
    label = html.escape(description, quote=True)
    opening = f'<svg class="plot" id="{name}" role="img" aria-label="{label}" {view[0]}>'
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, text))
