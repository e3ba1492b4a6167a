"""Which files of this machine make up the local image: programs, their libraries, Python, and the locked packages.

Everything is chosen by name or found by asking the system (`ldd`, the packages' own lists of files); no folder of the
machine is taken as a whole but Python's standard library.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

PREFIX = "/opt/rdma-ray"
"""Where Python lies in the image."""

PROGRAMS = (
    *("bash", "sh", "cat", "ls", "cp", "mv", "rm", "mkdir", "rmdir", "chmod", "chown", "ln", "date", "sleep", "head"),
    *("tail", "wc", "cut", "tr", "sort", "uniq", "tee", "touch", "env", "echo", "printf", "true", "false", "test"),
    *("expr", "id", "whoami", "uname", "stat", "df", "du", "dirname", "basename", "readlink", "realpath", "mktemp"),
    *("seq", "timeout", "nproc", "hostname", "sha256sum", "grep", "sed", "awk", "find", "xargs", "tar", "gzip", "ps"),
    *("kill", "wget"),
)
"""What the start of a Ray node calls, and what one looks for when one enters a pod. Those that this machine does not
have are left out; KubeRay's probes of Ray 2.60 need none of them (KubeRay 1.6.2: constant.go, HTTP health checks)."""

LEFT_OUT = ("pulumi", "pulumi-aws", "pulumi-gcp", "pulumi-kubernetes", "pulumi-random", "triton")
"""Locked packages that no pod needs: the engine's, and a compiler for GPUs; 1.3 GB."""

_DEFAULT_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_SKIPPED = {"test", "site-packages", "dist-packages", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}


@dataclass(frozen=True)
class File:
    """A file of the image: where it is there, and the file here that it is a copy of; or a link's target, or text."""

    place: str
    source: Path | None = None
    link: str | None = None
    text: str | None = None
    executable: bool = False


class ImageError(RuntimeError):
    """The image cannot be made from this machine; the message says what is missing."""


def system() -> list[File]:
    """The programs with every library that they, Python or a package load, and the few files of /etc that they read."""
    found = {name: path for name in PROGRAMS if (path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))}
    if missing := {"bash", "sh", "cat", "mkdir", "sleep"} - found.keys():
        raise ImageError(f"this machine has no {', '.join(sorted(missing))}, which a pod's image needs")
    files = [
        File("/usr/bin/" + name, source=Path(path).resolve(), executable=True) for name, path in sorted(found.items())
    ]
    asking = [Path(path).resolve() for path in found.values()] + [_interpreter(), *_extensions()]
    return [*files, *_libraries(asking), *_accounts()]


def python() -> list[File]:
    """Python's own program and standard library."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    files = [
        File(f"{PREFIX}/bin/{version}", source=_interpreter(), executable=True),
        File(f"{PREFIX}/bin/python3", link=version),
        File(f"{PREFIX}/bin/python", link=version),
    ]
    top = Path(sysconfig.get_path("stdlib"))
    for folder, inner, names in os.walk(top):
        inner[:] = [name for name in inner if name not in _SKIPPED and not name.startswith("config-")]
        files += [_copy(f"{PREFIX}/lib/{version}", top, Path(folder, name)) for name in names]
    return files


def packages(lock: Path) -> list[File]:
    """The packages that `lock` pins, as they are installed here, and their commands.

    Of NVIDIA's libraries only those that torch loads when it is imported, GPU or not: 1.9 of 3.1 GB.
    """
    wanted = {_canonical(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.MULTILINE)}
    wanted -= {_canonical(name) for name in LEFT_OUT}
    site = Path(sysconfig.get_path("purelib"))
    installed = {_canonical(each.name): each for each in distributions(path=[str(site)])}
    needed = _loaded_by_torch()
    files: dict[str, File] = {}
    for name in sorted(wanted & installed.keys()):
        for path in _files_of(installed[name], site):
            library = name.startswith(("nvidia-", "cuda-toolkit")) and path.suffix not in (".py", ".pyc")
            if not library or path.resolve() in needed:
                file = _copy(_site(), site, path)
                files[file.place] = file
        for file in _commands(installed[name]):
            files[file.place] = file
    if f"{_site()}/ray/__init__.py" not in files or f"{_site()}/torch/__init__.py" not in files:
        raise ImageError(
            "Ray and torch are not in this environment: run `make setup`, and start this by .venv/bin/python"
        )
    return list(files.values())


def project(root: Path) -> list[File]:
    """The `workloads` package of this clone, as it is now: nodes come later, and somebody may be at work on it."""
    names = sorted(path for path in (root / "workloads").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return [
        File(
            f"{_site()}/{path.relative_to(root)}", text=path.read_bytes().decode(), executable=os.access(path, os.X_OK)
        )
        for path in names
    ]


def _site() -> str:
    return f"{PREFIX}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def _interpreter() -> Path:
    return Path(sys.executable).resolve()


def _copy(below: str, top: Path, path: Path) -> File:
    return File(f"{below}/{path.relative_to(top)}", source=path, executable=os.access(path, os.X_OK))


def _files_of(package: Distribution, site: Path) -> Iterator[Path]:
    for listed in package.files or ():
        path = Path(os.path.normpath(site / str(listed)))
        # Commands lie outside, and are written anew: they name this machine's Python.
        if not path.is_relative_to(site) or "__pycache__" in path.parts or not path.is_file():
            continue
        yield path
        if path.suffix == ".py":
            compiled = Path(importlib.util.cache_from_source(str(path)))
            if compiled.is_file():
                yield compiled


def _commands(package: Distribution) -> Iterator[File]:
    for entry in package.entry_points.select(group="console_scripts"):
        text = (
            f"#!{PREFIX}/bin/python3\nimport sys\nfrom {entry.module} import {entry.attr.split('.')[0]}\n"
            f"sys.exit({entry.attr}())\n"
        )
        yield File(f"{PREFIX}/bin/{entry.name}", text=text, executable=True)


def _loaded_by_torch() -> set[Path]:
    """The shared libraries that a process has loaded after `import torch`."""
    code = "import torch, torch.distributed; print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise ImageError(f"torch cannot be imported here:\n{done.stderr[-1000:]}")
    return {Path(line.split(maxsplit=5)[5]).resolve() for line in done.stdout.splitlines() if ".so" in line}


def _extensions() -> list[Path]:
    # Not `platstdlib`: that is the environment's own folder, which has none.
    standard = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    site = Path(sysconfig.get_path("platlib"))
    packages = [path for path in site.rglob("*.so*") if not path.is_relative_to(site / "nvidia")]
    return [*standard.glob("*.so"), *packages]


def _libraries(asking: Iterable[Path]) -> list[File]:
    """Every library outside the environment that `ldd` finds for these, and the loader itself."""
    site = Path(sysconfig.get_path("platlib")).resolve()
    paths = list(asking)
    found: dict[str, Path] = {}
    for start in range(0, len(paths), 40):
        batch = [str(path) for path in paths[start : start + 40]]
        # It fails for what is no program of this system, and goes on with the others.
        printed = subprocess.run(["ldd", *batch], capture_output=True, text=True).stdout
        for match in re.finditer(r"^\t(?:(\S+) => )?(/\S+) \(0x", printed, re.MULTILINE):
            path = Path(match.group(2))
            if not path.resolve().is_relative_to(site) and not path.is_relative_to(site):
                found[match.group(2)] = path
    libc = next((path for name, path in found.items() if "/libc.so" in name), None)
    if libc is None:
        raise ImageError("ldd does not name the C library of this system's programs")
    extra = [libc.parent / name for name in ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")]
    found |= {str(path): path for path in extra if path.exists()}
    files: dict[str, File] = {}
    for name, path in sorted(found.items()):
        # A library that lies somewhere of its own, such as Python's, goes where the loader looks anyway.
        folder = str(path.parent) if name.startswith(_DEFAULT_FOLDERS) else str(libc.parent)
        place = f"{folder if folder.startswith('/usr') else '/usr' + folder}/{path.name}"
        files[place] = File(place, source=path.resolve(), executable=True)
    return list(files.values())


def _accounts() -> list[File]:
    """The accounts of Ray's own images: they run as `ray`, 1000, in the group `users`, 100 (ray: docker/base-deps)."""
    users = "root:x:0:0:root:/root:/bin/bash\nray:x:1000:100::/home/ray:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
    return [
        File("/etc/passwd", text=users),
        File("/etc/group", text="root:x:0:\nusers:x:100:\nnogroup:x:65534:\n"),
        File("/etc/nsswitch.conf", text="passwd: files\ngroup: files\nhosts: files dns\n"),
        *(File(f"/{name}", link=f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")),
    ]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
