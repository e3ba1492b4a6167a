"""`rdma-ray shell` and `rdma-ray forward` in a job of a real Slurm: the head, a node, a rank, and ports there."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.slurm.conftest import RDMA_RAY, ROOT, Run, assert_nothing_is_left, rdma_ray, start
from tests.terminal import Terminal
from tools.slurm.cluster import Slurm
from workloads.exits import Exit

PAGE = """
import http.server, os, threading
rank = int(os.environ["RANK"])
open(f"served by {rank}", "w").close()
for address in (("127.0.0.1", 28_601), ("0.0.0.0", 28_602)):
    server = http.server.ThreadingHTTPServer(address, http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever).start()
"""
WAIT_S = 180.0


def on(run: Run, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a cluster, as its user on the login machine."""
    before = words.index("--") if "--" in words else len(words)
    outputs = ("--outputs", str(run.folder / "outputs.json"))
    return rdma_ray(run.slurm, run.user, *words[:before], *outputs, *words[before:])


@contextmanager
def forwarded(run: Run, *words: str) -> Iterator[str]:
    """Yield the address of a forwarded port. The login machine has another network than the test."""
    command = [*RDMA_RAY, "forward", *words, "--outputs", str(run.folder / "outputs.json")]
    environment = run.slurm.environment | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    argv = run.slurm.as_user(run.user, command)
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                each.terminate()


def test_shell_and_forward_in_a_job(slurm: Slurm, tmp_path: Path) -> None:
    alice = start(slurm, "alice", "--sbatch", "nodelist=n0,n1")
    alice.wait_until_ready()
    head = on(alice, "shell", "--", "ray", "status")
    assert (head.returncode, "Node status" in head.stdout) == (0, True), head.stderr
    for node in ("n0", "n1"):
        done = on(alice, "shell", node, "--", "sh", "-c", "echo on $SLURMD_NODENAME; exit 7")
        assert (done.returncode, done.stdout) == (7, f"on {node}\n"), done.stderr
    (tmp_path / "page.py").write_text(PAGE)
    run = alice.rdma_ray("run", "--nodes", "2", "--env", "MINE=1", "--detach", "--", "python", "page.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    deadline = time.monotonic() + WAIT_S
    while "served by 1" not in (done := on(alice, "shell", "rank:1", "--", "ls")).stdout:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(1)
    said = on(alice, "shell", "rank:1", "--", "sh", "-c", "echo $RANK $MINE; tr '\\0' ' ' </proc/$RANK_PID/cmdline")
    assert said.stdout == "1 1\npython page.py ", said.stderr
    command = [*RDMA_RAY, "shell", "rank:1", "--outputs", str(alice.folder / "outputs.json")]
    terminal = Terminal(slurm.as_user("alice", command), ROOT, slurm.environment | {"PYTHONPATH": str(ROOT)})
    terminal.type("echo begin''ning; sleep 600\n")
    terminal.expect("beginning")
    terminal.type("\x03")
    terminal.type("echo on rank=$RANK; exit 5\n")
    terminal.expect("on rank=1")
    assert terminal.code() == 5
    assert on(alice, "shell", "2").stderr.endswith("has no rank 2: it has ranks 0 to 1\n")
    # By a step for each connection, and by the network.
    for port in ("28601", "28602"):
        with forwarded(alice, port, "rank:1") as address:
            fetch = f"import urllib.request; print(urllib.request.urlopen({address!r}).read().decode())"
            for _ in range(2):
                page = slurm.run([*RDMA_RAY[:1], "-c", fetch])
                assert "served by 1" in page.stdout, page.stderr
    nothing = on(alice, "forward", "28603", "rank:1")
    assert (nothing.returncode, nothing.stderr) == (
        Exit.ERROR,
        "nothing listens at port 28603 of n1: start it there first\n",
    )
    other = rdma_ray(slurm, "bob", "shell", "--outputs", str(alice.folder / "outputs.json"))
    assert other.returncode == Exit.ERROR
    alice.cancel()
    assert_nothing_is_left(slurm, "alice")
