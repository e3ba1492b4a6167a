"""The report as one HTML file: no script, and nothing that a browser would have to load."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from workloads.nccl.page import content, plots, proof
from workloads.nccl.page.reference import machine_of
from workloads.nccl.page.svg import settings
from workloads.nccl.result import Result

HERE = Path(__file__).parent
# Inside a script element only these could end it or begin a comment; JSON reads them back as they were.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def page(result: Result, machine: str | None = None) -> str:
    """The page for a result; the same result gives the same page, byte for byte.

    `machine` names the line rate and floors to draw where the result carries no verdict.

    Raises:
        WorkloadError: `machine` is not in the catalog.
    """
    known = machine_of(result, machine)
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    with settings():
        drawn = {
            "bandwidth": plots.bandwidth(result, known),
            "latency": plots.small_sizes(result),
            "ranks": plots.ranks(result),
            "pairs": plots.point_to_point(result),
        }
    members = {member.rank: member for member in result.ranks or []}
    return environment.get_template("page.html").render(
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        headline=content.headline(result),
        facts=content.facts(result, known),
        findings=result.verdict.findings if result.verdict else [],
        wrong=content.wrong(result.rows, members),
        remarks=content.remarks(result),
        comparisons=content.comparisons(result),
        plots=drawn,
        percentiles=content.percentiles(result),
        spread=content.spread(result),
        evidence=proof.tables(result),
        missing=proof.missing(result),
        raw=content.raw(result),
        schema=result.schema_,
        json=Markup(as_json(result, indent=None).translate(_IN_SCRIPT)),
    )


def as_json(result: Result, indent: int | None = 2) -> str:
    """The result as `bench nccl --json` writes it, or on one line."""
    separators = (",", ":") if indent is None else None
    return json.dumps(
        result.model_dump(mode="json", by_alias=True), indent=indent, separators=separators, allow_nan=False
    )
