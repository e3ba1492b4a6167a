"""Container images as OCI archives, written in Python: layers, a configuration, a manifest, an index.

Formats: https://github.com/opencontainers/image-spec, v1.1: layer.md, config.md, manifest.md, image-layout.md (read
2026-11). Layers are plain tar, since nothing is sent anywhere.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tools.kubernetes.images_files import File

_FOLDERS = {"/tmp": (0o1777, 0), "/var/tmp": (0o1777, 0), "/home/ray": (0o755, 1000)}
_PLACES = (
    *("/dev", "/etc", "/home/ray", "/proc", "/root", "/run", "/sys", "/tmp", "/var/tmp"),
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"),
)


@dataclass(frozen=True)
class Layer:
    """The files of a layer, the digest of its tar and that tar's bytes; the tar itself is written when it is needed.

    `files` is empty for a layer that is known by its digest alone, because it is where it has to be already.
    """

    files: Sequence[File]
    root: bool
    digest: str
    size: int


@dataclass(frozen=True)
class Image:
    """An image under its names: layers from the lowest up, and the configuration's `config` (User, Env, Cmd …)."""

    names: Sequence[str]
    layers: Sequence[Layer]
    config: Mapping[str, Any] = field(default_factory=dict)


def layer(files: Iterable[File], *, root: bool = False) -> Layer:
    """A layer of these files; with `root` also of the folders that every system has."""
    chosen = tuple(sorted(files, key=lambda each: each.place))
    counting = _Counting()
    _write_layer(counting, chosen, root)
    return Layer(chosen, root, f"sha256:{counting.digest.hexdigest()}", counting.size)


def write_archive(stream: IO[bytes], images: Iterable[Image], *, without: frozenset[str] = frozenset()) -> None:
    """Write an archive with the images; layers whose digests are in `without` are there already, and stay out."""
    sent: set[str] = set(without)
    descriptors = []
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _blob(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for image in images:
            for layer in image.layers:
                if layer.digest not in sent:
                    sent.add(layer.digest)
                    info = tarfile.TarInfo(_place(layer.digest))
                    info.size = layer.size
                    tar.addfile(info)
                    _write_layer(_Within(tar), layer.files, layer.root)
            manifest = _manifest(tar, image, sent)
            for name in image.names:
                descriptors.append({**manifest, "annotations": {"io.containerd.image.name": canonical(name)}})
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": descriptors}
        _blob(tar, "index.json", json.dumps(index).encode())


def canonical(name: str) -> str:
    """An image's name as containerd keeps it, with registry and tag (distribution/reference: familiar names).

    Of a name with tag and digest the tag is dropped, as containerd does when it looks for one (ParseDockerRef there).
    """
    first, _, rest = name.partition("/")
    if not rest:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    path, last = name.rsplit("/", 1)
    if "@" in last:
        return f"{path}/{last.partition('@')[0].partition(':')[0]}@{last.partition('@')[2]}"
    return name if ":" in last else f"{name}:latest"


def _manifest(tar: tarfile.TarFile, image: Image, sent: set[str]) -> dict[str, Any]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = json.dumps(
        {
            "architecture": machine,
            "os": "linux",
            "config": dict(image.config),
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
        }
    ).encode()
    described = _described("application/vnd.oci.image.config.v1+json", config)
    layers = [
        {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.digest, "size": layer.size}
        for layer in image.layers
    ]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": described, "layers": layers}).encode()
    for blob in (config, manifest):
        digest = _digest(blob)
        if digest not in sent:
            sent.add(digest)
            _blob(tar, _place(digest), blob)
    return _described(kind, manifest)


def _described(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _place(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _blob(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _folders(tar: tarfile.TarFile, place: str, made: set[str]) -> None:
    for folder in [*reversed(Path(place).parents), Path(place)]:
        name = str(folder)
        if name == "/" or name in made:
            continue
        made.add(name)
        info = tarfile.TarInfo(name.lstrip("/"))
        info.type = tarfile.DIRTYPE
        info.mode, info.uid = _FOLDERS.get(name, (0o755, 0))
        info.gid = 100 if info.uid else 0
        tar.addfile(info)


def _add(tar: tarfile.TarFile, file: File) -> None:
    info = tarfile.TarInfo(file.place.lstrip("/"))
    info.mode = 0o755 if file.executable else 0o644
    if file.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, file.link
        tar.addfile(info)
    elif file.text is not None:
        data = file.text.encode()
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    else:
        assert file.source is not None
        seen = file.source.stat()
        # Compiled Python names its source's size and time, and is of no use beside another one.
        info.size, info.mtime = seen.st_size, int(seen.st_mtime)
        with file.source.open("rb") as data_here:
            tar.addfile(info, data_here)


class _Counting:
    """A stream to write to that only hashes and counts."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return len(data)


class _Within:
    """The data of the member of an archive whose header was written last. A tar's size needs no padding."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def write(self, data: bytes) -> int:
        assert self._tar.fileobj is not None
        self._tar.fileobj.write(data)
        self._tar.offset += len(data)
        return len(data)


def _write_layer(stream: _Counting | _Within, files: Sequence[File], root: bool) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        made: set[str] = set()
        for place in _PLACES if root else ():
            _folders(tar, place, made)
        for file in files:
            _folders(tar, str(Path(file.place).parent), made)
            _add(tar, file)
