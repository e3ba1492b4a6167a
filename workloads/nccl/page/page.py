"""Report of a result: a self-contained HTML file without scripts, a picture, and the JSON."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from workloads.nccl.page import content
from workloads.nccl.page.plots import all_plots, picture
from workloads.nccl.page.rows import machine_of, shown
from workloads.nccl.result import Result
from workloads.nccl.units import figure, format_size
from workloads.results.files import write_file

HERE = Path(__file__).parent
# Characters that could end a script element or begin a comment; JSON decodes the escapes.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def page(result: Result, machine: str | None = None) -> str:
    """Return the page for a result. The same result gives the same page, byte for byte.

    Line rates and floors are those of `machine`, by default of the one in the verdict. WorkloadError if it is unknown.
    """
    known = machine_of(result, machine)
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": figure, "size": format_size, "percent": lambda share: f"{share * 100:.1f} %"}
    return environment.get_template("page.html").render(
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        result=result,
        headline=content.headline(result),
        facts=content.facts(result, known),
        wrong=content.wrong(result),
        remarks=content.remarks(result),
        rank_name=lambda rank: content.rank_name(rank, result),
        shown=shown(result),
        plots=all_plots(result, known),
        transport=content.transport(result),
        gpus=content.gpus(result),
        no_evidence=content.no_evidence(result),
        json=Markup(result.model_dump_json(by_alias=True).translate(_IN_SCRIPT)),
    )


def write_report(result: Result, folder: Path, machine: str | None = None) -> list[Path]:
    """Write report.html, report.png and result.json to `folder`, and return their paths."""
    return [
        write_file(folder / "report.html", page(result, machine)),
        write_file(folder / "report.png", picture(result, machine)),
        write_file(folder / "result.json", result.as_json() + "\n"),
    ]
