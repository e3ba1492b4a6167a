"""Build programs from pinned Go modules, with progress, into a folder that never holds half a program.

Uses only the standard library, since the set-up builds the engine with it before there is an environment.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GO_VERSION = (1, 26)
_TOLD_LINES = 15


class GoError(RuntimeError):
    """A build failed; the message is the end of what the compiler said."""


@dataclass(frozen=True)
class Recipe:
    """What to build: `packages` of the module whose go.mod lies in `module`.

    `count` is how many Go packages that takes and only scales the progress; `takes` says how long, in words.
    """

    module: Path
    packages: Sequence[str]
    count: int
    takes: str
    ldflags: str = "-s -w"
    tags: str = ""
    trimpath: bool = True


def build(recipe: Recipe, folder: Path, tell: Callable[[str, bool], None]) -> float:
    """Build into `folder`, each program under the last part of its package's name; returns the seconds.

    `tell` gets lines of progress, and whether the next one may overwrite it. Two processes that build into the same
    folder do so one after the other.

    Raises:
        GoError: the compiler failed; nothing is left of the attempt.
    """
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder, tell):
        if all((folder / package.rpartition("/")[2]).exists() for package in recipe.packages):
            # Another process built it while this one waited.
            return time.monotonic() - began
        partial = folder / "partial"
        # Left by a build that was killed; this process is the only one here now.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            _compile(recipe, partial, tell, began)
            # Moved only when whole, so that an interrupted build is never taken for a program.
            for program in partial.iterdir():
                program.replace(folder / program.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return time.monotonic() - began


def environment() -> dict[str, str]:
    """The environment for `go`: only the pinned modules, only the Go that is here, no C compiler."""
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(module_cache()),
    }


def found_version() -> tuple[int, ...] | None:
    """The version of the `go` on PATH, or None where there is none."""
    go = shutil.which("go")
    return version_of([go, "version"]) if go else None


def version_of(command: list[str]) -> tuple[int, ...] | None:
    """The first version of two or three parts that `command` prints, as three numbers, or None."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def cache() -> Path:
    """Where this project keeps what all clones of a user share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rdma-ray"


def module_cache() -> Path:
    """Where Go keeps the modules that it downloads: by default it would be ~/go, which is no cache folder."""
    return Path(os.environ.get("GOMODCACHE") or cache() / "go-modules")


@contextmanager
def _alone(folder: Path, tell: Callable[[str, bool], None]) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that builds the same", False)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(recipe: Recipe, folder: Path, tell: Callable[[str, bool], None], began: float) -> None:
    # `-v` names each package as it is compiled, which is the only progress that the compiler tells.
    command = ["go", "build", "-v", "-o", f"{folder}/", "-ldflags", recipe.ldflags]
    command += ["-tags", recipe.tags] if recipe.tags else []
    command += ["-trimpath"] if recipe.trimpath else []
    compiler = subprocess.Popen(
        [*command, *recipe.packages],
        cwd=recipe.module,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert compiler.stderr is not None
    said: list[str] = []
    done = 0
    try:
        for line in compiler.stderr:
            said.append(line)
            if not line.startswith("go: downloading"):
                done += 1
                _progress(recipe, done, began, tell)
    except BaseException:
        compiler.terminate()
        raise
    finally:
        compiler.wait()
    if compiler.returncode != 0:
        raise GoError("".join(said[-_TOLD_LINES:]).rstrip())


def _progress(recipe: Recipe, done: int, began: float, tell: Callable[[str, bool], None]) -> None:
    """A line that overwrites itself on a terminal, and comes every tenth part elsewhere."""
    if sys.stdout.isatty() or done % max(1, recipe.count // 10) == 1:
        elapsed = time.monotonic() - began
        counted = f"{done} of {recipe.count} packages after {elapsed:.0f} s"
        tell(f"building from source: {counted} ({recipe.takes}, on two cores)", True)
