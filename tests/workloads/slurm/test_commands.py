"""`rdma-ray slurm run` and `attach`: what they ask Slurm, show and return. Programs stand for Slurm's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.clone import executable
from workloads.cli import main
from workloads.exits import Exit
from workloads.slurm import commands

SHOWN = (
    "JobId=7 JobName=x UserId=me({uid}) JobState={state} Reason={reason} ExitCode={code} NodeList=n[0-1] StdOut={log}"
    " Power="
)


class Site:
    """A folder with sbatch, scontrol and sinfo on PATH. `states` are scontrol's answers, the last one repeated."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.log = folder, folder / "rdma ray-7.log"
        (folder / "cat").symlink_to("/bin/cat")
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.chdir(folder)
        monkeypatch.setattr(commands, "POLL_S", 0.0)
        monkeypatch.setattr(commands, "LOG_POLL_S", 0.01)
        monkeypatch.setattr(commands, "LAST_LINES_S", 0.05)
        self.program("sbatch", 'cat > submitted; echo "7;cluster"')
        self.program("sinfo", "echo n1")

    def program(self, name: str, body: str) -> None:
        executable(self.folder / name, f"#!/bin/bash\n{body}\n")

    def states(self, *states: str) -> None:
        """Each is `STATE REASON CODE`, or a line that is run first."""
        answers = []
        for index, each in enumerate(states):
            state, reason, code = each.split()
            shown = SHOWN.format(state=state, reason=reason, code=code, log=self.log, uid=os.getuid())
            answers.append(f'{index}) echo "{shown}" ;;')
        self.program(
            "scontrol",
            f"n=$(cat n 2>/dev/null || echo 0); [ $n -ge {len(states) - 1} ] || echo $((n + 1)) > n\n"
            f"case $n in {' '.join(answers)} esac",
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_job_is_followed_to_its_exit_code(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.log.write_text("one\ntwo \x1b]0;x\x07\nwithout an end")
    site.states("PENDING Resources 0:0", "RUNNING None 0:0", "COMPLETING None 3:0", "FAILED NonZeroExitCode 3:0")
    assert main(["slurm", "run", "--time", "5", "--", "python", "x.py"]) == Exit.WRONG_DATA
    said = capsys.readouterr()
    assert said.out == "one\ntwo \\x1b]0;x\\x07\nwithout an end\n"
    notes = said.err.splitlines()
    assert notes[0].startswith("job 7: 2 nodes; `rdma-ray slurm attach 7` follows it")
    assert notes[1:3] == ["job 7 waits: too few nodes are free", "job 7 runs on n[0-1]"]
    assert notes[-1] == "job 7 failed with exit code 3"
    submitted = (site.folder / "submitted").read_text()
    assert main(["slurm", "run", "--time", "5", "--dry-run", "--", "python", "x.py"]) == Exit.OK
    assert submitted == capsys.readouterr().out
    assert (site.folder / "rdma-ray-slurm").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("state", "code", "says"),
    [
        ("COMPLETED None 0:0", 0, "is completed"),
        ("CANCELLED None 0:15", 130, "is cancelled"),
        ("FAILED None 0:9", 137, "failed with exit code 137"),
        ("TIMEOUT TimeLimit 0:15", 1, "reached its time limit (--time)"),
        ("NODE_FAIL NodeDown 1:0", 1, "ended, because a node failed: n1"),
        ("OUT_OF_MEMORY OutOfMemory 0:125", 1, "used more memory than it has (--memory)"),
    ],
)
def test_every_end_has_words_and_a_code(
    site: Site, state: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.log.write_text("x\n")
    site.states(state)
    assert main(["slurm", "attach", "7"]) == code
    assert capsys.readouterr().err == f"job 7 {says}\n"


def test_without_a_command_the_outputs_end_the_wait(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = site.folder / "rdma-ray-slurm" / "job-7" / "outputs.json"
    outputs.parent.mkdir(parents=True)
    outputs.touch()
    site.states("RUNNING None 0:0")
    assert main(["slurm", "run"]) == Exit.OK
    said = capsys.readouterr()
    assert said.out == f"{outputs}\n"
    assert f"export RDMA_RAY_OUTPUTS={outputs}" in said.err


def test_interruption_leaves_the_job(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.states("RUNNING None 0:0")

    def interrupt(_: commands.GrowingLog) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.GrowingLog, "new", interrupt)
    assert main(["slurm", "run", "--", "x"]) == Exit.STOPPED
    assert "rdma-ray slurm attach 7 follows it, scancel 7 ends it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "body", "words", "says"),
    [
        ("sbatch", None, ["run"], "no sbatch on PATH: run this on a login node"),
        ("sbatch", "echo 'error: invalid partition' >&2; exit 1", ["run"], "sbatch refused: error: invalid partition"),
        ("sbatch", "echo hello", ["run"], "'hello' is not the ID of a Slurm job"),
        ("scontrol", "echo 'Invalid job id specified' >&2; exit 1", ["attach", "7"], "Invalid job id specified"),
        ("scontrol", "echo what", ["attach", "7"], "scontrol's answer on job 7 cannot be read"),
        ("scontrol", "", ["attach", "7;x"], "'7;x' is not the ID of a Slurm job"),
        ("scontrol", "", ["run", "--storage", "sbatch"], "--storage sbatch: File exists"),
    ],
)
def test_errors_name_the_program_or_the_option(
    site: Site, name: str, body: str | None, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if body is None:
        (site.folder / name).unlink()
    else:
        site.program(name, body)
    assert main(["slurm", *words]) == Exit.ERROR
    assert says in capsys.readouterr().err
