"""The screen, driven by keys: a small and a large terminal, nodes that come and go, and a cluster that is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.workloads.monitor.simulated import Fleet
from workloads.client.api import UnreachableError
from workloads.exits import WorkloadError
from workloads.monitor.app import Top
from workloads.monitor.snapshot import JobRow, Snapshot
from workloads.monitor.widgets import Listed

SMALL, LARGE = (80, 24), (200, 50)


@dataclass
class Manual:
    """Source whose snapshots the test passes to the screen."""

    interval_s: float = 2.0
    never: threading.Event = field(default_factory=threading.Event)

    def poll(self) -> Snapshot | None:
        # As a network that does not answer: the screen must end without it.
        self.never.wait()
        return None


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


Test = Callable[[Top, Pilot[Any]], Awaitable[None]]


def screen(test: Test, size: tuple[int, int], clock: Clock | None = None) -> Top:
    """Run a test with a screen of this size."""

    async def run() -> Top:
        app = Top(Manual(), clock or Clock())
        async with app.run_test(size=size) as pilot:
            await test(app, pilot)
        return app

    return asyncio.run(run())


def on_screen(size: tuple[int, int]) -> Callable[[Test], Callable[[], None]]:
    """Make a test of a function of the app on a screen of this size."""

    def made(test: Test) -> Callable[[], None]:
        def run() -> None:
            screen(test, size)

        return run

    return made


def text_of(app: Top) -> list[str]:
    """Return the screen's lines."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


async def show(app: Top, pilot: Pilot[Any], found: Snapshot | None, problem: WorkloadError | None = None) -> str:
    app.take(found, problem)
    await pilot.pause()
    return "\n".join(text_of(app))


def table(app: Top, name: str) -> Listed:
    return next(table for table in app.tables if table.listing.name == name)


@on_screen(SMALL)
async def test_small_terminal_shows_nodes_and_one_table_that_tab_changes(app: Top, pilot: Pilot[Any]) -> None:
    assert "starting the monitor" in await show(app, pilot, None)
    shown = await show(app, pilot, Fleet(12, dead=(5,), idle=(6,)).snapshot())
    for text in (
        "10.0.0.2 head",
        "Xid 79, NIC errors",
        "thermal, NIC down",
        "dead",
        "idle 5m",
        "GPUs 72/80",
        "line",
    ):
        assert text in shown, text
    assert "run-20261121-130501-000000" in shown
    await pilot.press("down", "down", "tab")
    shown = "\n".join(text_of(app))
    assert "GPUs 8 of 10.128.0.5" in shown
    assert "run-20261121-130501-000000" not in shown
    await pilot.press("tab")
    assert "mlx5_0" in "\n".join(text_of(app))
    await pilot.press("shift+tab", "shift+tab", "shift+tab")
    assert "waiting for nodes: 4 of gpu-group starting" in "\n".join(text_of(app))


@on_screen(LARGE)
async def test_large_terminal_shows_every_table(app: Top, pilot: Pilot[Any]) -> None:
    await show(app, pilot, Fleet(40).snapshot())
    await pilot.press("down", "down")
    shown = "\n".join(text_of(app))
    for text in (
        "nodes 40",
        "GPUs 8 of",
        "NICs 8",
        "jobs 2",
        "actors 2",
        "placement groups 1",
        "pending 2",
        "NVIDIA H200",
    ):
        assert text in shown, text
    await pilot.resize_terminal(*SMALL)
    await pilot.pause()
    assert "NVIDIA H200" not in "\n".join(text_of(app))


@on_screen(SMALL)
async def test_keys_help_details_filter_sort_and_interval(app: Top, pilot: Pilot[Any]) -> None:
    await show(app, pilot, Fleet(12, dead=(5,)).snapshot())
    await pilot.press("question_mark")
    # Snapshots arrive under an open page.
    assert "reverse the order" in await show(app, pilot, Fleet(12, dead=(5,)).snapshot(1))
    await pilot.press("escape", "j", "j", "enter")
    shown = "\n".join(text_of(app))
    assert "id: worker2" in shown
    assert "cpu_percent: " in shown
    await pilot.press("escape", "k", "slash", *"xid", "enter")
    nodes = table(app, "nodes")
    assert [row.key for row in nodes.shown] == ["worker2"]
    assert "with 'xid'" in "\n".join(text_of(app))
    await pilot.press("escape")
    assert len(nodes.shown) == 12
    # The third column is the processors' utilization; the unknown is last in both directions.
    await pilot.press("s", "s", "s")
    rising = [row.cells[2].order for row in nodes.shown]
    await pilot.press("S")
    falling = [row.cells[2].order for row in nodes.shown]
    assert rising[:-1] == sorted(rising[:-1])
    assert falling[:-1] == rising[:-1][::-1]
    assert (rising[-1], falling[-1]) == (None, None)
    await pilot.press("minus")
    assert app.source.interval_s == 5
    await pilot.press("plus", "plus", "plus")
    assert app.source.interval_s == 1


@on_screen(SMALL)
async def test_cursor_stays_on_its_node_while_others_come_and_go(app: Top, pilot: Pilot[Any]) -> None:
    await show(app, pilot, Fleet(10).snapshot(1))
    await pilot.press(*["down"] * 6)
    nodes = table(app, "nodes")
    for size, gone in ((10, 3), (200, 4), (9, 2)):
        found = Fleet(size).snapshot(size)
        left = [*found.nodes[:gone], *found.nodes[gone + 1 :]]
        await show(app, pilot, found.model_copy(update={"nodes": left}))
        selected = nodes.selected()
        assert selected is not None
        assert selected.key == "worker6"
        assert (len(nodes.shown), nodes.row_count) == (size - 1, size - 1)
        assert "GPUs 8 of 10.128.0.9" in (table(app, "GPUs").border_title or "")
    await show(app, pilot, found.model_copy(update={"time": found.time + 2, "nodes": found.nodes[:1]}))
    assert (nodes.row_count, table(app, "GPUs").row_count) == (1, 0)


@on_screen(LARGE)
async def test_only_changed_cells_are_written(app: Top, pilot: Pilot[Any]) -> None:
    """What makes 200 nodes cheap: docs/top.md has the measured share of a processor."""
    first = Fleet(200).snapshot()
    await show(app, pilot, first)
    before = sum(table.written for table in app.tables)
    await show(app, pilot, first.model_copy(update={"time": first.time + 2}))
    assert sum(table.written for table in app.tables) == before
    node = first.nodes[77]
    assert node.reading is not None
    hot = node.model_copy(update={"reading": node.reading.model_copy(update={"cpu_percent": 99.0})})
    nodes = [hot if one is node else one for one in first.nodes]
    await show(app, pilot, first.model_copy(update={"time": first.time + 4, "nodes": nodes}))
    assert sum(table.written for table in app.tables) == before + 1


@on_screen(SMALL)
async def test_pause_keeps_the_snapshot(app: Top, pilot: Pilot[Any]) -> None:
    await show(app, pilot, Fleet(3).snapshot(1))
    await pilot.press("p")
    assert "PAUSED" in await show(app, pilot, Fleet(9).snapshot(2))
    assert table(app, "nodes").row_count == 3
    await pilot.press("p")
    await show(app, pilot, Fleet(9).snapshot(3))
    assert table(app, "nodes").row_count == 9


def test_cluster_that_is_gone_leaves_its_last_snapshot_and_comes_back() -> None:
    clock = Clock()

    async def test(app: Top, pilot: Pilot[Any]) -> None:
        shown = await show(app, pilot, Fleet(3).snapshot(1))
        assert "NO NEWS" not in shown
        clock.now = 30
        shown = await show(app, pilot, None, UnreachableError("Ray does not answer at http://127.0.0.1:1 (refused)"))
        assert "NO NEWS for 30 s" in shown
        assert "Ray does not answer" in " ".join(shown.split())
        assert "10.128.0.4" in shown
        # The same snapshot again is no news.
        assert "NO NEWS" in await show(app, pilot, Fleet(3).snapshot(1))
        assert "NO NEWS" not in await show(app, pilot, Fleet(3).snapshot(2))

    screen(test, SMALL, clock)


@on_screen(SMALL)
async def test_snapshot_arrives_while_the_screen_ends(app: Top, pilot: Pilot[Any]) -> None:
    del pilot
    await app.screen.query("*").remove()
    app.take(Fleet(3).snapshot(1))


@pytest.mark.parametrize("seen", [False, True])
def test_monitor_that_fails_ends_the_screen_only_before_its_first_snapshot(seen: bool) -> None:
    error = WorkloadError("the monitor job failed")

    async def test(app: Top, pilot: Pilot[Any]) -> None:
        if seen:
            await show(app, pilot, Fleet(3).snapshot())
        app.take(None, error)
        await pilot.pause()

    assert screen(test, SMALL).return_value is (None if seen else error)


@on_screen(SMALL)
async def test_text_of_the_cluster_controls_nothing(app: Top, pilot: Pilot[Any]) -> None:
    found = Fleet(2).snapshot()
    job = JobRow(id="x\x1b[2Jy", status="FAILED", message="[red]a[/] \x1b]0;title\x07\nnext [/nonsense]")
    shown = await show(app, pilot, found.model_copy(update={"jobs": [job]}))
    await pilot.press("tab", "tab", "tab", "enter")
    shown += "\n".join(text_of(app))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert r"x\x1b[2Jy" in shown
    assert "[red]a[/]" in shown
