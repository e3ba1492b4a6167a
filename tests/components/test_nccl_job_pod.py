"""The pods of an NCCL Job: the real scripts, with processes as pods (`nccl_pods`).

All Jobs run at the same time, since they mostly wait. What nccl-tests, NCCL and mpirun write comes from `nccl_ranks`.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from infra.local import processes
from tests.components import nccl_ranks
from tests.components.nccl_pods import Lab, container
from workloads.cli import main

SHORT = {"RDMA_RAY_WAIT_S": "3"}
CORPUS = Path(__file__).resolve().parents[1] / "workloads" / "nccl" / "corpus" / "files"
ENDLESS = "trap 'echo ended by a signal; exit 1' TERM; echo measuring; sleep 300 & wait"


def all_pods(root: Path) -> Lab:
    lab = Lab(root, nodes=3)
    lab.start(0, 1, 2)
    return lab


def one_late(root: Path) -> Lab:
    lab = Lab(root)
    lab.start(0)
    lab.wait_for(0, "waiting for pod 1")
    lab.start(1)
    return lab


def one_without_a_name(root: Path) -> Lab:
    lab = Lab(root, nodes=3, environment=SHORT)
    lab.start(0, 1)
    return lab


def one_without_a_login(root: Path) -> Lab:
    lab = Lab(root, environment=SHORT)
    lab.named(1)
    lab.start(0)
    return lab


def no_launcher(root: Path) -> Lab:
    lab = Lab(root, environment=SHORT)
    lab.start(1)
    return lab


def launcher_dies(root: Path) -> Lab:
    lab = Lab(root, measurement=ENDLESS)
    lab.start(0, 1)
    lab.wait_for(0, "mpirun starts")
    lab.wait_until_met(1)
    lab.kill(0)
    return lab


def first_login_after_the_end(root: Path) -> Lab:
    lab = Lab(root, measurement="exit 3", environment={"RDMA_RAY_SSH": "late-ssh"})
    lab.add("late-ssh", f'[[ $LAB_HOST == lab-0.* || -e $LAB/run/{lab.host(0)}/end ]] && exec ssh "$@"; exit 255')
    lab.start(0, 1)
    return lab


def terminated(root: Path) -> Lab:
    lab = Lab(root, measurement=ENDLESS)
    lab.start(0, 1)
    lab.wait_for(0, "measuring")
    lab.terminate(0)
    return lab


def worker_terminated(root: Path) -> Lab:
    lab = Lab(root)
    lab.start(1)
    lab.wait_for(1, "serving logins")
    lab.terminate(1)
    return lab


def with_measurement(lines: str, merged: bool = False, **environment: str) -> Callable[[Path], Lab]:
    def job(root: Path) -> Lab:
        lab = Lab(root, measurement=lines, environment=environment, merged=merged)
        lab.start(0, 1)
        return lab

    return job


# NCCL's forms: numbers of algorithms and warnings without a time; names and times; a warning's function.
VERSIONS = ("2.22.3", "2.28.9", "2.30.7")
FABRICS = {"healthy": (0, ("gib-good.txt", "gib.log")), "sockets": (5, ("tcp-fallback.txt",))}
# What an image and a user may change, and with which buffers of nccl-tests it cuts the rows.
STREAMS: dict[str, tuple[str, Callable[..., Callable[[Path], Lab]]]] = {
    "two streams": ("none", with_measurement),
    "one stream": ("none", partial(with_measurement, merged=True)),
    "one file": ("line", partial(with_measurement, NCCL_DEBUG_FILE="")),
}


def real(version: str, fabric: str, streams: str) -> Callable[[Path], Lab]:
    """Return a Job that measures a fabric, with an output as it is written with NCCL_DEBUG=INFO."""
    buffers, job = STREAMS[streams]
    files = " ".join(f"'{CORPUS / name}'" for name in FABRICS[fabric][1])
    command = f"exec '{sys.executable}' -I -S '{nccl_ranks.__file__}'"
    return job(f'{command} {version} {buffers} "$LAB/mpirun" {files}')


JOBS: dict[str, Callable[[Path], Lab]] = {
    "all pods": all_pods,
    "one late": one_late,
    "no name": one_without_a_name,
    "no login": one_without_a_login,
    "no launcher": no_launcher,
    "launcher dies": launcher_dies,
    "terminated": terminated,
    "worker terminated": worker_terminated,
    "first login after the end": first_login_after_the_end,
    "mpirun 3": with_measurement('echo "# Out of bounds values : 0 OK"; exit 3'),
    "wrong data, 0": with_measurement('echo "# Out of bounds values : 4 FAILED"'),
    "wrong data, 1": with_measurement('echo "# Out of bounds values : 4 FAILED"; exit 1'),
    "no result": with_measurement('echo "# Avg bus bandwidth    : 331.2"'),
    "without MPI": with_measurement('for rank in 0 1; do echo "# Out of bounds values : 0 OK"; done'),
    "too long": with_measurement("sleep 300", RDMA_RAY_RUN_S="1"),
    "sshd fails": with_measurement("true", RDMA_RAY_SSHD="echo no hostkeys available; exit 1"),
    "good": with_measurement(f"cat '{CORPUS}/gib-good-mpirun.txt'"),
    "slow": with_measurement(f"cat '{CORPUS}/gib.log' '{CORPUS}/below.txt'"),
    "wrong": with_measurement(f"cat '{CORPUS}/gib.log' '{CORPUS}/wrong.txt'; exit 1"),
    "sshd goes into the background": with_measurement(
        'echo "# Out of bounds values : 0 OK"', RDMA_RAY_SSHD="lab-sshd & sleep 0.2"
    ),
    "no service": with_measurement("true", RDMA_RAY_SERVICE=""),
    **{" ".join(names): real(*names) for names in itertools.product(VERSIONS, FABRICS, STREAMS)},
}


class Jobs:
    """All Jobs of this module, started at once."""

    def __init__(self, root: Path, pool: ThreadPoolExecutor) -> None:
        self.labs: dict[str, Future[Lab]] = {
            name: pool.submit(start, root / str(number)) for number, (name, start) in enumerate(JOBS.items())
        }

    def __getitem__(self, name: str) -> Lab:
        return self.labs[name].result()

    def codes(self, name: str) -> list[int]:
        """Return the exit codes of a Job's pods, by index."""
        lab = self[name]
        return [lab.code(index) for index in sorted(lab.pods)]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    root = tmp_path_factory.mktemp("nccl")
    with ThreadPoolExecutor(len(JOBS)) as pool:
        yield Jobs(root, pool)
    processes.end_marked(f"{root}/")


def test_job_with_all_pods_succeeds_and_shows_the_output_of_mpirun(jobs: Jobs) -> None:
    lab = jobs["all pods"]
    assert jobs.codes("all pods") == [0, 0, 0]
    assert "# Out of bounds values : 0 OK" in lab.output(0)
    assert "pod 0 ended with 0" in lab.output(1)
    hosts = (lab.root / "hosts").read_text().splitlines()
    assert hosts == [f"{lab.host(index)} slots=8" for index in range(3)]


def test_mpirun_gets_the_arguments_of_the_manifest_and_exports_variables_of_nccl(jobs: Jobs) -> None:
    jobs.codes("all pods")
    arguments = (jobs["all pods"].root / "mpirun").read_text().splitlines()
    passed = {name for option, name in itertools.pairwise(arguments) if option == "-x"}
    assert {"NCCL_DEBUG", "NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_TESTS_SPLIT_MASK", "LD_LIBRARY_PATH"} <= passed
    assert not any(name.startswith(("RDMA_RAY", "LAB", "OMPI")) for name in passed)
    _, *rest = container()["command"][4:]
    assert arguments[-len(rest) :] == rest


@pytest.mark.parametrize(
    ("job", "codes"),
    [
        ("one late", [0, 0]),
        ("mpirun 3", [3, 3]),
        ("first login after the end", [3, 3]),
        ("wrong data, 0", [74, 74]),
        ("wrong data, 1", [1, 1]),
        ("no result", [74, 74]),
        ("without MPI", [74, 74]),
        ("too long", [124, 124]),
        ("terminated", [143, 143]),
        ("worker terminated", [143]),
        ("sshd fails", [70, 70]),
        ("sshd goes into the background", [0, 0]),
        ("no service", [64, 64]),
        ("no name", [72, 72]),
        ("no login", [72]),
        ("no launcher", [71]),
        ("launcher dies", [-9, 73]),
    ],
)
def test_every_pod_ends_with_the_exit_code_of_the_cause(jobs: Jobs, job: str, codes: list[int]) -> None:
    assert jobs.codes(job) == codes, jobs[job].output(max(jobs[job].pods))


@pytest.mark.parametrize(
    ("job", "pod", "message"),
    [
        ("no name", 0, "lab-2.lab.ray.svc.cluster.local (its name does not resolve"),
        ("no login", 0, "lab-1.lab.ray.svc.cluster.local (at 10.0.0.7, no login: ssh: connect to host"),
        ("no launcher", 1, "no word from pod 0 within 3 s: lab-0.lab.ray.svc.cluster.local (its name does not resolve"),
        ("launcher dies", 1, "pod 0 is lost: lab-0.lab.ray.svc.cluster.local (at 10.0.0.7"),
        ("wrong data, 0", 0, "wrong data: nccl-tests counted values out of bounds"),
        ("no result", 0, 'nccl-tests never printed "Out of bounds values : 0 OK"'),
        ("without MPI", 0, "2 results instead of one: this nccl-tests was built without MPI"),
        ("too long", 0, "the measurement was not over after 1 s"),
        ("sshd fails", 0, "sshd ended unexpectedly: no hostkeys available"),
        ("no service", 0, "the environment lacks RDMA_RAY_SERVICE"),
    ],
)
def test_failing_pod_prints_the_reason(jobs: Jobs, job: str, pod: int, message: str) -> None:
    jobs.codes(job)
    assert message in jobs[job].output(pod)


def test_pod_that_joined_is_not_reported_as_missing(jobs: Jobs) -> None:
    jobs.codes("no name")
    missing = jobs["no name"].output(0).partition("Missing:")[2]
    assert "lab-2." in missing
    assert "lab-1." not in missing


@pytest.mark.parametrize(("job", "ends", "verdict"), [("good", 0, 0), ("slow", 0, 2), ("wrong", 1, 3)])
def test_judge_reads_the_log_of_pod_0(jobs: Jobs, job: str, ends: int, verdict: int) -> None:
    assert jobs.codes(job)[0] == ends
    assert judged(jobs[job].log(0)) == verdict


def judged(log: Path) -> int:
    """Return the exit code of the judge's command that `bench job` prints."""
    arguments = ["--machine", "a3-ultragpu-8g", "--nodes", "2", "--op", "all_gather"]
    return main(["bench", "judge", *arguments, "--results", str(log), "--log", str(log)])


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("version", VERSIONS)
def test_judge_reads_what_nccl_writes_between_and_within_rows(
    jobs: Jobs, version: str, fabric: str, streams: str, tmp_path: Path
) -> None:
    job = f"{version} {fabric} {streams}"
    assert jobs.codes(job) == [0, 0], jobs[job].output(0)
    output = jobs[job].output(0)
    starts = re.findall(r"^ +\d+ +\d+ +float .*", output, re.MULTILINE)
    counts = output.count(" Bytes -> Algo "), output.count(" NCCL WARN "), len(starts)
    expected = 16 * nccl_ranks.RUNS, 16, 8
    # See `torn`: a cut in one stream can be inside of any message, too.
    assert counts == expected or (streams == "one stream" and sum(expected) - sum(counts) in (1, 2)), counts
    cut = sum(len(line.split()) != 13 for line in starts)
    # In the Job's own streams no row is cut, so anyone can read them; where two programs write one, it is chance.
    assert cut in {"two streams": (0,), "one stream": range(1, 9), "one file": (8,)}[streams]
    (tmp_path / "log").write_text(output)
    # A message that is torn is refused, unless another line shows what it may have said; a row inside of it is damaged.
    codes = {FABRICS[fabric][0]} | ({1, 5} if torn(output, version, fabric) else set())
    assert judged(tmp_path / "log") in codes
    assert judged(jobs[job].log(0)) in codes


def torn(output: str, version: str, fabric: str) -> bool:
    """Return whether a message of NCCL is not in one piece: mpirun copies pieces of 4 KiB, and on a busy machine a rank
    has written more than that before its turn."""
    lines = [line for name in FABRICS[fabric][1] for line in (CORPUS / name).read_text().splitlines()]
    ranks = nccl_ranks.processes(lines, tuple(map(int, version.split("."))))
    messages = {
        f"{rank.host}:{rank.pid}:{rank.tid} [{rank.device}] NCCL INFO {text}\n"
        for rank in ranks
        for text in (*rank.before, *rank.connects)
    }
    head = r"\S+:\d+:\d+ \[\d+\] "
    choices = re.findall(head + r"NCCL INFO (?:AllGather: )?\d+ Bytes -> Algo \w+ proto \w+ \S.*[\d}]\n", output)
    warnings = re.findall(head + r"\S+ (?:\(\w+\) )?NCCL WARN NET/IB : .*registration(?:\(17\))?\n", output)
    return (len(choices), len(warnings)) != (16 * nccl_ranks.RUNS, 16) or any(each not in output for each in messages)


def test_mpirun_is_terminated_with_its_pod(jobs: Jobs) -> None:
    jobs.codes("terminated")
    assert "ended by a signal" in jobs["terminated"].output(0)
