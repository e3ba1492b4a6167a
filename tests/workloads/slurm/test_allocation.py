"""`rdma-ray slurm run` in an allocation: what it refuses, and the step that it starts. Programs stand for Slurm's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clone import executable, wait_until
from workloads.cli import main
from workloads.exits import Exit
from workloads.options import ROOT

PROGRAMS = {
    "sbatch": '> "$DOUBLES/submitted"; echo 8',
    "scontrol": """
case "$*" in
*hostnames*) printf 'n%s\\n' 0 1 2 ;;
*node*) for each in 0 1 2; do echo "NodeName=n$each Arch=x NodeAddr=10.0.0.$each NodeHostName=n$each"; done ;;
*) echo "JobId=7 JobName=x UserId=me(${OWNER-$UID}) JobState=${STATE-RUNNING} Reason=None ExitCode=0:0" \\
    "NodeList=n[0-2] Power= $DETAILS" ;;
esac""",
    "srun": """
[ "$1" = --help ] && exit
compgen -e >"$DOUBLES/variables"
printf '%s\\n' "$@" >"$DOUBLES/flags"
while [[ $1 == --* ]]; do shift; done
SLURM_PROCID=0 SLURM_NODEID=0 SLURMD_NODENAME=n0 "$@" </dev/null &
wait $!""",
    # The node: `-P -u -m MODULE FOLDER …`.
    "python": """
trap 'echo TERM; exit 143' TERM
echo $$ >"$DOUBLES/node"
cp "$5"/* "$DOUBLES"
[ -z "$UNTIL" ] || : >"$5/outputs.json"
printf 'up in %s\\n' "${5##*/}"
until [ -z "$UNTIL" ] || [ -e "$UNTIL" ]; do sleep 0.05; done
exit 5""",
    "squeue": """sed -n 's/--job-name=/7.4 /p' "$DOUBLES/flags"; echo '7.2 other'""",
    "scancel": """echo "$@" >"$DOUBLES/canceled"; kill "$(cat "$DOUBLES/node")" """,
}
ALLOCATION = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[0-2]",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_CONF": "/site.conf",
    "SLURM_MEM_PER_NODE": "1024",
}
"""Variables of an allocation that concern its steps."""
TASKS = ("NTASKS", "NTASKS_PER_NODE", "CPUS_PER_TASK", "GPUS_PER_TASK", "STEP_GRES", "TRES_PER_TASK")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of an allocation of three nodes."""
    programs = tmp_path / "programs"
    for name, body in PROGRAMS.items():
        executable(programs / name, f"#!/bin/bash\n{body}\n")
    monkeypatch.chdir(tmp_path)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "DOUBLES": str(tmp_path), "SRUN_CPUS_PER_TASK": "2"}
    for name, value in (variables | ALLOCATION | {f"SLURM_{name}": "2" for name in TASKS}).items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def start() -> Start:
    """Start `rdma-ray slurm run` as a process, with signals as a terminal's foreground has them."""
    words = [sys.executable, "-m", "workloads.cli", "slurm", "run", "--python", "python"]

    def heed() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def run(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
        pipe = subprocess.PIPE
        # `nohup` and a background job of a shell ignore some of them.
        return subprocess.Popen(
            [*words, *arguments], env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed
        )

    return run


@pytest.mark.parametrize(
    ("variables", "words", "says"),
    [
        ({}, "--time 30 -- x", "--time 30: this shell is in the allocation of job 7 (SLURM_JOB_ID), which cannot"),
        ({}, "-p gpu --exclusive --sbatch a-b=c -- x", "--exclusive --partition gpu --sbatch a-b=c: this shell is in"),
        ({}, "--gpus-per-node 8 -- x", "--gpus-per-node 8: "),
        ({}, "--detach -- x", "to submit another job, use `env -u SLURM_JOB_ID rdma-ray slurm run …`"),
        ({}, "--nodes 4 -- x", "--nodes 4: job 7 has 3 (n[0-2])"),
        ({"STATE": "TIMEOUT"}, "-- x", "cannot be used (SLURM_JOB_ID): job 7 reached its time limit"),
        ({"STATE": "COMPLETED"}, "", "job 7 is completed"),
        ({"STATE": "PENDING"}, "-- x", "job 7 waits"),
        ({"OWNER": "4711"}, "-- x", "job 7 belongs to user 4711"),
        ({"SLURM_JOB_ID": "7;x"}, "-- x", "SLURM_JOB_ID=7;x: '7;x' is not the ID of a Slurm job"),
        ({"SLURM_STEP_ID": "3", "SLURM_PROCID": "1"}, "-- x", "this is task 1 of step 7.3"),
        ({"RDMA_RAY_STACK": "{}"}, "-- x", "a Ray cluster already runs this command, in job 7"),
        ({}, "--nodes 1 --machine p7 -- x", "--machine p7: not in the catalog"),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_what_the_allocation_cannot_do_is_refused_and_nothing_is_submitted(
    variables: dict[str, str],
    words: str,
    says: str,
    dry: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["slurm", "run", *(["--dry-run"] if dry else []), *words.split()]) == Exit.ERROR
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""
    assert sorted(path.name for path in folder.iterdir()) == ["programs"]


def test_the_cluster_is_a_step_of_the_allocation(folder: Path, start: Start) -> None:
    """On all of its CPUs and GPUs: requests for the user's own tasks are not for this step."""
    names = set()
    for _ in range(2):
        process = start("--", "a b", "$HOME")
        said, notes = process.communicate(timeout=30)
        assert process.returncode == 5, notes
        assert notes == "job 7 is this allocation: the cluster is a step on 3 of its nodes\n"
        names.add(said)
    flags = (folder / "flags").read_text().splitlines()
    assert {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--nodelist=n0,n1,n2", "--input=none"} < set(flags)
    assert flags[-2:] == ["a b", "$HOME"]
    assert not [flag for flag in flags if flag.startswith(("--cpus-per-task", "--overlap"))]
    seen = {name for name in (folder / "variables").read_text().split() if name.startswith(("SLURM_", "SRUN_"))}
    assert seen == set(ALLOCATION)
    assert (folder / "nodes").read_text() == "n0 10.0.0.0\nn1 10.0.0.1\nn2 10.0.0.2\n"
    assert len(names) == 2, "each run has its own folder"
    assert all(name.startswith("up in job-7-") for name in names)
    assert not [*(folder / "rdma-ray-slurm").iterdir()]
    assert not (folder / "submitted").exists()


@pytest.mark.parametrize(
    ("details", "flags"),
    [
        ("JOB_GRES=gpu:4 Nodes=n[0-1] GRES=gpu:2(IDX:0-1) TresPerTask=gres:gpu:1", ["--gres=gpu:2"]),
        ("Nodes=n0 GRES=gpu:h200:3(IDX:0-2),nic:1 Nodes=n1 GRES=gpu:h200:8 TresPerTask=gres/gpu:1", ["--gres=gpu:3"]),
        ("JOB_GRES=gpu:3 Nodes=n0 GRES=gpu:2(IDX:0-1) Nodes=n1 GRES=gpu:1(IDX:0) TresPerJob=gres:gpu:3", []),
    ],
)
def test_gpus_that_the_allocation_has_by_task_are_requested_by_node(
    folder: Path, start: Start, details: str, flags: list[str]
) -> None:
    assert start("--", "x", DETAILS=details).communicate(timeout=30)[1].startswith("job 7 is this allocation")
    assert [flag for flag in (folder / "flags").read_text().splitlines() if flag.startswith("--gres")] == flags


def test_part_of_the_nodes_in_a_step_of_the_user(folder: Path, start: Start) -> None:
    """`srun --pty bash`: its CPUs are shared. The shell of salloc on a node, whose step has a special ID, has none."""
    start("--nodes", "2", "--", "x", SLURM_STEP_ID="0", SLURM_PROCID="0").communicate(timeout=30)
    flags = set((folder / "flags").read_text().splitlines())
    assert {"--nodes=2", "--ntasks=2", "--nodelist=n0,n1", "--overlap"} < flags
    start("--", "x", SLURM_STEP_ID=str(0xFFFFFFFA), SLURM_PROCID="0").communicate(timeout=30)
    assert "--overlap" not in (folder / "flags").read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signal_ends_the_step_gracefully(folder: Path, start: Start, number: signal.Signals) -> None:
    """srun itself would have the nodes killed, which then leave their folders. After SIGKILL the step ends as well."""
    process = start("--", "x", UNTIL=str(folder / "never"))
    wait_until(lambda: [*folder.glob("rdma-ray-slurm/job-7-*/outputs.json")], "the step runs", 20)
    assert [path.stat().st_mode & 0o777 for path in folder.glob("rdma-ray-slurm/*/token")] == [0o600]
    process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not [*(folder / "rdma-ray-slurm").iterdir()], "the folder is gone", 20)
    assert said.endswith("\nTERM\n")
    assert (folder / "canceled").read_text() == "--signal=TERM 7.4\n"


def test_second_interrupt_ends_srun(folder: Path, start: Start) -> None:
    """For nodes that do not answer the first one."""
    (folder / "programs" / "scancel").write_text('#!/bin/bash\n: >"$DOUBLES/canceled"\n')
    process = start("--", "x", UNTIL=str(folder / "end"))
    wait_until(lambda: [*folder.glob("rdma-ray-slurm/job-7-*/outputs.json")], "the step runs", 20)
    process.send_signal(signal.SIGINT)
    wait_until((folder / "canceled").exists, "scancel was called", 20)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == Exit.STOPPED
    (folder / "end").touch()


def test_without_a_command_the_cluster_stays(folder: Path, start: Start) -> None:
    """As `export RDMA_RAY_OUTPUTS=$(rdma-ray slurm run)`, which waits for the end of the output."""
    process = start(UNTIL=str(folder / "end"))
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.read()
    assert process.wait(30) == Exit.OK
    [outputs] = folder.glob("rdma-ray-slurm/job-7-*/outputs.json")
    assert said == f"{outputs}\n"
    second = start("--dry-run")
    assert second.communicate(timeout=30)[1] == ""
    third = start("--", "x")
    assert f"it starts when the cluster of {outputs} has ended" in third.communicate()[1]
    (folder / "end").touch()
    notes = process.stderr.read()  # of the step, to its end
    assert "up in job-7-" in notes
    assert "the cluster ends with the allocation, or by `scancel 7.4`" in notes
    assert not [*(folder / "rdma-ray-slurm").iterdir()]


def test_printed_script_runs_in_the_allocation(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", "run", "--dry-run", "--python", "python", "--", "x"]) == Exit.OK
    text = capfd.readouterr().out
    assert "#SBATCH" not in text
    (folder / "rdma-ray-slurm").mkdir(mode=0o700)
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:12], done.stderr) == (5, "up in job-7-", "")


def test_allocation_without_a_script_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", "attach", "7"]) == Exit.ERROR
    assert "job 7 is an allocation of salloc: its output is in its terminal" in capsys.readouterr().err
