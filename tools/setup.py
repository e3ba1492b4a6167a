"""Bring what the project needs into this clone: a Python environment from the lock, and a Pulumi engine.

Uses only the standard library, since it runs before there is an environment. Each step looks first whether its
result is there already; nothing is written outside the clone and the user's cache folder.

    python3 tools/setup.py infra   # what `pulumi up` of a cloud stack and `make rehearse` need
    python3 tools/setup.py run     # what `make up` needs
    python3 tools/setup.py dev     # also what `make test` and `make check` need
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Run as a script, before anything is installed, this file is not part of a package that Python could find.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from infra.catalog.pins import PULUMI
from tools import go_build
from tools.go_build import GO_VERSION, cache, version_of

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".tools"
ENGINE = TOOLS / "bin" / "pulumi"
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
# The locks from small to large; an environment made from a larger one serves the smaller purpose too.
LOCKS = {"infra": "requirements.txt", "run": "requirements-workloads.txt", "dev": "requirements-dev.txt"}
ENGINE_VERSION = tuple(map(int, PULUMI.split(".")))
PYTHON_VERSION = (3, 11)
# Counted with `go list -deps` on the pinned module (2026-11-21, linux/amd64); it only scales the progress line.
_ENGINE_PACKAGES = 1684
# On a terminal a line of progress is overwritten by the next one.
_END = "\r" if sys.stdout.isatty() else "\n"
_HOSTS = ("pulumi-language-python", "pulumi-resource-pulumi-python")


class SetupError(RuntimeError):
    """A step cannot be done; the message says what to do about it."""


def main(purpose: str) -> None:
    """Make the environment for `purpose` ("infra", "run" or "dev") and the engine; prints one line a step."""
    if sys.version_info[:2] < PYTHON_VERSION:
        raise SetupError(
            f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed. Name another one, as in: "
            f"make up PYTHON=python3.12"
        )
    began = time.monotonic()
    # Looked up first: a missing prerequisite should show before minutes of downloads, not after.
    source = find_engine()
    install_environment(purpose)
    between = time.monotonic()
    install_engine(source)
    seconds = {"environment": between - began, "engine": time.monotonic() - between}
    (TOOLS / "setup.json").write_text(json.dumps(seconds))


def find_engine() -> Path | None:
    """The user's own Pulumi if it is recent enough, None if the pinned one has to be (or is) built here.

    Raises:
        SetupError: there is neither a recent Pulumi nor a Go that could build one.
    """
    found = shutil.which("pulumi", path=_foreign_path())
    if found and (version := version_of([found, "version"])) and version >= ENGINE_VERSION:
        return Path(found)
    if _built_engine().exists():
        return None
    go_version = go_build.found_version()
    if go_version and go_version >= GO_VERSION:
        return None
    pulumi, go = (".".join(map(str, version)) for version in (ENGINE_VERSION, GO_VERSION))
    seen = f"found {found}, which is older than {pulumi}" if found else "no 'pulumi' is on PATH"
    raise SetupError(
        f"A Pulumi engine is missing: {seen}. Either\n"
        f"  - install Pulumi {pulumi} or later (https://www.pulumi.com/docs/install/), or\n"
        f"  - install Go {go} or later (https://go.dev/dl/), with which this project builds the engine itself (3 to 5\n"
        "    minutes, once),\nand run the same command again."
    )


def install_environment(purpose: str) -> None:
    """Make `.venv` from the lock for `purpose`, unless it is there already.

    Raises:
        SetupError: the packages cannot be installed; pip's or uv's own message stands above.
    """
    order = list(LOCKS)
    stamps = {name: _digest(ROOT / LOCKS[name]) for name in order}
    stamp = ENVIRONMENT / "rdma-ray-lock"
    current = stamp.read_text() if stamp.exists() else ""
    # Whatever was asked for before stays: `make up` after `make test` must not take the test tools away.
    if PYTHON.exists() and current in [stamps[name] for name in order[order.index(purpose) :]]:
        return say("Python environment", "up to date (.venv)")
    lock = ROOT / LOCKS[purpose]
    say("Python environment", f"installing {lock.name} into .venv: 0.5 to 5 minutes, mostly download")
    began = time.monotonic()
    if not (stamp.exists() and PYTHON.exists()):
        # An interrupted run left it, it was made for something else, or its interpreter is gone.
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
    stamp.unlink(missing_ok=True)
    # uv installs the lock several times faster than pip, and checks the same hashes; pip checks those of uv itself.
    installer = ENVIRONMENT / "uv-requirement.txt"
    installer.write_text(_locked("uv", ROOT / LOCKS["dev"]))
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes", "-r"]
    _run([*pip, str(installer)])
    uv = [str(PYTHON), "-m", "uv", "pip", "sync", "--quiet", "--python", str(PYTHON), "--require-hashes", str(lock)]
    _run(uv, waiting=lambda elapsed: say("Python environment", f"installing … {elapsed:.0f} s", end=_END))
    stamp.write_text(stamps[purpose])
    return say("Python environment", f"installed in {time.monotonic() - began:.0f} s")


def install_engine(found: Path | None) -> None:
    """Put the engine under .tools/bin: a link to the user's own, or the pinned one, built once per machine.

    Raises:
        SetupError: the build failed; the compiler's own message stands in the error.
    """
    ENGINE.parent.mkdir(parents=True, exist_ok=True)
    if found:
        _replace(ENGINE, lambda place: place.symlink_to(found))
        say("Pulumi engine", f"your own, {found}")
    else:
        built = _built_engine()
        if not built.exists():
            _build_engine(built)
        # A copy or hard link, not a symbolic one: the engine looks for its language hosts beside its real path.
        if not ENGINE.exists() or ENGINE.is_symlink() or not ENGINE.samefile(built):
            _replace(ENGINE, lambda place: _link_or_copy(built, place))
        say("Pulumi engine", f"v{'.'.join(map(str, ENGINE_VERSION))}, built here from the pinned module")
    for host in _HOSTS:
        theirs = found and shutil.which(host, path=f"{_foreign_path()}{os.pathsep}{found.resolve().parent}")
        place = ENGINE.parent / host
        if theirs:
            place.unlink(missing_ok=True)
        else:
            _replace(place, lambda place: place.symlink_to(Path("..", "..", "tools", "host", place.name)))


def say(step: str, text: str, *, end: str = "\n") -> None:
    """One line of progress."""
    clear = "\x1b[K" if sys.stdout.isatty() else ""
    print(f"{clear}  {step:<20} {text}", end=end, flush=True)


def _foreign_path() -> str:
    """PATH without this clone's own folders: bin/pulumi is a wrapper around the engine, not one."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder).resolve().is_relative_to(ROOT))


def _built_engine() -> Path:
    """Where the pinned engine lies in the user's cache; another pin, or another platform, is another folder."""
    key = _digest(ROOT / "tools" / "engine" / "go.sum", f"{ENGINE_VERSION}{sys.platform}{os.uname().machine}")
    return cache() / f"engine-{key}" / "pulumi"


def _build_engine(target: Path) -> None:
    version = ".".join(map(str, ENGINE_VERSION))
    recipe = go_build.Recipe(
        module=ROOT / "tools" / "engine",
        packages=["github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"],
        count=_ENGINE_PACKAGES,
        takes="3 to 5 min in all",
        ldflags=f"-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",
        tags="osusergo,grpcnotrace",
        trimpath=False,
    )
    try:
        seconds = go_build.build(
            recipe, target.parent, lambda text, passing: say("Pulumi engine", text, end=_END if passing else "\n")
        )
    except go_build.GoError as problem:
        raise SetupError(
            f"The Pulumi engine v{version} could not be built (tools/engine/go.mod):\n{problem}\n"
            "Either mend that, or install Pulumi itself (https://www.pulumi.com/docs/install/) and run this again."
        ) from problem
    say("Pulumi engine", f"built in {seconds:.0f} s")


def _digest(path: Path, salt: str = "") -> str:
    return hashlib.sha256(path.read_bytes() + salt.encode()).hexdigest()[:16]


def _locked(package: str, lock: Path) -> str:
    """The lines of `lock` that pin `package` with its hashes."""
    match = re.search(rf"^{package}==.*?(?=^\S|\Z)", lock.read_text(), re.MULTILINE | re.DOTALL)
    if match is None:
        raise SetupError(f"{lock.name} does not pin {package}: run 'make lock' and commit the result")
    return match.group()


def _run(command: list[str], waiting: Callable[[float], None] | None = None) -> None:
    """Run a command; `waiting` is told the seconds passed, every second on a terminal and every 15 elsewhere."""
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=ROOT)
    try:
        while True:
            try:
                status = child.wait(timeout=1 if sys.stdout.isatty() else 15)
                break
            except subprocess.TimeoutExpired:
                if waiting:
                    waiting(time.monotonic() - began)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if status:
        raise SetupError(f"{' '.join(command[:6])} … failed with exit status {status}; see above")


def _link_or_copy(source: Path, place: Path) -> None:
    try:
        place.hardlink_to(source)
    except OSError:
        # The cache is on another file system.
        shutil.copy2(source, place)


def _replace(place: Path, make: Callable[[Path], None]) -> None:
    place.unlink(missing_ok=True)
    make(place)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "run")
    except SetupError as problem:
        sys.exit(f"\nsetup: {problem}")
    except KeyboardInterrupt:
        sys.exit("\nsetup: interrupted; run it again to go on")
