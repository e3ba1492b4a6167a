"""Container images as OCI archives, written in Python: layers, a configuration, a manifest, an index.

Formats: https://github.com/opencontainers/image-spec, v1.1: layer.md, config.md, manifest.md, image-layout.md
(read 2026-11). Layers are not compressed.
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

# Mode, user and group of the folders that every system has.
_ROOT_FOLDERS = {
    **dict.fromkeys(("/dev", "/etc", "/proc", "/root", "/run", "/sys"), (0o755, 0, 0)),
    **dict.fromkeys(("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"), (0o755, 0, 0)),
    **dict.fromkeys(("/tmp", "/var/tmp"), (0o1777, 0, 0)),
    "/home/ray": (0o755, 1000, 100),
}


@dataclass(frozen=True)
class File:
    """File of an image: its path, and a file to copy, the target of a link, or text."""

    place: str
    source: Path | None = None
    link: str | None = None
    text: str | None = None
    executable: bool = False


@dataclass(frozen=True)
class Layer:
    """Files of a layer, and digest and size in bytes of its tar, which is written on demand.

    `files` is empty for a layer that containerd has.
    """

    files: Sequence[File]
    root: bool
    digest: str
    size: int


@dataclass(frozen=True)
class Image:
    """An image: names, layers from the lowest up, and the configuration's `config` (User, Env, Cmd …)."""

    names: Sequence[str]
    layers: Sequence[Layer]
    config: Mapping[str, Any] = field(default_factory=dict)


def layer(files: Iterable[File], *, root: bool = False) -> Layer:
    """Return a layer of these files; `root` adds the folders that every system has."""
    chosen = tuple(sorted({file.place: file for file in files}.values(), key=lambda each: each.place))
    counter = _Counter()
    _write_layer(counter, chosen, root)
    return Layer(chosen, root, f"sha256:{counter.digest.hexdigest()}", counter.size)


def write_archive(stream: IO[bytes], images: Iterable[Image], *, without: frozenset[str] = frozenset()) -> None:
    """Write an archive of images without the layers whose digests are in `without`."""
    written: set[str] = set(without)
    descriptors = []
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add_bytes(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for image in images:
            for layer in image.layers:
                if layer.digest not in written:
                    written.add(layer.digest)
                    tar.addfile(_member(f"blobs/{layer.digest.replace(':', '/')}", size=layer.size))
                    _write_layer(_Member(tar), layer.files, layer.root)
            manifest = _add_manifest(tar, image, written)
            for name in image.names:
                descriptors.append({**manifest, "annotations": {"io.containerd.image.name": canonical(name)}})
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": descriptors}
        _add_bytes(tar, "index.json", json.dumps(index).encode())


def canonical(name: str) -> str:
    """Return an image's name with registry and tag, as containerd stores it (distribution/reference).

    If the name has a tag and a digest, the tag is dropped, as in containerd's lookups (its ParseDockerRef).
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


def _add_manifest(tar: tarfile.TarFile, image: Image, written: set[str]) -> dict[str, Any]:
    """Add an image's configuration and manifest. Returns the manifest's descriptor."""
    machine = os.uname().machine
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        "os": "linux",
        "config": dict(image.config),
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
    }
    media = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{media}.manifest.v1+json",
        "config": _add_json(tar, f"{media}.config.v1+json", config, written),
        "layers": [
            {"mediaType": f"{media}.layer.v1.tar", "digest": layer.digest, "size": layer.size} for layer in image.layers
        ],
    }
    return _add_json(tar, f"{media}.manifest.v1+json", manifest, written)


def _add_json(tar: tarfile.TarFile, media_type: str, content: object, written: set[str]) -> dict[str, Any]:
    data = json.dumps(content).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest not in written:
        written.add(digest)
        _add_bytes(tar, f"blobs/{digest.replace(':', '/')}", data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    tar.addfile(_member(name, size=len(data), mode=mode), io.BytesIO(data))


def _member(name: str, **attributes: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info


class _Counter:
    """Stream that hashes and counts the written bytes."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return len(data)


class _Member:
    """Stream into the data of the last tar member. A tar's size needs no padding."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def write(self, data: bytes) -> int:
        assert self._tar.fileobj is not None
        self._tar.fileobj.write(data)
        self._tar.offset += len(data)
        return len(data)


def _write_layer(stream: _Counter | _Member, files: Sequence[File], root: bool) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        # Other folders are created by containerd: with mode 755, or as in a lower layer.
        for place, (mode, uid, gid) in _ROOT_FOLDERS.items() if root else ():
            tar.addfile(_member(place.lstrip("/"), type=tarfile.DIRTYPE, mode=mode, uid=uid, gid=gid))
        for file in files:
            _add_file(tar, file)


def _add_file(tar: tarfile.TarFile, file: File) -> None:
    name, mode = file.place.lstrip("/"), 0o755 if file.executable else 0o644
    if file.text is not None:
        return _add_bytes(tar, name, file.text.encode(), mode)
    if file.link is not None:
        return tar.addfile(_member(name, mode=mode, type=tarfile.SYMTYPE, linkname=file.link))
    assert file.source is not None
    seen = file.source.stat()
    with file.source.open("rb") as data:
        # A .pyc file records size and time of its source.
        return tar.addfile(_member(name, mode=mode, size=seen.st_size, mtime=int(seen.st_mtime)), data)
