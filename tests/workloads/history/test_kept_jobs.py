"""Reading kept jobs: hostile records in a folder, and the same record from buckets and a claim."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs
from infra.terminal import UNPRINTABLE
from tests.clone import executable
from tests.hostile import ESCAPES, bounded_time
from tests.workloads.stack_outputs import LOCAL, outputs
from workloads.cli import main
from workloads.client import claim
from workloads.client.claim import ClaimStore, manifest
from workloads.client.kept_jobs import KeptJob, kept_job, kept_jobs, place_of_outputs
from workloads.exits import Exit, WorkloadError
from workloads.history.record import END, END_SCHEMA, JOB, LARGEST_FILE, SCHEMA, line, part

ID = "run-20261128-190000-a1b2c3"
ABOUT: dict[str, Any] = {
    "schema": SCHEMA,
    "id": ID,
    "cluster": "gone",
    "machine": None,
    "metadata": {"workload": "run", "name": "train.py"},
    "started": 1.7e9,
    "days": 30,
}
LOG = b"first\nsecond \xff\nthird"
FINISH: dict[str, Any] = {
    "schema": END_SCHEMA,
    "id": ID,
    "ended": 1.7e9 + 5,
    "bytes": len(LOG),
    "cut": False,
    "status": "FAILED",
    "exit_code": 3,
}
FILES = {END: line(FINISH), JOB: line(ABOUT), part(0): LOG[:8], part(1): LOG[8:]}


def write(storage: Path, files: dict[str, bytes] = FILES, folder: str = ID) -> Path:
    (path := storage / "rdma-ray" / "jobs" / folder).mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def shown(place: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["logs", ID, "--from", place])
    said, errors = capsys.readouterr()
    return code, said, errors


def same_as_written(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, errors = shown(place, capsys)
    assert (code, said) == (3, "first\nsecond \ufffd\nthird\n"), errors
    assert "in part" not in errors
    assert main(["list", "--from", place, "--json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["from"] == place
    row = {"id": ID, "kind": "run", "name": "train.py", "status": "FAILED", "exit_code": 3}
    assert document["jobs"] == [row | {"started": 1.7e9, "seconds": 5.0}]


def test_record_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    same_as_written(str(tmp_path), capsys)
    assert main(["logs", "another", "--from", str(tmp_path)]) == Exit.ERROR
    assert "does not keep a job 'another'" in capsys.readouterr().err
    assert main(["list", "--from", str(tmp_path / "absent")]) == Exit.OK


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (JOB, b"{"),
        (JOB, b"[" * 50_000),
        (JOB, line(ABOUT | {"schema": "rdma-ray/kept-job/2"})),
        (JOB, line(ABOUT | {"id": ["x"]})),
        (JOB, line(ABOUT | {"id": "another"})),
        (JOB, line(ABOUT) + b" " * LARGEST_FILE),
    ],
)
def test_what_is_not_a_record_is_not_a_job(name: str, content: bytes, tmp_path: Path) -> None:
    write(tmp_path, FILES | {name: content})
    with bounded_time(), pytest.raises(WorkloadError, match="does not keep"):
        kept_job(place_of_outputs(at(tmp_path)), ID)


@pytest.mark.parametrize(
    "end",
    [
        {"exit_code": 10**30, "status": "SUCCEEDED"},
        {"status": ESCAPES, "ended": "NaN"},
        {"bytes": "all", "cut": 0},
        {"ended": 1e400, "exit_code": True},
    ],
)
def test_hostile_end_shows_no_control_character(
    end: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = ABOUT | {
        "metadata": {"workload": ESCAPES, "name": ESCAPES, "n": 3},
        "cluster": [ESCAPES],
        "started": -1e300,
    }
    log = f'{ESCAPES}\n@rdma-ray {{"kind": "result", "result": 3}}\n'.encode()
    write(tmp_path, FILES | {JOB: line(about), END: json.dumps(FINISH | end).encode(), part(0): log})
    for command in (["logs", ID], ["logs", ID, "--json", "-"], ["list"], ["attach", ID]):
        main([*command, "--from", str(tmp_path)])
        captured = capsys.readouterr()
        assert not UNPRINTABLE.search(captured.out.replace("\x1b[0m", "") + captured.err), command


@pytest.mark.parametrize("name", [JOB, END, part(0)])
def test_links_and_pipes_in_a_record_are_not_read(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "storage")
    (tmp_path / "outside").write_bytes(FILES[name])
    for kind in ("link", "pipe"):
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / "outside") if kind == "link" else os.mkfifo(folder / name)
        place = place_of_outputs(at(tmp_path / "storage"))
        if name == JOB:
            assert kept_jobs(place) == []
        else:
            found = kept_job(place, ID)
            assert (found.job.status == "UNKNOWN") is (name == END)
            assert not found.whole
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert kept_jobs(place) == []


def at(storage: Path | str, **changes: Any) -> Outputs:
    return outputs(storage={"path": str(storage), **changes})


def test_record_without_an_end_is_unknown() -> None:
    found = KeptJob.of({JOB: FILES[JOB], part(0): b"x"})
    assert found is not None
    assert (found.job.status, found.job.terminal, found.job.exit_code, found.whole) == ("UNKNOWN", True, None, False)


def test_stack_without_storage_and_place_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(LOCAL))
    assert main(["list", "--ended", "--outputs", str(file)]) == Exit.ERROR
    assert "set storage.bucket" in capsys.readouterr().err
    for place in ("gs://", "gs://a b", "gs://bucket/../x", "s3://bucket/*", "claim:x", "ftp://x", "claim:a/b/c"):
        assert main(["list", "--from", place]) == Exit.ERROR
        assert "is not a storage" in capsys.readouterr().err


COMMAND = """#!{python} -IS
import os, pathlib, shutil, sys
root, words = pathlib.Path({root!r}), sys.argv[1:]
with open(root / "calls", "a") as calls:
    print(*words[:3], file=calls)
{body}
"""
GCLOUD = """
assert words[:2] == ["storage", "cat"] and len(words) == 3
found = sorted(root.glob("bucket/" + words[2].removeprefix("gs://bucket/")))
if not found:
    sys.exit("ERROR: (gcloud.storage.cat) The following URLs matched no objects or files:\\n" + words[2])
for path in found:
    sys.stdout.buffer.write(path.read_bytes())
"""
AWS = """
import fnmatch, json
if words[0] == "s3api":
    prefix = words[words.index("--prefix") + 1]
    files = (path for path in (root / "bucket").rglob("*") if path.is_file())
    found = [path for path in files if str(path.relative_to(root / "bucket")).startswith(prefix)]
    print(json.dumps([path.stat().st_size for path in found] or None))
else:
    assert words[:3] == ["s3", "cp", "--recursive"]
    source = root / "bucket" / words[-2].removeprefix("s3://bucket/")
    only = [word.removeprefix("--include=") for word in words if word.startswith("--include=")]
    for path in source.rglob("*"):
        name = str(path.relative_to(source))
        if path.is_file() and (not only or any(fnmatch.fnmatch(name, each) for each in only)):
            target = pathlib.Path(words[-1]) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
"""
KUBECTL = """
import json, subprocess
if "create" in words:
    shutil.copy(words[-1].removeprefix("--filename="), root / "manifest.json")
elif "get" in words:
    name = json.loads((root / "manifest.json").read_text())["metadata"]["name"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    print(json.dumps({"kind": "List", "items": [{"metadata": {"name": name + "-x"}, "status": ready}]}))
elif "exec" in words:
    script = [word.replace("/storage", str(root / "bucket")) for word in words[words.index("--") + 1 :]]
    sys.exit(subprocess.run(script).returncode)
"""


@pytest.mark.parametrize(
    ("place", "program", "body"),
    [
        ("gs://bucket", "gcloud", GCLOUD),
        ("s3://bucket", "aws", AWS),
        ("claim:team/shared", "kubectl", KUBECTL),
    ],
)
def test_record_in_a_bucket_and_on_a_claim(
    place: str,
    program: str,
    body: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin" / program, COMMAND.format(python=sys.executable, root=str(tmp_path), body=body))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert main(["list", "--from", place, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["jobs"] == []
    write(tmp_path / "bucket")
    same_as_written(place, capsys)
    assert main(["logs", "another", "--from", place]) == Exit.ERROR
    assert "does not keep" in capsys.readouterr().err
    if program == "kubectl":
        calls = (tmp_path / "calls").read_text().splitlines()
        assert all(call.startswith("--namespace=team ") for call in calls), "the current context"
        assert sum(" create " in call for call in calls) == sum(" delete job" in call for call in calls) == 4


def test_bucket_with_too_much_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin" / "aws", COMMAND.format(python=sys.executable, root=str(tmp_path), body=AWS))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with (write(tmp_path / "bucket") / part(2)).open("wb") as file:
        file.truncate(2**30)
    assert shown("s3://bucket", capsys)[0] == Exit.ERROR
    assert " s3 cp" not in (tmp_path / "calls").read_text()


def test_pod_that_reads_a_claim_has_no_rights_and_ends() -> None:
    spec = manifest("read", "shared", "an/image")["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (900, 60)
    pod = spec["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    [container] = pod["containers"]
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [True]


def test_archive_of_a_hostile_pod() -> None:
    """Names that leave the folder, links and large documents are left out; what is no archive is one clear error."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in (f"../{ID}/{JOB}", f"/{JOB}", f"{ID}/../{JOB}", f"{ID}/key", f"{ID}/{JOB}"):
            (member := tarfile.TarInfo(name)).size = len(FILES[JOB])
            archive.addfile(member, io.BytesIO(FILES[JOB]))
        (link := tarfile.TarInfo(f"{ID}/{END}")).type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert claim._unpacked(packed.getvalue()) == {ID: {JOB: FILES[JOB]}}
    with pytest.raises((tarfile.TarError, ValueError)):
        claim._unpacked(b"\xff" * 2000)


def test_claim_of_the_outputs_uses_their_image_and_cluster() -> None:
    found = place_of_outputs(at("/shared", source="claim:team/shared", image="an/image"))
    assert isinstance(found, ClaimStore)
    assert (found.namespace, found.claim) == ("team", "shared")
    assert found.outputs is not None
    assert found.outputs.storage is not None
