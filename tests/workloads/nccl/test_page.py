"""The report page: content, self-containment, and what it must not claim."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

from tests.workloads.conftest import ROOT
from tests.workloads.nccl.results import SWEEP, evidence, fabric, failed, functional, passed, wide
from tests.workloads.nccl.test_evidence_gpu import gpu, run
from workloads.cli import main
from workloads.evidence.raw_log import ranges
from workloads.exits import Exit
from workloads.nccl import report
from workloads.nccl.judge.verdict import verdict_of
from workloads.nccl.page.page import headline, page, picture, write_report
from workloads.nccl.page.plots import levels, sweeps
from workloads.nccl.result import BenchResult

SHORT = SWEEP[::6] + SWEEP[-1:]
FAILED = fabric(sizes=SHORT, verdict=failed(), slow=11)
# Markup, and a formula that matplotlib would refuse to draw.
EVIL = "</script><script>alert('$\\frac{$ & more')</script>"


class Page(HTMLParser):
    """Visible text, attributes of all elements, and the embedded JSON of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.data = ""
        self._open: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.data += data
        elif not (self._open and self._open[-1] == "style"):
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass


@cache
def failed_page() -> str:
    """Return a page that most tests only read."""
    return page(FAILED)


def test_page_loads_nothing_and_runs_nothing() -> None:
    html = failed_page()
    found = Page(html)
    for tag, name, value in found.attributes:
        if name in ("href", "src", "xlink:href", "action", "srcset"):
            assert value.startswith(("#", "data:,")), (tag, name, value)
        assert not name.startswith("on"), (tag, name)
        if tag == "script":
            assert (name, value) in (("type", "application/json"), ("id", "result"))
    assert not re.search(r"@import|url\((?!#)", html)
    assert "default-src 'none'" in html


def test_ids_are_unique_and_references_resolve() -> None:
    html = failed_page()
    found = Page(html)
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    references = {
        value[1:] for _, name, value in found.attributes if name in ("href", "xlink:href") and value[0] == "#"
    }
    references |= {value for _, name, value in found.attributes if name == "aria-labelledby"}
    references |= set(re.findall(r"url\(#([^)]*)\)", html))
    assert references
    assert references <= set(ids)


def test_plots_have_labels_and_tables_have_headers() -> None:
    found = Page(failed_page())
    plots = sum(name == "class" and value == "plot" for _, name, value in found.attributes)
    labels = [value for tag, name, value in found.attributes if tag == "svg" and name == "aria-label"]
    assert plots == len(labels) >= 9
    assert all(labels)
    assert ("html", "lang", "en") in found.attributes
    assert ("th", "scope", "col") in found.attributes
    assert "all_gather: busbw over size, at the largest in GB/s: measured 291, line rate 400, floor 293" in labels


def hostile(result: BenchResult) -> BenchResult:
    """Return the result with EVIL in every text that its types leave free, and as a name where names are free."""
    document = json.loads(result.as_json())

    def fill(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            if isinstance(value := node[key], dict | list):
                fill(value)
            elif isinstance(value, str):
                node[key] = EVIL
                with suppress(ValidationError):
                    BenchResult.model_validate(document)
                    continue
                node[key] = value
            if isinstance(value, dict) and key in ("environment", "versions", "topology", "errors", "limited_s"):
                value[EVIL] = 7 if key in ("errors", "limited_s") else EVIL

    fill(document)
    return BenchResult.model_validate(document)


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # the names are longer than a plot is wide
@pytest.mark.parametrize("local", [False, True])
def test_markup_in_values_is_escaped(local: bool) -> None:
    whole = functional() if local else run(1.0, gpu()).model_copy(update={"verdict": failed(), "injected_fault": "x"})
    every = (functional() if local else FAILED).rows
    few = [row for row in every if row.pairs][:4] + [row for row in every if row.size <= SHORT[1]][:8]
    rows = [row.model_copy(update={"ranks": row.ranks[:2], "warnings": ["text"]}) for row in few]
    update: dict[str, Any] = {"rows": rows, "ranks": (whole.ranks or [])[:2]}
    if whole.evidence:
        update["evidence"] = whole.evidence.model_copy(update={"ranks": whole.evidence.ranks[:2], "missing": ["text"]})
    evil = hostile(whole.model_copy(update=update))
    html = page(evil)
    found = Page(html)
    assert "<script>alert" not in html
    assert sum(tag == "script" and name == "id" for tag, name, _ in found.attributes) == 1
    assert found.text.count(EVIL) > (30 if local else 60)
    assert any(EVIL in value for tag, name, value in found.attributes if name == "aria-label")
    assert BenchResult.model_validate(json.loads(found.data)) == evil
    assert picture(evil)


def test_page_and_picture_are_reproducible_across_processes(tmp_path: Path) -> None:
    here = write_report(FAILED, tmp_path / "here")
    there = [tmp_path / "there" / path.name for path in here]
    command = ["bench", "report", str(here[2]), "-o", str(there[0]), "--png", str(there[1]), "--json", str(there[2])]
    there[0].parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "workloads.cli", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for one, other in zip(here, there, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.parametrize("verdict", [None, "pass"])
def test_one_machine_is_never_a_pass(verdict: str | None) -> None:
    update = {"verdict": passed().model_copy(update={"machine": None, "comparisons": []}) if verdict else None}
    result = functional().model_copy(update=update)
    assert headline(result)[0] == "unjudged"
    head = Page(page(result)).text.partition("What was measured")[0]
    assert "This is a functional proof, not a fabric measurement." in head
    assert "all ranks on one host" in head
    assert "Pass" not in head


def test_the_verdict_comes_first_with_its_code_and_findings() -> None:
    text = Page(failed_page()).text
    body = text[text.index("rdma-ray network report") :]
    assert body.index("Fail") < body.index(failed().reason) < body.index("Exit code 2") < body.index("Findings")
    for finding in failed().findings:
        assert finding.text in body
    assert "89.4 %" in body
    assert "skypilot" in body


def test_the_slowest_rank_and_pair_are_named_with_their_hosts() -> None:
    text = Page(failed_page()).text
    assert set(re.findall(r"\d+ on gpu-node-\d \(cuda:\d\)", text)) == {"11 on gpu-node-1 (cuda:3)"}
    assert "Slowest: 3 → 11 (gpu-node-0 → gpu-node-1)" in text
    assert "Slowest: rail 3 (gpu-node-1 → gpu-node-0)" in text
    assert "Red: below 90 % of the median." in text
    assert failed_page().count('<tr class="bad">') == 2 * 2 + 3  # pairs one way and both ways, and rails


def test_page_and_terminal_say_what_short_runs_time() -> None:
    written = io.StringIO()
    report.show(FAILED, Console(file=written, width=200))
    for text in (Page(failed_page()).text, written.getvalue()):
        assert "rows below 1 MiB: throughput mode times the launch from Python where it takes longer" in text
        assert "latency mode times the operation alone" in text
        assert "graph mode" not in text
    assert fabric(sizes=[2**20]).short_runs is None
    assert functional().short_runs is None  # gloo


def test_evidence_is_shown_with_what_is_missing() -> None:
    text = Page(failed_page()).text
    assert "NET/gIB/GDRDMA" in text
    assert "8 of 8 NICs" in text
    assert "packet_seq_err 3" in text
    assert evidence().image in text.split()
    without = FAILED.model_copy(update={"evidence": None})
    assert Page(page(without)).text.count("not collected: the result holds no evidence") == 3
    partly = evidence().model_copy(update={"missing": ["topology: nvidia-smi is not there"], "topology": {}})
    few = functional().rows[:1]
    partial = Page(page(FAILED.model_copy(update={"evidence": partly, "rows": few}))).text
    assert "not collected topology: nvidia-smi is not there" in partial
    local = Page(page(functional().model_copy(update={"rows": few}))).text
    assert "not collected: gloo has neither" in local


def test_every_pair_of_a_large_fleet_is_on_the_page() -> None:
    text = Page(page(wide())).text
    assert "Slowest: 692 → 700 (gpu-node-86 → gpu-node-87)" in text
    assert "The 16 slowest of 1024: show all" in text
    assert all(f"{one} → {one + 8}: " in text and f"{one + 8} → {one}: " in text for one in (0, 500, 1008))


def test_a_run_without_rows_has_a_page() -> None:
    update: dict[str, Any] = {"rows": [], "exit_code": 4, "reason": "no answer within 300 s", "world": None}
    hung = functional().model_copy(update=update | {"ranks": None, "versions": None, "environment": None})
    text = Page(page(hung)).text
    assert "Fail" in text
    assert "Exit code 4: no answer within the time-out" in text
    assert picture(hung)


def test_line_rates_and_floors_of_a_machine() -> None:
    result = fabric(sizes=SHORT)
    judged = result.model_copy(update={"verdict": verdict_of(result, "a3-ultragpu-8g")})

    def found(of: BenchResult) -> dict[str, list[tuple[str, float]]]:
        return {
            title: [(name, round(value, 2)) for name, value, _ in levels(plot, of)]
            for title, plot in sweeps(of).items()
        }

    plots = found(judged)
    assert plots["all_gather: busbw"] == [("line rate", 400), ("floor", round(0.9 * 325.7, 2))]
    assert plots["broadcast: busbw"] == [("line rate", 400)]
    # 8 of 15 other ranks are on the other node: 50 GB/s of a rank's own NIC carry 8/15 of what it sends.
    assert plots["all_to_all: busbw"] == [("line rate", 50 * 15 / 8)]
    assert plots["p2p pairs: sum of all pairs"] == [("line rate", 400), ("duplex", 800)]
    assert found(result)["all_gather: busbw"] == []
    local = functional().model_copy(update={"verdict": judged.verdict})
    assert all(name == "floor" for plot in found(local).values() for name, _ in plot)


def test_machine_option_judges_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    result = fabric(sizes=SHORT)
    file.write_text(result.model_copy(update={"rows": result.rows[: 2 * len(SHORT)]}).as_json())
    assert main(["bench", "report", str(file), "--machine", "a3-ultragpu-8g", "--json", str(tmp_path / "j")]) == Exit.OK
    judged = BenchResult.model_validate_json((tmp_path / "j").read_text())
    assert judged.verdict
    assert judged.verdict.machine == "a3-ultragpu-8g"
    assert judged.verdict.reason in Page((tmp_path / "result.html").read_text()).text
    assert main(["bench", "report", str(file), "--machine", "a9"]) == Exit.ERROR
    assert "--machine a9: not in the catalog" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read"),
        ("{", "is not JSON"),
        ("[]", "its schema is None"),
        ('{"schema": "rdma-ray/nccl/1"}', "rdma-ray/nccl/1"),
        ('{"schema": "rdma-ray/nccl/3"}', "is an incomplete result: started"),
        ('{"schema": "rdma-ray/nccl/3", "started": NaN}', "NaN is not a JSON number"),
    ],
)
def test_unreadable_results_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, says: str
) -> None:
    file = tmp_path / "result.json"
    if content is not None:
        file.write_text(content)
    assert main(["bench", "report", str(file)]) == Exit.ERROR
    assert says in capsys.readouterr().err
    assert not (tmp_path / "result.html").exists()


def test_the_result_is_not_overwritten_by_its_page(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(functional().as_json())
    assert main(["bench", "report", str(file), "-o", str(file)]) == Exit.ERROR
    assert BenchResult.model_validate_json(file.read_text()) == functional()


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_every_number_once(numbers: set[int]) -> None:
    parts = [part for part in ranges(sorted(numbers)).split(", ") if part]
    named = [
        number
        for part in parts
        for first, _, last in [part.partition("-")]
        for number in range(int(first), int(last or first) + 1)
    ]
    assert named == sorted(numbers)
