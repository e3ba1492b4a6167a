"""A cluster of real nodes leaves nothing on this machine, however its owner ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal.cluster.traces import traces
from tests.clone import wait_until

_ROOT = Path(__file__).resolve().parents[2]
_GONE_S = 60.0


def ended_by(number: signal.Signals, folder: Path, until: str) -> None:
    """Start the program, send a signal once it has printed a line that begins with `until`, and wait for its end."""
    command = [sys.executable, "-m", "tests.pods.one_cluster", str(folder)]
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(until):
            break
    else:
        raise AssertionError("".join(lines))
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode != 0


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize(
    ("number", "until"), [(signal.SIGINT, "UP"), (signal.SIGINT, "simulated image"), (signal.SIGKILL, "UP")]
)
def test_interruption_leaves_nothing(number: signal.Signals, until: str, tmp_path: Path) -> None:
    """Ctrl-C while a pod runs, Ctrl-C during the start, and SIGKILL of the owner: no process, mount, link, route,
    nftables table, cgroup or file of the cluster is left, and no kernel setting has changed."""
    before = traces(tmp_path)
    ended_by(number, tmp_path, until)
    # The guards of a killed owner's processes clean up asynchronously.
    wait_until(lambda: found(tmp_path, number) <= before, lambda: found(tmp_path, number) - before, _GONE_S)


def found(folder: Path, number: signal.Signals) -> frozenset[str]:
    """Return the traces; after SIGKILL without the files at the top of the cluster's folder, which only the owner
    removes."""
    return frozenset(
        each for each in traces(folder) if number is not signal.SIGKILL or not each.startswith(f"file: {folder}")
    )
