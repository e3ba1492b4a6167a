"""The sbatch file: options that are refused, and what its shell does. Programs stand for Slurm's, docker and podman."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clone import executable, wait_until
from workloads.cli import main
from workloads.exits import Exit
from workloads.slurm.options import SlurmOptions
from workloads.slurm.script import known_fabric, script

ODD = ("python", "a b", "$HOME", "it's", 'say "x"', "two\nlines", "*", "ünï")
SRUN = """
[ "$1" = --help ] && { echo "$SRUN_HELP"; exit; }
printf '%s\\n' "$@" > "$DOUBLES/srun"
while [[ $1 == --* ]]; do shift; done
code=0
for id in 0 1; do SLURM_PROCID=$id SLURM_NODEID=$id SLURMD_NODENAME=n$id "$@" || code=$?; done
exit $code
"""
ENGINE = """
printf '%q ' "$@" >> "$DOUBLES/${0##*/}"; echo >> "$DOUBLES/${0##*/}"
case $1 in image) exit "${ABSENT-0}" ;; run) exit "${CODE-0}" ;; esac
"""
PYTHON = """
printf '%s\\0' "$@" > "$DOUBLES/python-$SLURM_NODEID"
[ ! -e "$5" ] || : > "$DOUBLES/folder-$SLURM_NODEID"
[ -z "$WAITS" ] || { trap 'exit 143' TERM; sleep 60 & wait; }
exit "${CODE-0}"
"""
PROGRAMS = (
    "bash",
    "grep",
    "gzip",
    "head",
    "id",
    "mkdir",
    "od",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sleep",
    "stat",
    "tar",
    "tr",
)

Place = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Run a script as Slurm does, with programs of the test on a PATH without docker and podman."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in (
        "mkdir",
        "od",
        "tr",
        "sed",
        "rm",
        "tar",
        "head",
        "id",
        "seq",
        "grep",
        "sleep",
        "gzip",
        "bash",
        "stat",
        "rmdir",
    ):
        (programs / name).symlink_to(next(path for path in (f"/bin/{name}", f"/usr/bin/{name}") if Path(path).exists()))
    show = 'for each in 0 1; do echo "NodeName=n$each Arch=x NodeAddr=10.0.0.$each NodeHostName=n$each"; done'
    bodies = {"scontrol": show, "srun": SRUN, "python": PYTHON}

    def run(
        command: tuple[str, ...] = ("true",), engine: str = "", image: str | None = None,
        mount: tuple[str, ...] = (), **variables: str,
    ) -> subprocess.Popen[str]:  # fmt: skip
        for name, body in {**bodies, **({engine: ENGINE} if engine else {})}.items():
            executable(programs / name, f"#!/bin/bash\n{body}\n")
        options = SlurmOptions(
            machine="p5.48xlarge", storage=str(tmp_path / "sto rage"), python="python", image=image, mount=mount
        )
        own = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "n0"}
        environment = {"PATH": str(programs), "DOUBLES": str(tmp_path), **own, **variables}
        return subprocess.Popen(
            ["bash", "-c", script(options, command)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "0"], "--nodes 0: input should be greater than or equal to 1"),
        (["--time", "1h"], "--time 1h: write MINUTES, HH:MM:SS or D-HH:MM:SS"),
        (["--partition", "a b"], "--partition a b: a line of an sbatch file has values without spaces and quotes only"),
        (["--machine", "p7"], "--machine p7: not in the catalog; choose from a3-ultragpu-8g"),
        (["--sbatch", "comment=a b"], "write reservation=NAME"),
        (["--sbatch", "nodes=3"], "--sbatch nodes=3: nodes is set by the script"),
        (["--sbatch", "array=1-3"], "array is set by the script"),
        (["--storage", "~/x"], "~/x is not expanded in a script"),
        (["--storage", "a\nb"], "'a\\nb' contains a character that no line of a script can hold"),
        (["--mount", "data"], "data is not a mount"),
        (["--image", "no.tar.gz"], "--image no.tar.gz: no such file"),
        (["--", ""], "COMMAND is empty"),
        (["--", "a\0b"], "NUL"),
    ],
)
def test_wrong_options_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, command = (words, []) if "--" not in words else ([], words)
    assert main(["slurm", "run", "--dry-run", *options, *command]) == Exit.ERROR
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""


def test_dry_run_prints_the_whole_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = "-N 4 -t 30 --gpus-per-node 8 --exclusive --sbatch comment=x -- a"
    assert main(["slurm", "run", "--dry-run", *shlex.split(words)]) == Exit.OK
    said = capsys.readouterr().out
    lines = [line.removeprefix("#SBATCH --") for line in said.splitlines() if line.startswith("#SBATCH")]
    assert lines == [
        *("job-name=rdma-ray", "nodes=4", "ntasks-per-node=1", "gpus-per-node=8", "time=30"),
        *("output=rdma-ray-%j.log", "exclusive", "no-requeue", "comment=x"),
    ]
    assert said.startswith("#!/bin/bash\n#SBATCH")
    assert "\ncommand=(a)\n" in said
    assert main(["slurm", "run", "--dry-run", "--machine", "p5en.48xlarge"]) == Exit.OK
    assert "#SBATCH --gpus-per-node=8\n" in capsys.readouterr().out


def test_each_node_gets_the_command_as_it_was_written(place: Place, tmp_path: Path) -> None:
    process = place(ODD)
    output, _ = process.communicate()
    assert (process.returncode, output) == (0, "")
    for node in "01":
        words = (tmp_path / f"python-{node}").read_text().split("\0")[:-1]
        assert words[:4] == ["-P", "-u", "-m", "workloads.slurm.node"]
        fabric = json.dumps(known_fabric("p5.48xlarge"))
        assert words[4:] == [str(tmp_path / "sto rage" / "job-7"), "600", "p5.48xlarge", fabric, *ODD]
    assert not [*(tmp_path / "sto rage").iterdir()], "the job's folder goes with the job"


def test_folder_goes_with_the_head(place: Place, tmp_path: Path) -> None:
    """Not only when srun ends, which waits for a host without power until Slurm kills the job. Here node 1 is late."""
    place().communicate()
    assert [path.name for path in tmp_path.glob("folder-*")] == ["folder-0"]


def test_signal_ends_the_nodes_first_and_removes_the_token(place: Place, tmp_path: Path) -> None:
    process = place(WAITS="1")
    token = tmp_path / "sto rage" / "job-7" / "token"
    wait_until((tmp_path / "python-0").exists, "the node starts", 10)
    assert (token.stat().st_mode & 0o777, len(token.read_text())) == (0o600, 64)
    assert (token.parent / "nodes").read_text() == "n0 10.0.0.0\nn1 10.0.0.1\n"
    # As Slurm: the whole job gets it.
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(10) == 143
    assert not token.parent.exists()


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("absent", ["0", "1"])
def test_archive_is_loaded_where_it_is_absent(place: Place, tmp_path: Path, engine: str, absent: str) -> None:
    archive = tmp_path / "ray.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        content = b'[{"Config":"c.json","RepoTags":["site/ray:1"],"Layers":[]}]'
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(content)
        opened.addfile(entry, io.BytesIO(content))
    visible = {"CUDA_VISIBLE_DEVICES": "2,5", "SLURM_CPUS_ON_NODE": "4"}
    process = place(engine=engine, image=str(archive), mount=("/data:/d",), ABSENT=absent, CODE="3", **visible)
    output, _ = process.communicate()
    assert process.returncode == 3, output
    calls = (tmp_path / engine).read_text().splitlines()
    kinds = ["image", *(["load"] if absent == "1" else []), "run", "rm"]
    assert [call.split()[0] for call in calls] == kinds * 2
    runs = [call for call in calls if call.startswith("run ")]
    for node, call in enumerate(runs):
        [name] = re.findall(rf"--name=(rdma-ray-7-{node}-[0-9a-f]{{8}}) ", call)
        assert calls[-1 if node else len(kinds) - 1] == f"rm --force {name} "
        for flag in ("--network=host", "--volume=/data:/d", "--env=SLURM_CPUS_ON_NODE", "--env=CUDA_VISIBLE_DEVICES=0"):
            assert flag in call
        gpus = ['--gpus=\\"device=2\\,5\\"'] if engine == "docker" else [f"--device=nvidia.com/gpu={n}" for n in (2, 5)]
        assert all(flag in call for flag in gpus)
        assert " site/ray:1 python -P -u -m workloads.slurm.node " in call


def test_image_is_pulled_where_it_is_absent(place: Place, tmp_path: Path) -> None:
    assert place(engine="docker", image="site/ray:2", ABSENT="1").wait(20) == 0
    assert (tmp_path / "docker").read_text().splitlines()[1] == "pull site/ray:2 "


def test_pyxis_is_used_where_srun_has_it(place: Place, tmp_path: Path) -> None:
    process = place(image="site/ray:2", mount=("/data",), SRUN_HELP="  --container-image=[USER@][REGISTRY#]IMAGE")
    assert process.wait(20) == 0
    flags = (tmp_path / "srun").read_text().splitlines()
    assert "--container-image=site/ray:2" in flags
    [mounts] = [flag for flag in flags if flag.startswith("--container-mounts=")]
    assert mounts.endswith(",/data:/data")
    assert (tmp_path / "python-1").exists(), "no docker around it"


def test_image_without_an_engine_is_an_error(place: Place) -> None:
    process = place(image="site/ray:2")
    output, _ = process.communicate()
    assert process.returncode == 1
    assert "n0 has neither pyxis nor docker nor podman, which --image needs" in output
