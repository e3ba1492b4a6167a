"""Images written in Python: content of the archive, and digests that match."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import RAY
from tools.kubernetes import images
from tools.kubernetes.image_archive import File, Image, Layer, canonical, layer, write_archive
from tools.setup import ROOT


@pytest.fixture
def small(tmp_path: Path) -> Layer:
    """A layer with a program, a link and a text."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    files = [File("/usr/bin/program", source=program, executable=True), File("/bin", link="usr/bin")]
    return layer([*files, File("/etc/passwd", text="root:x:0:0::/:/bin/sh\n")], root=True)


def archive(*images: Image, without: frozenset[str] = frozenset()) -> dict[str, bytes]:
    stream = io.BytesIO()
    write_archive(stream, images, without=without)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        return {member.name: _content(tar, member) for member in tar.getmembers()}


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    opened = tar.extractfile(member)
    assert opened is not None
    return opened.read()


def blob(found: dict[str, bytes], described: dict[str, Any]) -> bytes:
    """Content of a descriptor, checked against its digest and size."""
    data = found["blobs/" + described["digest"].replace(":", "/")]
    assert len(data) == described["size"]
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == described["digest"]
    return data


def test_an_archive_leads_from_its_index_to_every_file(small: Layer) -> None:
    top = layer([File("/opt/text", text="here")])
    found = archive(Image(["ray:1", "example.com/ray:2"], [small, top], {"User": "1000"}))
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    first, second = json.loads(found["index.json"])["manifests"]
    names = [each["annotations"]["io.containerd.image.name"] for each in (first, second)]
    assert names == ["docker.io/library/ray:1", "example.com/ray:2"]
    assert first["digest"] == second["digest"]
    manifest = json.loads(blob(found, first))
    config = json.loads(blob(found, manifest["config"]))
    assert config["config"] == {"User": "1000"}
    assert config["rootfs"]["diff_ids"] == [each["digest"] for each in manifest["layers"]]
    with tarfile.open(fileobj=io.BytesIO(blob(found, manifest["layers"][0]))) as tar:
        members = {member.name: member for member in tar.getmembers()}
    assert members["usr/bin/program"].mode == 0o755
    assert members["bin"].linkname == "usr/bin"
    assert members["tmp"].mode == 0o1777
    assert (members["home/ray"].uid, members["home/ray"].gid) == (1000, 100)
    with tarfile.open(fileobj=io.BytesIO(blob(found, manifest["layers"][1]))) as tar:
        assert "opt/text" in tar.getnames()


def test_known_layer_is_left_out(small: Layer) -> None:
    top = layer([File("/opt/text", text="here")])
    known = Layer((), False, small.digest, small.size)
    found = archive(Image(["ray:1"], [known, top]), without=frozenset({small.digest}))
    assert "blobs/" + small.digest.replace(":", "/") not in found
    assert "blobs/" + top.digest.replace(":", "/") in found


def test_the_same_files_make_the_same_layer(small: Layer, tmp_path: Path) -> None:
    again = layer(reversed(small.files), root=True)
    assert again == small
    (tmp_path / "program").write_text("#!/bin/bash\n")
    assert layer(small.files, root=True).digest != small.digest


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        (f"rayproject/ray:{RAY}", f"docker.io/rayproject/ray:{RAY}"),
        ("localhost:5000/ray", "localhost:5000/ray:latest"),
        ("public.ecr.aws/a/b@sha256:0", "public.ecr.aws/a/b@sha256:0"),
        ("gke.gcr.io/pause:3.8@sha256:0", "gke.gcr.io/pause@sha256:0"),
    ],
)
def test_image_name_is_completed(name: str, whole: str) -> None:
    assert canonical(name) == whole


def test_project_change_during_a_run_does_not_reach_later_nodes(tmp_path: Path) -> None:
    """containerd refuses a layer with another digest."""
    (tmp_path / "workloads").mkdir()
    code = tmp_path / "workloads" / "code.py"
    code.write_text("before = 1\n")
    files = images.project(tmp_path)
    before = layer(files)
    code.write_text("after = 2\n")
    assert layer(files) == before
    assert layer(images.project(tmp_path)) != before


def test_the_projects_image_has_what_its_dockerfile_copies() -> None:
    places = {file.place for file in images.project(ROOT)}
    dockerfile = (ROOT / "images" / "Dockerfile").read_text()
    for folder in re.findall(r"^COPY --chown=ray (\w+) ", dockerfile, re.MULTILINE):
        assert any(f"/site-packages/{folder}/" in place for place in places), folder
    (command,) = [file for file in images.project(ROOT) if file.place.endswith("/bin/rdma-ray")]
    assert json.dumps(command.text)[1:-1].replace('\\"', '"') in dockerfile
