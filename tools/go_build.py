"""Build programs from pinned Go modules into the user's cache. Standard library only, for `tools/setup.py`."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.process import Child

GO = "1.26"
GO_VERSION = tuple(map(int, GO.split(".")))
Tell = Callable[[str, bool], None]
"""Callback for a line of progress, and whether the next line may overwrite it."""

_ERROR_LINES = 15


class GoError(RuntimeError):
    """A build failed, or Go is missing. The message contains the reason."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A go.mod of this project and the programs that it pins.

    Attributes:
        manifest: Folder of go.mod and go.sum.
        packages: Program -> Go package.
        count: Go packages that a build compiles (`go list -deps`, 2026-11-21, linux/amd64); scales the progress.
        duration: Duration of a build on two cores with an empty compiler cache, for messages.
    """

    manifest: Path
    packages: Mapping[str, str]
    count: int
    duration: str
    ldflags: str = "-s -w"
    tags: str = ""
    trimpath: bool = True


def build(module: Module, names: Sequence[str], folder: Path, tell: Tell) -> float:
    """Build programs of a module into `folder` and return the elapsed seconds.

    Processes that build into the same folder take turns. A program appears in the folder only when it is complete.

    Raises:
        GoError: Go is missing or too old, or the compiler failed.
    """
    require_go(f"{', '.join(names)} would be built with it, once per machine")
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that builds the same programs", False)
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have built them while this one waited for the lock.
        if not all((folder / name).exists() for name in names):
            partial = folder / "partial"
            # Left by a killed build.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                _compile(module, names, partial, tell)
                for program in partial.iterdir():
                    program.replace(folder / program.name)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return time.monotonic() - began


def environment() -> dict[str, str]:
    """Return the environment for `go`: only pinned modules, only the Go on PATH, no C compiler."""
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(module_cache()),
    }


def require_go(purpose: str) -> None:
    """Raise GoError if there is no recent Go on PATH. `purpose` is a sentence of the message."""
    version = version_of(["go", "version"])
    if not version or version < GO_VERSION:
        seen = f"the one on PATH is {'.'.join(map(str, version))}" if version else "there is no 'go' on PATH"
        raise GoError(
            f"Go {GO} or later is missing: {seen}. {purpose}. "
            "Install it from https://go.dev/dl/ and run the same command again."
        )


def version_of(command: list[str]) -> tuple[int, ...] | None:
    """Return the first version that `command` prints, as three numbers, or None."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def cache() -> Path:
    """Return the folder that all clones of a user share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rdma-ray"


def module_cache() -> Path:
    """Return the folder of downloaded Go modules, instead of Go's default ~/go."""
    return Path(os.environ.get("GOMODCACHE") or cache() / "go-modules")


def module_folder(manifests: Path, name: str) -> Path:
    """Return the source folder of a pinned Go module, such as "github.com/ray-project/kuberay/ray-operator".

    Args:
        manifests: Folder with a folder for each go.mod.
        name: Name of the module.

    Raises:
        GoError: The module is not in the module cache and cannot be downloaded.
        KeyError: No go.mod pins it.
    """
    named = re.escape(name)
    for manifest in sorted(manifests.glob("*/go.mod")):
        # Modules of Kubernetes' staging area have their version in a replacement.
        pins = (rf"^\s*(?:replace )?{named} => {named} (v\S+)", rf"^\s*(?:require )?{named} (v\S+)")
        matches = (re.search(pin, manifest.read_text(), re.MULTILINE) for pin in pins)
        if match := next(filter(None, matches), None):
            # The module cache writes capitals as !x (https://go.dev/ref/mod#module-cache).
            path = re.sub(r"[A-Z]", lambda capital: "!" + capital.group().lower(), f"{name}@{match.group(1)}")
            folder = module_cache() / path
            if not folder.is_dir():
                # Programs may be cached although the module cache was cleaned.
                _download(manifest.parent, name)
            return folder
    raise KeyError(f"no go.mod under {manifests} pins {name}")


def _download(manifest: Path, module: str) -> None:
    require_go(f"It would download the module {module}")
    command = ["go", "mod", "download", module]
    done = subprocess.run(command, cwd=manifest, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise GoError(f"{module} could not be downloaded:\n{done.stderr.strip()}")


def _compile(module: Module, names: Sequence[str], folder: Path, tell: Tell) -> None:
    # -v prints each package as it is compiled, the only progress that the compiler reports.
    command = ["go", "build", "-v", "-o", f"{folder}/", "-ldflags", module.ldflags]
    command += ["-tags", module.tags] if module.tags else []
    command += ["-trimpath"] if module.trimpath else []
    lines: list[str] = []
    compiled = 0

    def progress(line: str) -> None:
        nonlocal compiled
        lines.append(line)
        compiled += not line.startswith("go: downloading")
        # On a terminal each line overwrites the one before; elsewhere only every 10 % are printed.
        if sys.stdout.isatty() or compiled % max(1, module.count // 10) == 1:
            count = f"{compiled} of {module.count} packages after {time.monotonic() - began:.0f} s"
            tell(f"building from source: {count} ({module.duration}, on two cores)", True)

    began = time.monotonic()
    command += [module.packages[name] for name in names]
    if Child(command, on_line=progress, cwd=module.manifest, environment=environment()).complete():
        raise GoError("".join(lines[-_ERROR_LINES:]).rstrip())
