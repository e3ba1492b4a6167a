"""Show `rdma-ray top` with a simulated fleet: on a terminal, as a picture, or to measure what it costs.

python -m tests.workloads.monitor.show screen [NODES]    # the screen, on this terminal
python -m tests.workloads.monitor.show cost [NODES]      # the same for a minute, then its CPU time
python -m tests.workloads.monitor.show picture FILE      # docs/top.svg
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.workloads.monitor.simulated import Fleet, Simulation
from workloads.monitor.app import Top
from workloads.monitor.snapshot import Snapshot, decode, encode

SECONDS = 60.0
STEPS = 30


@dataclass
class Encoded:
    """Source that decodes a snapshot with every poll, as the client of a cluster does."""

    texts: list[str]
    interval_s: float = 2.0
    polls: int = field(default=0, init=False)

    def poll(self) -> Snapshot | None:
        self.polls += 1
        return decode(self.texts[self.polls % len(self.texts)])


def encoded(fleet: Fleet) -> Encoded:
    """Return a source of a fleet's first steps."""
    return Encoded([encode(fleet.snapshot(step)).strip('"') for step in range(STEPS)])


def cost(nodes: int) -> None:
    """Run the screen, and print its share of one processor."""
    source = encoded(Fleet(nodes))
    app = Top(source)

    async def end(_: object) -> None:
        await asyncio.sleep(SECONDS)
        app.exit()

    began, used = time.monotonic(), time.process_time()
    app.run(auto_pilot=end)
    wall, cpu = time.monotonic() - began, time.process_time() - used
    written = sum(table.written for table in app.tables)
    share = f"{cpu:.2f} s CPU in {wall:.1f} s ({cpu / wall:.1%} of one core)"
    print(f"{nodes} nodes, {app.size.width}×{app.size.height}: {share}")
    print(f"{source.polls} snapshots of {len(source.texts[0])} bytes, {written} cells written")


async def picture(file: Path) -> None:
    """Write the picture of the documentation."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    app = Top(Simulation(Fleet(24, dead=(7,), idle=(5, 6), jobs=2, cluster="simulated fleet, nothing measured")))
    async with app.run_test(size=(160, 40)) as pilot:
        while app.snapshot is None:
            await pilot.pause(0.05)
        app.paused = True
        await pilot.press("down", "down", "down")
        await pilot.pause(0.5)
        app.paused = False
        app.take(None)
        svg = app.export_screenshot(title="rdma-ray top (simulated)")
    # Without the web fonts of textual's template: a page that shows the picture loads nothing from elsewhere.
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    file.write_text("\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["screen", *given]:
            Top(encoded(Fleet(int(given[0]) if given else 200, dead=(4,), idle=(5,)))).run()
        case ["cost", *given]:
            cost(int(given[0]) if given else 200)
        case ["picture", where]:
            asyncio.run(picture(Path(where)))
        case _:
            sys.exit(__doc__)
