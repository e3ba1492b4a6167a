"""The report in a real browser: every plot is visible on a phone and on a desktop, light and dark."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser import Chromium
from tests.chromium import NoBrowserError, fetch, find
from tests.workloads.results import SWEEP, fabric, failed, functional, wide
from workloads.nccl.page.page import page

PHONE, DESKTOP = 390, 1280
LEAST_TEXT = 9.0  # CSS pixels: what can still be read on a phone

# For each plot: its box on the page; the smallest text in it; texts that reach out of the plot or cross another text.
PROBE = """
[...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect(), style = getComputedStyle(svg);
  const shown = figure.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const scale = box.width / svg.viewBox.baseVal.width;
  const out = texts.filter(([, at]) => at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1
    || at.bottom > box.bottom + 1).map(([text]) => text);
  const crossing = [];
  texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
    if (a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
      crossing.push(one + ' / ' + other);
  }));
  return {id: svg.id, x: box.left + scrollX, y: box.top + scrollY, width: box.width, height: box.height,
    visible: shown && style.visibility === 'visible' && style.display !== 'none',
    smallest: Math.min(...[...svg.querySelectorAll('text')].map(t => parseFloat(getComputedStyle(t).fontSize) * scale)),
    out, crossing};
})
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    try:
        browser = find() or fetch()
    except NoBrowserError as problem:
        pytest.skip(f"no browser to render the page: {problem}")
    with Chromium(browser, tmp_path_factory.mktemp("browser") / "profile") as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    results = {"fabric": fabric(verdict=failed(), slow=11, sizes=SWEEP[::3] + SWEEP[-1:]), "gloo": functional()}
    results["wide"] = wide()
    for name, result in results.items():
        (folder / f"{name}.html").write_text(page(result))
    return {name: folder / f"{name}.html" for name in results}


def problems(chromium: Chromium, file: Path, width: int, *, dark: bool = False) -> list[str]:
    """Return the visible defects of a page."""
    chromium.open(file, width, dark=dark)
    found = [f"message: {text}" for text in chromium.messages]
    found += [f"request: {url}" for url in chromium.requests if url != file.as_uri() and not url.startswith("data:")]
    wide = chromium.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
    if wide > width or chromium.evaluate("innerWidth") != width:
        found.append(f"the page is {wide} px wide in {width}")
    plots: list[dict[str, Any]] = chromium.evaluate(PROBE)
    if not plots:
        return [*found, "no plots"]
    picture = Image.open(io.BytesIO(chromium.screenshot())).convert("L")
    for plot in plots:
        found += [f"{plot['id']}: {text}" for text in _faults(plot, picture, width)]
    return found


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


@pytest.mark.parametrize("name", ["fabric", "gloo"])
@pytest.mark.parametrize(("width", "dark"), [(PHONE, False), (DESKTOP, True)])
def test_every_plot_is_visible(chromium: Chromium, pages: dict[str, Path], name: str, width: int, dark: bool) -> None:
    assert problems(chromium, pages[name], width, dark=dark) == []
    plots = chromium.evaluate("document.querySelectorAll('figure svg.plot').length")
    assert plots >= (14 if name == "fabric" else 9)


def test_text_is_readable_with_a_thousand_ranks(chromium: Chromium, pages: dict[str, Path]) -> None:
    assert problems(chromium, pages["wide"], PHONE) == []


def test_print_uses_the_light_colors(chromium: Chromium, pages: dict[str, Path]) -> None:
    colors = "[document.body, document.querySelector('.plot')].map(e => getComputedStyle(e).getPropertyValue('--ink'))"
    chromium.open(pages["gloo"], 794, dark=True)
    on_screen = chromium.evaluate(colors)
    chromium.open(pages["gloo"], 794)
    light = chromium.evaluate(colors)
    chromium.open(pages["gloo"], 794, dark=True, printed=True)
    assert chromium.evaluate(colors) == light != on_screen


def test_page_follows_the_color_scheme(chromium: Chromium, pages: dict[str, Path]) -> None:
    lights = {}
    for dark in (False, True):
        chromium.open(pages["gloo"], PHONE, dark=dark)
        shot = Image.open(io.BytesIO(chromium.screenshot({"x": 0, "y": 0, "width": PHONE, "height": 600}))).convert("L")
        histogram = shot.histogram()
        lights[dark] = histogram.index(max(histogram))
    assert lights[True] < 60
    assert lights[False] > 200


def test_the_verdict_is_on_the_first_screen(chromium: Chromium, pages: dict[str, Path]) -> None:
    chromium.open(pages["fabric"], PHONE, 800)
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
