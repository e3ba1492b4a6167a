"""Report of a result: a self-contained HTML file without scripts, a picture, and the JSON."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from workloads.evidence.facts import counted
from workloads.evidence.raw_log import ranges
from workloads.nccl.page.plots import all_plots, bars, curves, levels, sweeps, without_rails
from workloads.nccl.report import largest
from workloads.nccl.result import BenchResult
from workloads.nccl.units import figure, format_size
from workloads.results.files import write_file
from workloads.terminal.plots import INK, SOFT, encoded, style

HERE = Path(__file__).parent
# Characters that could end a script element or begin a comment; JSON decodes the escapes.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
WIDTH, HEIGHT, MAX_PLOTS = 1200.0, 675.0, 6  # of the picture: points, 16:9
TONES = {"pass": "#1b6e3c", "warn": "#8a5a00", "fail": "#b3261e", "unjudged": "#3f4a56"}
BADGES = {"pass": "Pass", "warn": "Warning", "fail": "Fail", "unjudged": "Not judged"}


def page(result: BenchResult) -> str:
    """Return the page for a result. The same result gives the same page, byte for byte."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(figure=figure, size=format_size, median=median, percent=lambda x: f"{x * 100:.1f} %")
    status, badge, sentence, functional = headline(result)
    ranks = result.evidence.ranks if result.evidence else []
    return environment.get_template("page.html").render(
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        result=result,
        status=status,
        badge=badge,
        sentence=sentence,
        functional=functional,
        facts=facts(result),
        some=some,
        shell=shlex.join,
        bars={title: found for title, found in bars(result).items() if len(found) > 1},
        names={member.rank: f"{member.rank} on {member.host} ({member.device})" for member in result.ranks or []},
        warnings=[f"{row.name} at {format_size(row.size)}: {text}" for row in result.rows for text in row.warnings],
        shown=without_rails(largest(result.rows)),
        plots=all_plots(result),
        nics=[(result.host(one.rank), nic) for one in ranks for nic in one.counters or ()],
        gpus=[(result.host(one.rank), one.rank, gpu) for one in ranks for gpu in one.gpus or ()],
        ranges=ranges,
        json=Markup(result.model_dump_json(by_alias=True).translate(_IN_SCRIPT)),
    )


def write_report(result: BenchResult, folder: Path) -> list[Path]:
    """Write report.html, report.png and result.json to `folder`, and return their paths."""
    return [
        write_file(folder / "report.html", page(result)),
        write_file(folder / "report.png", picture(result)),
        write_file(folder / "result.json", result.as_json() + "\n"),
    ]


def picture(result: BenchResult) -> bytes:
    """Return the summary as a PNG of 1800 × 1012 pixels. The same result gives the same picture."""
    status, badge, sentence, functional = headline(result)
    lines = [
        (badge, 22, TONES[status], "bold"),
        *((text, 18, INK, "normal") for text in textwrap.wrap(sentence, 92, max_lines=2, placeholder=" …")),
        (textwrap.shorten(functional, 150, placeholder=" …"), 13, INK, "bold"),
        (textwrap.shorten(" · ".join(facts(result).values()), 160, placeholder=" …"), 12, SOFT, "normal"),
    ]
    plots, top = list(sweeps(result).items()), 22.0
    pairs = [plot for plot in plots if plot[0].endswith("pairs")][:1]  # always shown
    chosen = [plot for plot in plots if not plot[0].endswith("pairs")][: MAX_PLOTS - len(pairs)] + pairs
    with style():
        drawing = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=108, facecolor="#ffffff")
        drawing.add_artist(Rectangle((0, 0), 0.01, 1, color=TONES[status], transform=drawing.transFigure))
        for text, size, color, weight in lines:
            if text:
                drawing.text(
                    40 / WIDTH, 1 - top / HEIGHT, text, fontsize=size, color=color, fontweight=weight, va="top"
                )
                top += size * 1.4
        drawing.set_layout_engine("constrained", rect=(30 / WIDTH, 0.01, 1 - 60 / WIDTH, 1 - top / HEIGHT - 0.03))
        grid = 2 if len(chosen) > 3 else 1, 3 if len(chosen) > 2 else 2
        for number, (title, plot) in enumerate(chosen, 1):
            curves(drawing.add_subplot(*grid, number), plot, levels(plot, result), title=title)
        return encoded(drawing, "png")


def headline(result: BenchResult) -> tuple[str, str, str, str]:
    """Return status, badge, sentence, and the limits of a functional proof, if it is one.

    A run without a verdict is never a pass, even if its data is right, and right data on one machine must not look like
    a fabric's pass.
    """
    verdict = result.verdict
    status = verdict.outcome if verdict else "fail" if result.exit_code else "unjudged"
    badge, functional = BADGES[status], ""
    if result.proves != "fabric" or result.backend == "gloo":
        why = (result.notice or "it ran over gloo").partition(":")[0]
        functional = (
            f"This is a functional proof, not a fabric measurement. Its bandwidths show nothing about a network: {why}."
        )
        if status in ("pass", "unjudged"):
            status, badge = "unjudged", "Functional proof"
    return status, badge, verdict.reason if verdict else result.reason, functional


def facts(result: BenchResult) -> dict[str, str]:
    """Return the most important facts of the run that are known, by name."""
    world, nccl = result.world, (result.versions or {}).get("nccl")
    across = world and f"{world.per_node} ranks on {counted(world.machines, 'machine')}"
    found = {
        "Machine": result.verdict and result.verdict.machine,
        "World": world and f"{counted(world.nodes, 'node')} × {across}",
        "Library": f"NCCL {nccl}" if nccl else result.backend or "unknown: no rank started",
        "Data": ", ".join(dict.fromkeys(row.dtype for row in result.rows)),
        "Started": f"{datetime.fromtimestamp(result.started, UTC):%Y-%m-%d %H:%M:%S UTC}",
        "Job": " on ".join(filter(None, (result.job, result.cluster))),
    }
    return {name: text for name, text in found.items() if text}


def some(names: Iterable[object], most: int = 8) -> str:
    """Join the first different names."""
    unique = list(dict.fromkeys(map(str, names)))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")
