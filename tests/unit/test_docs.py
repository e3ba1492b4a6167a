"""The documentation by hand: links, names of files, the index, the first screen of the README, and plain words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((DOCS / "decisions").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), *RECORDS]
GENERATED = {DOCS / "settings.md", DOCS / "messages.md"}
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:infra|workloads|rehearsal|tools|tests|images|docs|schema|\.github)/[\w./-]+)(?:::\w+)?`")
PARTS = ["Context", "Decision", "Rejected", "Consequences"]
SCREEN = 40
"""Lines of a page that a reader sees without scrolling."""
OUTPUT = re.compile(r"^```console\n(?:\$ .+\n)+(?!\$ |```)", re.MULTILINE)
"""A console block up to the first line that a command prints."""
AWKWARD = {
    r"(is|are) no \w+ of": "is not a … of",
    r"(of which there|that) (is|are) none": "there is none, is not a …",
    r"of (yours|ours|its own|their own)": "your, its, a separate",
    r"(AWS'|EKS'|Google's|Kubernetes'|NVIDIA's|Pulumi's|Ray's) own": "the … of",
    r"name (one|it|them) by": "choose one with",
    r"by `--": "with `--…`",
    r"what (it|they) (bounds?|takes?)": "limit, requirements",
    r"(command|cure|judge|kernel|kubectl|log|page|report|verdict) says": "reports, shows, states",
    r"and says|says so": "reports, shows, states",
}
"""Phrases that the documentation of Kubernetes and Pulumi would not use, and what to write instead."""
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


@pytest.mark.parametrize("folder", ["infra", "workloads", "rehearsal", "tools", "tests"])
def test_pages_that_code_names_exist(folder: str) -> None:
    """Messages of commands, too: `docs/gke.md` in one is what a reader opens."""
    named = {
        (file.relative_to(ROOT).as_posix(), page)
        for file in (ROOT / folder).rglob("*.py")
        for page in re.findall(r"(?<!: )\bdocs/[\w-]+\.\w+\b(?! of)", file.read_text(encoding="utf-8"))
    }
    assert [(file, page) for file, page in sorted(named) if not (ROOT / page).exists()] == []


def test_readme_shows_output_on_its_first_screen() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = OUTPUT.search(text)
    assert first, "no ```console block with the output of a command"
    assert text.count("\n", 0, first.end()) < SCREEN


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED], ids=lambda page: page.stem)
def test_words_are_plain(page: Path) -> None:
    text = " ".join(prose(page).split())
    found = {phrase[0]: instead for each, instead in AWKWARD.items() if (phrase := re.search(rf"\b{each}", text))}
    assert found == {}


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
