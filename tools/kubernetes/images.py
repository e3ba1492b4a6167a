"""The images of real pods, without a registry: one of this environment, and stand-ins that sleep.

The environment's image has Python, Ray, torch and `workloads` as locked, and answers to whatever name the manifests
use. Unpacking it costs minutes, so that is done once for a lock (`store`); each machine's containerd begins with the
result, by mounts that it cannot write to.

    python -m tools.kubernetes.images FILE NAME…   # the same image as an archive, for a cluster of one's own
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.go_build import cache
from tools.kubernetes import containers, images_archive, images_files
from tools.kubernetes.images_archive import Image, Layer
from tools.kubernetes.images_files import File
from tools.kubernetes.node_machine import Machine, bare_environment
from tools.setup import ROOT

LOCK = ROOT / "requirements-workloads.txt"
_ENVIRONMENT = "rdma-ray.local/environment:1"
# Counted up when the image is put together otherwise than before, so that old stores are not taken for new ones.
_FORM = "2"
_SNAPSHOTTER = "io.containerd.snapshotter.v1.overlayfs"
_BLOBS = Path("io.containerd.content.v1.content/blobs/sha256")
_COPIED = (Path("io.containerd.metadata.v1.bolt/meta.db"), Path(_SNAPSHOTTER) / "metadata.db")
_SLEEP = ["/bin/bash", "-c", "trap exit TERM; while :; do sleep 3600 & wait $!; done"]
# As Ray's own images have it: their user, their home (ray: docker/base-deps/Dockerfile).
_CONFIG = {
    "User": "1000",
    "WorkingDir": "/home/ray",
    "Env": [f"PATH={images_files.PREFIX}/bin:/usr/local/bin:/usr/bin:/usr/sbin", "HOME=/home/ray", "LANG=C.UTF-8"],
    "Cmd": ["/bin/bash"],
}


@dataclass(frozen=True)
class Store:
    """What a containerd has after it was given the environment's image; nobody writes to its folder, `root`."""

    root: Path
    system: Layer
    layers: tuple[Layer, ...]

    @property
    def digests(self) -> frozenset[str]:
        """Of the layers that are in it."""
        return frozenset(layer.digest for layer in self.layers)

    def begin(self, root: Path) -> list[list[str]]:
        """Make a containerd's folder that begins with this store; returns the mounts that it needs (`node_guard`)."""
        mounts = []
        for part in _COPIED:
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.root / part, root / part)
        for snapshot in sorted((self.root / _SNAPSHOTTER / "snapshots").iterdir()):
            place = root / _SNAPSHOTTER / "snapshots" / snapshot.name
            place.mkdir(parents=True)
            mounts.append(["bind", str(snapshot), str(place)])
        (root / _BLOBS).mkdir(parents=True)
        for blob in sorted((self.root / _BLOBS).iterdir()):
            (root / _BLOBS / blob.name).touch()
            mounts.append(["bind", str(blob), str(root / _BLOBS / blob.name)])
        return mounts


def store(say: Callable[[str], None] = print) -> Store:
    """The store of this lock, made now if there is none: some minutes, and 8 GB in the user's cache folder."""
    folder = cache() / f"pod-images-{_key()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "pod-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "layers.json").exists():
            began = time.monotonic()
            say("making the pods' image of this environment: 3 to 6 minutes, once for a lock")
            _make(folder, say)
            say(f"the pods' image is made, in {time.monotonic() - began:.0f} s")
            for old in folder.parent.glob("pod-images-*"):
                if old.is_dir() and old != folder:
                    shutil.rmtree(old, ignore_errors=True)
    described = json.loads((folder / "layers.json").read_text())
    layers = tuple(Layer((), False, each["digest"], each["size"]) for each in described)
    return Store(folder / "containerd", layers[0], layers)


def run_images(
    store: Store, real: Sequence[str], stand_ins: Sequence[str], acting: Mapping[str, Sequence[File]]
) -> Iterator[Image]:
    """The images of one run: `real` names get the environment with today's `workloads`, `stand_ins` one that sleeps.

    `acting` are names of images whose commands a manifest runs, with the files that stand in for those they call.
    """
    today = images_archive.layer(images_files.project(ROOT))
    yield Image([containers.PAUSE], [store.system], {"Cmd": ["/usr/bin/sleep", "infinity"]})
    if real:
        yield Image(real, [*store.layers, today], _CONFIG)
    if stand_ins:
        # As the entry point, so that a manifest's arguments change nothing; a manifest's command does, and fails.
        yield Image(stand_ins, [store.system], {"Entrypoint": _SLEEP})
    for name, files in acting.items():
        yield Image([name], [store.system, images_archive.layer(files)], {"Entrypoint": _SLEEP})


def write(file: Path, names: Sequence[str]) -> None:
    """Write the environment's image under these names as an OCI archive, 4 GB; needs neither root nor containerd."""
    layers = [*_layers(), images_archive.layer(images_files.project(ROOT))]
    with file.open("wb") as stream:
        images_archive.write_archive(stream, [Image(names, layers, _CONFIG)])


def _layers() -> list[Layer]:
    return [
        images_archive.layer(images_files.system(), root=True),
        images_archive.layer(images_files.python()),
        images_archive.layer(images_files.packages(LOCK)),
    ]


def _make(folder: Path, say: Callable[[str], None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with _building(folder) as partial:
        say("  choosing the files")
        layers = _layers()
        say(f"  unpacking {sum(layer.size for layer in layers) / 1e9:.1f} GB")
        _fill(partial, Image([_ENVIRONMENT], layers, _CONFIG))
        text = json.dumps([{"digest": layer.digest, "size": layer.size} for layer in layers])
        (partial / "layers.json").write_text(text)
        partial.rename(folder)


@contextlib.contextmanager
def _building(folder: Path) -> Iterator[Path]:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _fill(partial: Path, image: Image) -> None:
    """Let a containerd of its own take the image into `partial`/containerd."""
    cni = containers.found()
    # A socket's path is short; the cache folder's may not be.
    with tempfile.TemporaryDirectory(prefix="rdma-ray-images-") as short:
        work = Path(short)
        (partial / "containerd").mkdir()
        (work / "containerd").mkdir()
        containers.configuration(work, cni=cni, subnet="192.0.2.0/24")
        mounts = [["tmpfs", "/run"], ["bind", str(partial / "containerd"), str(work / "containerd")]]
        identity = f"{os.getpid():x}"
        machine = Machine("images", work / "logs", identity=identity, mounts=mounts)
        try:
            config = work / "containerd.toml"
            machine.start("containerd", ["containerd", f"--config={config}"], bare_environment())
            containers.wait_until_ready(work, machine.check)
            containers.import_images(work, [image])
            machine.check()
        finally:
            machine.stop()


def _key() -> str:
    digest = hashlib.sha256(LOCK.read_bytes())
    for text in (_FORM, platform.python_version(), platform.machine(), *images_files.LEFT_OUT, *images_files.PROGRAMS):
        digest.update(text.encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m tools.kubernetes.images FILE NAME…")
    write(Path(sys.argv[1]), sys.argv[2:])
