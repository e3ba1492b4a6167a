"""The report of a result: one HTML file without scripts or anything to load, a picture, and the JSON."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from workloads.client.run import write_file
from workloads.nccl.page import content
from workloads.nccl.page.plots import all_plots, picture
from workloads.nccl.page.rows import machine_of
from workloads.nccl.result import Result

HERE = Path(__file__).parent
# Inside a script element only these could end it or begin a comment; JSON reads them back unchanged.
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
    members = {member.rank: member for member in result.ranks or []}
    return environment.get_template("page.html").render(
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        headline=content.headline(result),
        facts=content.facts(result, known),
        findings=result.verdict.findings if result.verdict else [],
        wrong=content.wrong(result.rows, members),
        remarks=content.remarks(result),
        comparisons=content.comparisons(result),
        plots=all_plots(result, known),
        percentiles=content.percentiles(result),
        spread=content.spread(result),
        evidence=content.evidence_tables(result),
        missing=result.evidence.missing if result.evidence else [],
        raw=content.raw(result),
        schema=result.schema_,
        json=Markup(result.as_json(indent=None).translate(_IN_SCRIPT)),
    )


def write_report(result: Result, folder: Path, machine: str | None = None) -> list[Path]:
    """Write report.html, report.png and result.json to `folder`, and return their paths."""
    return [
        write_file(folder / "report.html", page(result, machine)),
        write_file(folder / "report.png", picture(result, machine)),
        write_file(folder / "result.json", result.as_json() + "\n"),
    ]
