"""`rdma-ray shell` and `rdma-ray forward` on real Ray: the head, a worker, the ranks of each kind of job."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clone import wait_until
from tests.terminal import Terminal
from tests.workloads.conftest import Cluster
from workloads.client.api import JobsApi
from workloads.exits import Exit

PAGE = """
import functools, http.server, os
rank = int(os.environ["RANK"])
open(f"served by {rank}", "w").close()
address = "127.0.0.1", int(os.environ["FIRST_PORT"]) + rank
server = http.server.HTTPServer(address, http.server.SimpleHTTPRequestHandler)
server.serve_forever()
"""
WAIT_S = 120.0


@contextmanager
def job(cluster: Cluster, *arguments: str, **variables: str) -> Iterator[str]:
    """Start a job, and stop it at the end of the block."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    with cluster.start(*arguments[:at], "--detach", *arguments[at:], **variables) as process:
        said, complaint = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, complaint
    job_id = said.strip()
    try:
        yield job_id
    finally:
        cluster.rdma_ray("stop", job_id)


def variables_of(cluster: Cluster, *where: str) -> dict[str, str]:
    """Return what `env` prints there, once the rank runs."""

    def ask() -> dict[str, str] | None:
        done = cluster.rdma_ray("shell", *where, "--", "env", "-0")
        if done.returncode:
            assert "rank" in done.stderr, done.stderr
            return None
        return dict(each.split("=", 1) for each in done.stdout.split("\0") if each)

    deadline = time.monotonic() + WAIT_S
    while (found := ask()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return found


@pytest.fixture
def first_port() -> int:
    """Return a port that is free with the next one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_shell_in_the_ranks_of_a_run(cluster: Cluster, tmp_path: Path, first_port: int) -> None:
    """A command has the folder, the variables, the secrets and the process of its rank, and its exit code is passed
    on; a port of the rank is forwarded."""
    (tmp_path / "page.py").write_text(PAGE)
    variables = ("--secret", "MY_KEY", "--env", f"FIRST_PORT={first_port}")
    run = ("run", "--nodes", "2", "--working-dir", str(tmp_path), *variables)
    api = JobsApi.of(cluster.outputs)
    with job(cluster, *run, "--", "python", "page.py", MY_KEY="a word") as job_id:
        found = variables_of(cluster, "rank:1")
        assert (found["RANK"], found["WORLD_SIZE"], found["MY_KEY"]) == ("1", "2", "a word")
        assert found["RDMA_RAY_JOB_ID"] == job_id
        assert "MASTER_ADDR" in found
        look = 'tr "\\0" " " </proc/$RANK_PID/cmdline; ls; exit 7'
        wait_until(lambda: "served by 1" in cluster.rdma_ray("shell", "1", "--", "ls").stdout, timeout_s=WAIT_S)
        done = cluster.rdma_ray("shell", "1", "--job", job_id, "--", "sh", "-c", look)
        assert (done.returncode, done.stdout.split("\n")[0].split()) == (7, ["python", "page.py", "page.py"])
        spied = cluster.rdma_ray("shell", "rank:1", "--", "sh", "-c", "py-spy dump --pid $RANK_PID")
        assert "serve_forever" in spied.stdout, spied.stderr
        check_terminal(cluster)
        check_forward(cluster, first_port)
        missing = cluster.rdma_ray("shell", "rank:2")
        assert (missing.returncode, missing.stderr) == (
            Exit.ERROR,
            f"job {job_id} has no rank 2: it has ranks 0 to 1\n",
        )
    over = cluster.rdma_ray("shell", "rank:1", "--job", job_id)
    assert (over.returncode, over.stderr) == (Exit.ERROR, f"job {job_id} is over: it STOPPED\n")
    assert api.job(job_id).status == "STOPPED"


def check_terminal(cluster: Cluster) -> None:
    """On a terminal, bash gets what is typed, Ctrl-C ends what runs in it, and the exit code is that of bash."""
    terminal = Terminal([str(cluster.command), "shell", "rank:1"], cluster.folder, cluster.environment())
    terminal.type("echo on rank=$RANK\n")
    terminal.expect("on rank=1")
    # The process that prints is the one that the signal is for: bash may get it before it has started another.
    terminal.type("sh -c \"echo begin''ning; exec sleep 600\"\n")
    terminal.expect("beginning")
    terminal.type("\x03")
    terminal.type("echo interrupted=$?\n")
    terminal.expect("interrupted=130")
    terminal.type("exit 5\n")
    assert terminal.code() == 5


def check_forward(cluster: Cluster, first_port: int) -> None:
    """The port of the process, or another one of this machine; a port without a listener, and one that is taken."""
    here = cluster.rdma_ray("forward", str(first_port + 1), "rank:1")
    assert here.stdout == f"http://127.0.0.1:{first_port + 1}\n", here.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        other = str(taken.getsockname()[1])
        refused = cluster.rdma_ray("forward", str(first_port + 1), "rank:1", "--local", other)
        assert refused.returncode == Exit.ERROR
        assert f"--local {other}: Address already in use" in refused.stderr
    with cluster.start("forward", str(first_port + 1), "rank:1", "--local", other) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address == f"http://127.0.0.1:{other}"
        for _ in range(2):
            with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
                assert b"served by 1" in answer.read()
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=WAIT_S)
    assert process.returncode == Exit.OK, complaint
    nothing = cluster.rdma_ray("forward", other, "rank:1")
    assert (nothing.returncode, f"nothing listens at port {other}" in nothing.stderr) == (Exit.ERROR, True)


def test_torchruns_ranks_are_their_scripts(cluster: Cluster, tmp_path: Path) -> None:
    """Not torchrun's wrapper, which is a shell."""
    (tmp_path / "script.py").write_text("import time; time.sleep(600)\n")
    run = ("run", "--working-dir", str(tmp_path))
    with job(cluster, *run, "--", "torchrun", "--nnodes", "2", "--nproc-per-node", "2", "script.py"):
        found = variables_of(cluster, "rank:3")
        assert (found["LOCAL_RANK"], found["GROUP_RANK"], found["PWD"]) == ("1", "1", found["PWD"])
        said = cluster.rdma_ray("shell", "rank:3", "--", "sh", "-c", 'tr "\\0" " " </proc/$RANK_PID/cmdline').stdout
        assert re.search(r"python\S* -u script\.py $", said), said


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "nccl", "--nodes", "2", "--per-node", "1", "--op", "all_reduce", "--inject-fault", "hang:1"),
        ("train", "digits", "--workers", "2", "--epochs", "100000"),
    ],
    ids=["bench", "train"],
)
def test_ranks_of_bench_and_train(cluster: Cluster, words: tuple[str, ...]) -> None:
    with job(cluster, *words) as job_id:
        found = variables_of(cluster, "1", "--job", job_id)
        assert (found["RANK"], found["WORLD_SIZE"], found["RDMA_RAY_JOB_ID"]) == ("1", "2", job_id)
        assert found["MASTER_PORT"].isdecimal()
        spied = cluster.rdma_ray("shell", "1", "--", "sh", "-c", "py-spy dump --pid $RANK_PID")
        assert "ray::" in spied.stdout, spied.stderr


def test_shell_in_the_head_and_on_a_worker(cluster: Cluster) -> None:
    """By the names that `status` and Ray use; Ray's own program works there."""
    for where, name in (((), "head"), (("127.0.0.3",), "worker-1"), (("worker-2",), "worker-2")):
        found = variables_of(cluster, *where)
        assert f"/{name}-" in found["RDMA_RAY_NODE"] or f"/{name}" in found["RDMA_RAY_NODE"], found["RDMA_RAY_NODE"]
        assert cluster.token not in found.values()
    ray = cluster.rdma_ray("shell", "--", "ray", "status")
    assert (ray.returncode, "Node status" in ray.stdout) == (0, True), ray.stderr
    assert cluster.rdma_ray("shell", "127.0.0.3", "--", "sh", "-c", "exit 9").returncode == 9
    assert cluster.rdma_ray("shell", "--", "no-such-program").returncode == 127
    unknown = cluster.rdma_ray("shell", "10.0.0.1")
    assert unknown.returncode == Exit.ERROR
    assert "no node is called '10.0.0.1'" in unknown.stderr
    assert "127.0.0.3 " in unknown.stderr
    none = cluster.rdma_ray("shell", "rank:0")
    assert (none.returncode, none.stderr) == (Exit.ERROR, "no rank runs: `rdma-ray list` shows the jobs\n")


def test_several_jobs_with_ranks(cluster: Cluster) -> None:
    one = ("run", "--nodes", "1", "--", "sleep", "600")
    with job(cluster, *one) as first, job(cluster, *one) as second:
        for each in (first, second):
            assert variables_of(cluster, "0", "--job", each)["RDMA_RAY_JOB_ID"] == each
        said = cluster.rdma_ray("shell", "0").stderr
        assert said == f"several jobs have ranks, {', '.join(sorted([first, second]))}: choose one with --job ID\n"
        assert json.loads(cluster.rdma_ray("list", "--json").stdout)["jobs"]
