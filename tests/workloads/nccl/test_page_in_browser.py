"""The report in a real browser: every plot is visible on a phone and on a desktop, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser import Chromium, running
from tests.chromium import find
from tests.workloads.nccl.results import SWEEP, fabric, failed, functional, wide
from workloads.nccl.page.page import page

PHONE, DESKTOP = 390, 1280
MESSAGES = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
LEAST_TEXT = 9.0  # CSS pixels: what can still be read on a phone

# For each plot: its box on the page; the smallest text in it; texts that reach out of the plot or cross another text.
PROBE = """
[...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg, .bars'), box = svg.getBoundingClientRect(), style = getComputedStyle(svg);
  const shown = figure.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const texts = [...svg.querySelectorAll('text, th, .n')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const scale = svg.viewBox ? box.width / svg.viewBox.baseVal.width : 1;
  const out = texts.filter(([, at]) => at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1
    || at.bottom > box.bottom + 1).map(([text]) => text);
  const crossing = [];
  texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
    if (a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
      crossing.push(one + ' / ' + other);
  }));
  return {id: svg.id, x: box.left + scrollX, y: box.top + scrollY, width: box.width, height: box.height,
    visible: shown && style.visibility === 'visible' && style.display !== 'none',
    smallest: Math.min(...[...svg.querySelectorAll('text, th, .n')].map(
      text => parseFloat(getComputedStyle(text).fontSize) * scale)),
    out, crossing};
})
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = find()
    if browser is None:
        pytest.skip("no browser to render the page: `make setup-dev` downloads one, or says why it cannot")
    with running(browser, tmp_path_factory.mktemp("browser") / "profile") as page_of_browser:
        yield page_of_browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    results = {"fabric": fabric(verdict=failed(), slow=11, sizes=SWEEP[::3] + SWEEP[-1:]), "gloo": functional()}
    results["wide"] = wide()
    for name, result in results.items():
        (folder / f"{name}.html").write_text(page(result))
    return {name: folder / f"{name}.html" for name in results}


def problems(chromium: Chromium, file: Path, width: int, *, dark: bool = False, least: int = 1) -> list[str]:
    """Return the visible defects of a page that has to have at least so many plots."""
    chromium.show(file, width, dark=dark)
    plots: list[dict[str, Any]] = chromium.evaluate(PROBE)
    found = [] if len(plots) >= least else [f"{len(plots)} plots"]
    wide = chromium.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
    if wide > width or chromium.evaluate("innerWidth") != width:
        found.append(f"the page is {wide} px wide in {width}")
    picture = chromium.screenshot()
    found += [f"{plot['id']}: {text}" for plot in plots for text in _faults(plot, picture, width)]
    found += [f"message: {event['params']}" for event in chromium.events if event["method"] in MESSAGES]
    sent = [event["params"] for event in chromium.events if event["method"] == "Network.requestWillBeSent"]
    requested = [request["request"]["url"] for request in sent]
    return found + [f"request: {url}" for url in requested if url != file.as_uri() and not url.startswith("data:")]


def _faults(plot: dict[str, Any], picture: Image.Image, width: int) -> list[str]:
    found = []
    x, y, wide, high = (plot[key] for key in ("x", "y", "width", "height"))
    if not plot["visible"] or wide < 300 or high < 60:
        return [f"not visible: {wide:.0f} × {high:.0f} px"]
    if x < 0 or x + wide > width:
        found.append(f"reaches from {x:.0f} to {x + wide:.0f} px")
    if plot["smallest"] < LEAST_TEXT:
        found.append(f"text of {plot['smallest']:.1f} px")
    found += [f"{text!r} reaches out of the plot" for text in plot["out"]]
    found += [f"text on text: {texts}" for texts in plot["crossing"]]
    histogram = picture.crop((round(x), round(y), round(x + wide), round(y + high))).histogram()
    # Pixels that are not background: lines, bars and text; a blank plot has none.
    drawn = 1 - max(histogram) / sum(histogram)
    if drawn < 0.01:
        found.append(f"blank: {drawn:.2%} of its pixels differ")
    return found


@pytest.mark.parametrize(
    ("name", "width", "dark", "least"),
    [("fabric", PHONE, False, 14), ("fabric", DESKTOP, True, 14), ("gloo", PHONE, True, 9), ("wide", PHONE, False, 9)],
)
def test_every_plot_is_visible_and_readable(
    chromium: Chromium, pages: dict[str, Path], name: str, width: int, dark: bool, least: int
) -> None:
    assert problems(chromium, pages[name], width, dark=dark, least=least) == []


def test_page_follows_the_color_scheme_and_print_is_light(chromium: Chromium, pages: dict[str, Path]) -> None:
    inks, backgrounds = [], []
    for dark, media in ((False, "screen"), (True, "screen"), (True, "print")):
        chromium.show(pages["gloo"], 794, dark=dark, media=media)
        inks += [chromium.evaluate("getComputedStyle(document.querySelector('.plot')).getPropertyValue('--ink')")]
        histogram = chromium.screenshot(height=600).histogram()
        backgrounds += [histogram.index(max(histogram))]
    on_light, on_dark, on_paper = backgrounds
    assert on_dark < 60 < 200 < min(on_light, on_paper)
    assert inks[2] == inks[0] != inks[1]


def test_the_verdict_is_on_the_first_screen(chromium: Chromium, pages: dict[str, Path]) -> None:
    chromium.show(pages["fabric"], PHONE, 800)
    words = chromium.evaluate("document.elementFromPoint(innerWidth / 2, 90).closest('header').innerText")
    assert "Fail all_gather at 8 GiB" in words
    assert chromium.evaluate("document.title").startswith("Fail: all_gather at 8 GiB")


@pytest.mark.parametrize(
    ("style", "says"),
    [
        (".plot { visibility: hidden }", "not visible"),
        (".plot { width: 40px }", "not visible"),
        (".plot * { opacity: 0 }", "blank"),
        ("main { width: 700px }", "the page is"),
        (".plot text { font-size: 5px !important }", "text of 5"),
        (".plot text { font-size: 40px !important }", "text on text"),
        ("body { background: url(http://127.0.0.1:9/x.png) }", "message"),
    ],
)
def test_defects_are_detected(
    chromium: Chromium, pages: dict[str, Path], tmp_path: Path, style: str, says: str
) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(pages["gloo"].read_text().replace("</style>", f"{style}</style>", 1))
    assert any(says in problem for problem in problems(chromium, broken, PHONE))
