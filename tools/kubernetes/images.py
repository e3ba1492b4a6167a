"""Images of real pods, without a registry: one of this environment, and images that only sleep.

The environment's image has Python, Ray and torch as locked, and the command `rdma-ray`. Its files are listed here, or
found by `ldd` and in the packages' lists. It is unpacked once per lock (`store`), and each node mounts the result
read-only.

    python -m tools.kubernetes.images FILE NAME…   # the same image as an archive, for another cluster
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from tools.go_build import cache
from tools.kubernetes import containers, image_archive
from tools.kubernetes.image_archive import File, Image, Layer
from tools.kubernetes.node_machine import Machine, bind
from tools.setup import ROOT

LOCK = ROOT / "requirements-workloads.txt"
PREFIX = "/opt/rdma-ray"
"""Folder of Python in the image."""

PROGRAMS = (
    *("bash", "sh", "cat", "ls", "cp", "mv", "rm", "mkdir", "rmdir", "chmod", "chown", "ln", "date", "sleep", "head"),
    *("tail", "wc", "cut", "tr", "sort", "uniq", "tee", "touch", "env", "echo", "printf", "true", "false", "test"),
    *("expr", "id", "whoami", "uname", "stat", "df", "du", "dirname", "basename", "readlink", "realpath", "mktemp"),
    *("seq", "timeout", "nproc", "hostname", "sha256sum", "grep", "sed", "awk", "find", "xargs", "tar", "gzip", "ps"),
    *("kill", "wget"),
)
"""Programs that `ray start` or users of a shell in a pod expect, if this machine has them. KubeRay's probes of Ray
2.60 need none (KubeRay 1.6.2: constant.go, HTTP health checks)."""

LEFT_OUT = ("pulumi", "pulumi-aws", "pulumi-gcp", "pulumi-kubernetes", "pulumi-random", "triton")
"""Locked packages that no pod needs (1.3 GB): the engine's, and a compiler for GPUs."""

# Increment when the image is built differently, so that older stores are not used.
_FORM = "2"
_SNAPSHOTTER = "io.containerd.snapshotter.v1.overlayfs"
_BLOBS = Path("io.containerd.content.v1.content/blobs/sha256")
_COPIED = (Path("io.containerd.metadata.v1.bolt/meta.db"), Path(_SNAPSHOTTER) / "metadata.db")
_SLEEP = ["/bin/bash", "-c", "trap exit TERM; while :; do sleep 3600 & wait $!; done"]
# User and home of Ray's own images (ray: docker/base-deps/Dockerfile).
_CONFIG = {
    "User": "1000",
    "WorkingDir": "/home/ray",
    "Env": [f"PATH={PREFIX}/bin:/usr/local/bin:/usr/bin:/usr/sbin", "HOME=/home/ray", "LANG=C.UTF-8"],
    "Cmd": ["/bin/bash"],
}
_INTERPRETER = Path(sys.executable).resolve()
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SITE = f"{PREFIX}/lib/{_PYTHON}/site-packages"
_LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_NOT_COPIED = {"test", "site-packages", "dist-packages", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}


class ImageError(RuntimeError):
    """The image cannot be created on this machine. The message names the missing part."""


@dataclass(frozen=True)
class Store:
    """State of a containerd that has the environment's image, in the read-only folder `root`."""

    root: Path
    layers: tuple[Layer, ...]

    def begin(self, root: Path) -> list[list[str]]:
        """Create the folder of a containerd that starts with this state. Returns its mounts."""
        mounts = []
        for part in _COPIED:
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.root / part, root / part)
        for snapshot in sorted((self.root / _SNAPSHOTTER / "snapshots").iterdir()):
            place = root / _SNAPSHOTTER / "snapshots" / snapshot.name
            place.mkdir(parents=True)
            mounts.append(bind(snapshot, place))
        (root / _BLOBS).mkdir(parents=True)
        for blob in sorted((self.root / _BLOBS).iterdir()):
            (root / _BLOBS / blob.name).touch()
            mounts.append(bind(blob, root / _BLOBS / blob.name))
        return mounts


def store(say: Callable[[str], None] = print) -> Store:
    """Return the store of this lock. Creating it takes minutes, and 8 GB of the cache folder."""
    folder = cache() / f"pod-images-{_key()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "pod-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "layers.json").exists():
            began = time.monotonic()
            say("creating the pods' image of this environment: 3 to 6 minutes, once per lock")
            _create(folder, say)
            say(f"the pods' image is ready after {time.monotonic() - began:.0f} s")
            for old in folder.parent.glob("pod-images-*"):
                if old.is_dir() and old != folder:
                    shutil.rmtree(old, ignore_errors=True)
    described = json.loads((folder / "layers.json").read_text())
    return Store(folder / "containerd", tuple(Layer((), False, each["digest"], each["size"]) for each in described))


def run_images(store: Store, real: Sequence[str], stubs: Mapping[str, Sequence[File]]) -> Iterator[Image]:
    """Yield the images of one run.

    Args:
        real: Names of the environment's image, with the current code.
        stubs: Name of an image that sleeps -> replacements of the files that a manifest's commands call.
    """
    system = store.layers[0]
    today = image_archive.layer(project(ROOT))
    yield Image([containers.PAUSE], [system], {"Cmd": ["/usr/bin/sleep", "infinity"]})
    if real:
        yield Image(real, [*store.layers, today], _CONFIG)
    for name, files in stubs.items():
        # It ignores a manifest's arguments. A manifest's command fails if no file replaces it.
        yield Image([name], [system, image_archive.layer(files)], {"Entrypoint": _SLEEP})


def project(root: Path) -> list[File]:
    """Return the files of this clone's command and its code, copied for nodes that start later.

    They are those that images/Dockerfile copies.
    """
    folders = (root / "workloads", root / "infra")
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    command = File(f"{PREFIX}/bin/rdma-ray", text='#!/bin/sh\nexec python -P -m workloads.cli "$@"\n', executable=True)
    return [
        command,
        *(
            File(
                f"{_SITE}/{path.relative_to(root)}",
                text=path.read_bytes().decode(),
                executable=os.access(path, os.X_OK),
            )
            for path in paths
        ),
    ]


def _layers() -> list[Layer]:
    layer = image_archive.layer
    return [layer(_system(), root=True), layer(_python()), layer(_packages(LOCK))]


def _create(folder: Path, say: Callable[[str], None]) -> None:
    """Unpack the image into `folder` with a temporary containerd."""
    partial = folder.with_name(folder.name + ".partial")
    for left in (folder, partial):
        shutil.rmtree(left, ignore_errors=True)
    try:
        say("  choosing the files")
        layers = _layers()
        say(f"  unpacking {sum(layer.size for layer in layers) / 1e9:.1f} GB")
        with Machine("images", partial / "logs", identity=f"{os.getpid():x}") as machine:
            containers.start(machine, partial, subnet="192.0.2.0/24")
            containers.import_images(machine, [Image(["rdma-ray.local/environment:1"], layers, _CONFIG)])
            machine.check()
        text = json.dumps([{"digest": layer.digest, "size": layer.size} for layer in layers])
        (partial / "layers.json").write_text(text)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _key() -> str:
    digest = hashlib.sha256(LOCK.read_bytes())
    for text in (_FORM, platform.python_version(), platform.machine(), *LEFT_OUT, *PROGRAMS):
        digest.update(text.encode())
    return digest.hexdigest()[:16]


def _system() -> list[File]:
    """Return the programs, the libraries of them, Python and the packages, and the files of /etc."""
    found = {name: path for name in PROGRAMS if (path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))}
    if missing := {"bash", "sh", "cat", "mkdir", "sleep"} - found.keys():
        raise ImageError(f"this machine has no {', '.join(sorted(missing))}, which a pod's image needs")
    files = [
        File("/usr/bin/" + name, source=Path(path).resolve(), executable=True) for name, path in sorted(found.items())
    ]
    # Not `platstdlib`, which is the environment's own folder.
    standard = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    site = Path(sysconfig.get_path("platlib"))
    extensions = [path for path in site.rglob("*.so*") if not path.is_relative_to(site / "nvidia")]
    programs = [Path(path).resolve() for path in found.values()]
    files += _libraries([*programs, _INTERPRETER, *standard.glob("*.so"), *extensions])
    # Ray's own images run as `ray`, 1000, in the group `users`, 100 (ray: docker/base-deps).
    users = "root:x:0:0:root:/root:/bin/bash\nray:x:1000:100::/home/ray:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
    return [
        *files,
        File("/etc/passwd", text=users),
        File("/etc/group", text="root:x:0:\nusers:x:100:\nnogroup:x:65534:\n"),
        File("/etc/nsswitch.conf", text="passwd: files\ngroup: files\nhosts: files dns\n"),
        *(File(f"/{name}", link=f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")),
    ]


def _python() -> list[File]:
    """Return Python's program and standard library."""
    files = [File(f"{PREFIX}/bin/{_PYTHON}", source=_INTERPRETER, executable=True)]
    files += [File(f"{PREFIX}/bin/{name}", link=_PYTHON) for name in ("python3", "python")]
    top = Path(sysconfig.get_path("stdlib"))
    for folder, inner, names in os.walk(top):
        inner[:] = [name for name in inner if name not in _NOT_COPIED and not name.startswith("config-")]
        files += [_copy(f"{PREFIX}/lib/{_PYTHON}", top, Path(folder, name)) for name in names]
    return files


def _packages(lock: Path) -> list[File]:
    """Return the packages that `lock` pins, as installed here, and their commands.

    NVIDIA's libraries are limited to those that `import torch` loads without a GPU: 1.9 of 3.1 GB.
    """
    pinned = {_canonical(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.MULTILINE)}
    pinned -= {_canonical(name) for name in LEFT_OUT}
    site = Path(sysconfig.get_path("purelib"))
    installed = {_canonical(each.name): each for each in distributions(path=[str(site)])}
    loaded = _loaded_by_torch()
    files = []
    for name in sorted(pinned & installed.keys()):
        for path in _files_of(installed[name], site):
            library = name.startswith(("nvidia-", "cuda-toolkit")) and path.suffix not in (".py", ".pyc")
            if not library or path.resolve() in loaded:
                files.append(_copy(_SITE, site, path))
        for entry in installed[name].entry_points.select(group="console_scripts"):
            imported = f"import sys\nfrom {entry.module} import {entry.attr.split('.')[0]}\n"
            text = f"#!{PREFIX}/bin/python3\n{imported}sys.exit({entry.attr}())\n"
            files.append(File(f"{PREFIX}/bin/{entry.name}", text=text, executable=True))
    if not {f"{_SITE}/ray/__init__.py", f"{_SITE}/torch/__init__.py"} <= {file.place for file in files}:
        raise ImageError("this environment has no Ray and torch: run `make setup`, and use .venv/bin/python")
    return files


def _copy(below: str, top: Path, path: Path) -> File:
    return File(f"{below}/{path.relative_to(top)}", source=path, executable=os.access(path, os.X_OK))


def _files_of(package: Distribution, site: Path) -> Iterator[Path]:
    for listed in package.files or ():
        path = Path(os.path.normpath(site / str(listed)))
        # Commands are created separately, because they name this machine's Python.
        if path.is_relative_to(site) and "__pycache__" not in path.parts and path.is_file():
            yield path
            if path.suffix == ".py" and (compiled := Path(importlib.util.cache_from_source(str(path)))).is_file():
                yield compiled


def _loaded_by_torch() -> set[Path]:
    code = "import torch, torch.distributed; print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise ImageError(f"torch cannot be imported here:\n{done.stderr[-1000:]}")
    return {Path(line.split(maxsplit=5)[5]).resolve() for line in done.stdout.splitlines() if ".so" in line}


def _libraries(paths: Sequence[Path]) -> list[File]:
    """Return the libraries outside the environment that `ldd` finds for these."""
    site = Path(sysconfig.get_path("platlib"))
    libraries: dict[str, Path] = {}
    for start in range(0, len(paths), 40):
        batch = [str(path) for path in paths[start : start + 40]]
        # ldd fails for a file that is not a program, but continues with the others.
        printed = subprocess.run(["ldd", *batch], capture_output=True, text=True).stdout
        for match in re.finditer(r"^\t(?:(\S+) => )?(/\S+) \(0x", printed, re.MULTILINE):
            path = Path(match.group(2))
            if not path.resolve().is_relative_to(site.resolve()) and not path.is_relative_to(site.resolve()):
                libraries[match.group(2)] = path
    libc = next((path for name, path in libraries.items() if "/libc.so" in name), None)
    if libc is None:
        raise ImageError("ldd does not find the C library of this system's programs")
    extra = [libc.parent / name for name in ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")]
    libraries |= {str(path): path for path in extra if path.exists()}
    files = []
    for name, path in sorted(libraries.items()):
        # A library in another folder, such as Python's, is copied to the loader's path.
        folder = str(path.parent) if name.startswith(_LIBRARY_FOLDERS) else str(libc.parent)
        place = f"{folder if folder.startswith('/usr') else '/usr' + folder}/{path.name}"
        files.append(File(place, source=path.resolve(), executable=True))
    return files


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: Iterable[str]) -> None:
    """Write the image to a file, as an archive of 4 GB. Needs neither root nor containerd."""
    file, *names = arguments or [""]
    if not names:
        sys.exit("usage: python -m tools.kubernetes.images FILE NAME…")
    image = Image(names, [*_layers(), image_archive.layer(project(ROOT))], _CONFIG)
    with Path(file).open("wb") as stream:
        image_archive.write_archive(stream, [image])


if __name__ == "__main__":
    main(sys.argv[1:])
