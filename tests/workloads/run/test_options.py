"""How the user's command starts, its variables and its packages; what does not work is refused with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile import bounded_time, special_files
from workloads.exits import WorkloadError
from workloads.run import requirements, variables
from workloads.run.entry import Entry, entry_of


@pytest.mark.parametrize(
    ("command", "nodes", "per_node", "expected"),
    [
        (
            "python train.py --nnodes 4",
            None,
            None,
            Entry("driver", ("python", "train.py", "--nnodes", "4"), None, None),
        ),
        ("python train.py", 2, None, Entry("ranks", ("python", "train.py"), 2, None)),
        ("python -m torchrun", 2, 3, Entry("ranks", ("python", "-m", "torchrun"), 2, 3)),
        ("torchrun train.py", None, None, Entry("torchrun", ("torchrun", "train.py"), 1, None)),
        ("/opt/bin/torchrun --nnodes=2 -m pkg", None, None, Entry("torchrun", ("torchrun", "-m", "pkg"), 2, None)),
        (
            "python3.12 -u -m torch.distributed.run --nnodes 2:2 --nproc_per_node 4 t.py --nnodes 9",
            2,
            None,
            Entry("torchrun", ("torchrun", "t.py", "--nnodes", "9"), 2, 4),
        ),
        (
            "torchrun --standalone --nproc=auto --tee 3 -r 1 --role --no-python x",
            None,
            8,
            Entry("torchrun", ("torchrun", "--tee", "3", "-r", "1", "--role", "--no-python", "x"), 1, 8),
        ),
    ],
)
def test_torchrun_s_own_counts_become_the_gang_s(
    command: str, nodes: int | None, per_node: int | None, expected: Entry
) -> None:
    assert entry_of(tuple(command.split()), nodes, per_node) == expected


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([], "no command"),
        ([""], "no command"),
        (["python train.py"], "remove the quotes"),
        (["A=1", "python"], "--env A=1"),
        (["x", "a\0b"], "NUL"),
        (["x", "\udcff"], "not UTF-8"),
        (["torchrun", "--nnodes", "2"], "without a script"),
        (["torchrun", "--rdzv_endpoint=h:1", "t.py"], "chooses the rendezvous"),
        (["torchrun", "--master-po", "1", "t.py"], "chooses the rendezvous"),
        (["torchrun", "--max-restarts=3", "t.py"], "before the `--`"),
        (["torchrun", "--nnodes", "1:4", "t.py"], "write --nnodes 4"),
        (["torchrun", "--nnodes", "two", "t.py"], "at least 1"),
        (["torchrun", "--nproc-per-node", "cpu", "t.py"], "at least 1"),
        (["torchrun", "--nproc-per-node=9999999999999", "t.py"], "at least 1"),
        (["torchrun", "--nnodes", "3", "t.py"], "--nodes 2 and torchrun's --nnodes 3 contradict"),
        (["torchrun", "--standalone", "t.py"], "one node, but the run has 2"),
        (["python", "-m", "torch.distributed.launch", "t.py"], "write torchrun"),
    ],
)
def test_a_command_that_cannot_start_is_refused(command: list[str], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        entry_of(tuple(command), 2, None)


def test_ranks_per_node_need_a_number_of_nodes() -> None:
    with pytest.raises(WorkloadError, match="add --nodes 1"):
        entry_of(("python",), None, 2)


@given(st.lists(st.one_of(st.sampled_from(["torchrun", "python", "-m", "torch.distributed.run", "--"]), st.text())))
def test_any_command_is_accepted_or_refused(words: list[str]) -> None:
    try:
        entry_of(tuple(words), None, None)
    except WorkloadError as error:
        str(error).encode("utf-8", "backslashreplace")


def read(*assignments: str, file: Path | None = None, secret: tuple[str, ...] = (), **own: str) -> variables.Variables:
    return variables.read(assignments, file, secret, own)


def test_variables_come_from_options_before_the_file_and_secrets_from_the_environment_first(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_bytes(b"\xef\xbb\xbf# comment\n\nexport A='a b'\nB=\"=\"\r\nC =c\nHF_TOKEN=filed\nWANDB_API_KEY=key\n")
    found = read("B=2", "D=", file=file, secret=("HF_TOKEN", "WANDB_API_KEY"), HF_TOKEN="own")
    assert found.plain == {"A": "a b", "B": "2", "C": "c", "D": ""}
    assert found.secrets == {"HF_TOKEN": "own", "WANDB_API_KEY": "key"}
    assert "own" not in repr(found)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("A", "NAME=VALUE"),
        ("1A=2", "letters"),
        ("=2", "letters"),
        ("É=2", "letters"),
        ("A=\0", "NUL"),
        ("A=\udcff", "not UTF-8"),
        ("RANK=0", "the launcher sets it"),
        ("MASTER_ADDR=x", "the launcher sets it"),
        ("PET_NNODES=2", "the launcher sets it"),
        ("CUDA_VISIBLE_DEVICES=0", "Ray assigns the GPUs"),
        ("RAY_ADDRESS=auto", "its own cluster"),
        ("RAY_AUTH_TOKEN=x", "its own cluster"),
        ("RDMA_RAY_NODE=x", "this project's processes"),
        ("HF_TOKEN=x", "use --secret HF_TOKEN"),
        ("MY_PASSWORD=123456", "use --secret MY_PASSWORD"),
    ],
)
def test_variables_that_break_the_run_or_show_a_secret_are_refused(assignment: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says) as caught:
        read(assignment)
    assert "123456" not in str(caught.value)


def test_names_that_only_sound_like_secrets_are_accepted() -> None:
    assert len(read("TOKENIZERS_PARALLELISM=false", "MAX_TOKENS=2048", "RAY_DEDUP_LOGS=1").plain) == 3


def test_a_secret_has_a_value_and_is_given_once() -> None:
    with pytest.raises(WorkloadError, match="HF_TOKEN is not set in this environment"):
        read(secret=("HF_TOKEN",), HF_TOKEN="")
    with pytest.raises(WorkloadError, match="only one of them"):
        read("A=1", secret=("A",), A="2")
    with pytest.raises(WorkloadError, match="protected"):
        read(secret=("RAY_AUTH_TOKEN",), RAY_AUTH_TOKEN="x")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfeA\0=\0001\0", "not UTF-8 at byte 0"),
        (b"A=1\nsecret without a name\n", "line 2 is not NAME=VALUE"),
        (b"A=\0\n", "NUL"),
        (b"RANK=1\n", "protected"),
        (b"A=1\n" * 300_000, "more than 1 MiB"),
    ],
)
def test_a_file_of_variables_that_is_none_is_refused_without_its_content(
    tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "env"
    file.write_bytes(content)
    with bounded_time(), pytest.raises(WorkloadError, match=says) as caught:
        read(file=file)
    assert "without a name" not in str(caught.value)


def test_special_files_are_no_files_of_variables_or_packages(tmp_path: Path) -> None:
    for name, path in special_files(tmp_path).items():
        for reader in (lambda path: read(file=path), lambda path: requirements.read((), path)):
            # A pipe without a writer is an empty file.
            with bounded_time(), nullcontext() if name == "pipe" else pytest.raises(WorkloadError):
                reader(path)


def test_requirements_reach_the_nodes_as_given(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("# all\n--index-url https://host/simple\ntorch>=2 # the image's\neinops \\\n  ==0.8\n")
    lines = ["--index-url https://host/simple", "torch>=2", "einops    ==0.8"]
    assert requirements.read(("a[b]>1; python_version>'3'", "${DIR}/x.whl"), file) == [
        "a[b]>1; python_version>'3'",
        "${DIR}/x.whl",
        *lines,
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torch==2.4", "the image provides torch"),
        ("Torch<3", "the image provides torch"),
        ("ray[serve]~=2.1", "the image provides ray"),
        ("nvidia_nccl.cu12==2", "the image provides nvidia-nccl-cu12"),
        ("torch @ https://host/torch.whl", "the image provides torch"),
        ("-r other.txt", "only packages and their indexes"),
        ("-e .", "only packages and their indexes"),
        ("--prefix /s3cret", "only packages and their indexes"),
        ("--pre --config-settings s3cret", "only packages and their indexes"),
        ("machine s3cret.example login me", "write a package"),  # a link to ~/.netrc
        ("./x.whl", "goes into the working directory"),
        ("a b", "write a package"),
        ("a==1 --hash=sha256:00", "hash"),
        ("--index-url https://me:pass@host/", "password"),
        ("a @ https://pass@host/a.whl", "password"),
    ],
)
def test_requirements_that_do_not_work_on_a_cluster_are_refused(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"einops \\\n  ==0.8\n{line}\n")
    with pytest.raises(WorkloadError, match=says) as caught:
        requirements.read((), file)
    assert str(caught.value).startswith(f"--requirements {file}: line 3: ")
    assert "pass@" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def wheel(folder: Path, name: str, needs: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        about = f"{name}-1.0.dist-info"
        file.writestr(f"{name}.py", "")
        file.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {needs}\n"
        )
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def test_pip_does_not_replace_what_the_image_provides(tmp_path: Path) -> None:
    """An index offers another torch, and one package needs it: pip refuses that package, and installs the other."""
    printed = subprocess.check_output([sys.executable, "-P", "-c", requirements.PROGRAM], text=True)
    own = requirements.pins(printed)
    assert any(pin.startswith("torch==") for pin in own)
    for name, needs in {"fits": "torch>=2", "clashes": "torch==1.0", "torch": "fits"}.items():
        wheel(tmp_path, name, needs)
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--find-links", str(tmp_path), *own]
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    fits = subprocess.run([*pip, "fits"], capture_output=True, text=True, check=True, env=quiet)
    assert "Would install fits-1.0\n" in fits.stdout
    clashes = subprocess.run([*pip, "clashes"], capture_output=True, text=True, check=False, env=quiet)
    assert clashes.returncode
    assert "ResolutionImpossible" in clashes.stderr
