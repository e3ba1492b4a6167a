"""The documentation by hand: its links lead somewhere, its index is whole, and the files that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((DOCS / "decisions").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), *RECORDS]
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:infra|workloads|rehearsal|tools|tests|images|docs|schema|\.github)/[\w./-]+)(?:::\w+)?`")
PARTS = ["Context", "Decision", "Rejected", "Consequences"]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@each_page
def test_named_files_exist(page: Path) -> None:
    """A record of a decision names what was there on its date."""
    if page not in RECORDS:
        assert [name for name in FILE.findall(prose(page)) if not (ROOT / name).exists()] == []


def test_index_has_every_page_once() -> None:
    links = re.findall(r"^\| .*\|$", prose(DOCS / "README.md"), re.MULTILINE)
    names = [name for line in links for name in LINK.findall(line.split(" | ")[0])]
    assert sorted(names) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_record_has_number_date_and_four_parts(record: Path) -> None:
    title, date, *_ = (line for line in record.read_text(encoding="utf-8").splitlines() if line)
    assert re.fullmatch(rf"# {record.name[:4]}\. .+", title)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert re.findall(r"^## (.+)$", prose(record), re.MULTILINE) == PARTS
    assert f"| [{record.name[:4]}](decisions/{record.name}) | {date} | {title[8:]} |" in prose(DOCS / "design.md")


def test_records_are_numbered_in_the_order_of_their_dates() -> None:
    assert [record.name[:4] for record in RECORDS] == [f"{number:04d}" for number in range(1, len(RECORDS) + 1)]
    dates = [record.read_text(encoding="utf-8").splitlines()[2] for record in RECORDS]
    assert dates == sorted(dates)
