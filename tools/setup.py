"""Install the project's requirements into this clone: a Python environment from the locks, and a Pulumi engine.

    python3 tools/setup.py infra   # for `pulumi up` of a cloud stack and `make rehearse`
    python3 tools/setup.py run     # for `make up`
    python3 tools/setup.py dev     # also for `make test` and `make check`
    python3 tools/setup.py lock    # compile pyproject.toml into the locks; runs in the environment

Each step checks whether its result exists. Nothing is written outside the clone and the user's cache folder.
Standard library only, since it runs before there is an environment.
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

# As a script, this file is not part of a package that Python finds.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from infra.catalog.pins import PULUMI
from tools import go_build
from tools.go_build import GO, GO_VERSION, cache, version_of
from tools.process import Child

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".tools"
ENGINE = TOOLS / "bin" / "pulumi"
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
# From small to large: an environment from a larger lock also serves the smaller purposes.
LOCKS = {"infra": "requirements.txt", "run": "requirements-workloads.txt", "dev": "requirements-dev.txt"}
ENGINE_VERSION = tuple(map(int, PULUMI.split(".")))
PYTHON_VERSION = (3, 11)
# On a terminal, the next line overwrites a line of progress.
_END = "\r" if sys.stdout.isatty() else "\n"
_HOSTS = ("pulumi-language-python", "pulumi-resource-pulumi-python")


class SetupError(RuntimeError):
    """A step failed. The message contains the fix."""


def main(purpose: str) -> None:
    """Install the environment for `purpose` ("infra", "run" or "dev") and the engine."""
    if sys.version_info[:2] < PYTHON_VERSION:
        raise SetupError(
            f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed. Name another one, as in: "
            f"make up PYTHON=python3.12"
        )
    began = time.monotonic()
    # Before minutes of downloads, to report a missing prerequisite immediately.
    own_engine = find_engine()
    install_environment(purpose)
    between = time.monotonic()
    install_engine(own_engine)
    seconds = {"environment": between - began, "engine": time.monotonic() - between}
    (TOOLS / "setup.json").write_text(json.dumps(seconds))


def lock() -> None:
    """Compile pyproject.toml into the locks, with hashes, for every platform and Python from 3.11."""
    # The largest lock constrains the smaller ones, so that they agree.
    extras = {
        "dev": ["--all-extras"],
        "run": ["--extra", "infra", "--extra", "workloads"],
        "infra": ["--extra", "infra"],
    }
    for purpose, selection in extras.items():
        name = LOCKS[purpose]
        selection += ["--constraint", LOCKS["dev"]] if purpose != "dev" else []
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "pyproject.toml", "--output-file", name),
            *("--universal", "--python-version", "3.11", "--generate-hashes"),
            # Annotations and addresses depend on the machine that compiles.
            *("--no-emit-index-url", "--no-annotate", "--no-header", *selection),
        ]
        subprocess.run(command, cwd=ROOT, check=True)
        print(f"{name}: {(ROOT / name).read_text().count('==')} packages")


def find_engine() -> Path | None:
    """Return the user's Pulumi if it is recent enough, else None, so that the pinned one is built.

    Raises:
        SetupError: There is neither a recent Pulumi nor a Go to build one.
    """
    program = shutil.which("pulumi", path=_foreign_path())
    if program and (version := version_of([program, "version"])) and version >= ENGINE_VERSION:
        return Path(program)
    if _built_engine().exists() or ((go := version_of(["go", "version"])) and go >= GO_VERSION):
        return None
    seen = f"found {program}, which is older than {PULUMI}" if program else "no 'pulumi' is on PATH"
    raise SetupError(
        f"A Pulumi engine is missing: {seen}. Either\n"
        f"  - install Pulumi {PULUMI} or later (https://www.pulumi.com/docs/install/), or\n"
        f"  - install Go {GO} or later (https://go.dev/dl/), with which this project builds the engine\n"
        "    itself (3 to 5 minutes, once),\nand run the same command again."
    )


def install_environment(purpose: str) -> None:
    """Create `.venv` from the lock for `purpose`, unless it exists.

    Raises:
        SetupError: The packages cannot be installed. The installer has printed the reason.
    """
    order = list(LOCKS)
    stamps = {name: _digest(ROOT / LOCKS[name]) for name in order}
    stamp = ENVIRONMENT / "rdma-ray-lock"
    current = stamp.read_text() if stamp.exists() else ""
    # Keep a larger environment: `make up` after `make test` must not remove the test tools.
    if PYTHON.exists() and current in [stamps[name] for name in order[order.index(purpose) :]]:
        return say("Python environment", "up to date (.venv)")
    lock = ROOT / LOCKS[purpose]
    say("Python environment", f"installing {lock.name} into .venv: 0.5 to 5 minutes, mostly download")
    began = time.monotonic()
    if not (stamp.exists() and PYTHON.exists()):
        # Incomplete, from another lock, or without its interpreter.
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
    stamp.unlink(missing_ok=True)
    # uv is several times faster than pip and checks the same hashes; pip checks the hashes of uv.
    match = re.search(r"^uv==.*?(?=^\S|\Z)", (ROOT / LOCKS["dev"]).read_text(), re.MULTILINE | re.DOTALL)
    if match is None:
        raise SetupError(f"{LOCKS['dev']} does not pin uv: run 'make lock' and commit the result")
    requirement = ENVIRONMENT / "uv-requirement.txt"
    requirement.write_text(match.group())
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes", "-r"]
    _run([*pip, str(requirement)])
    uv = [str(PYTHON), "-m", "uv", "pip", "sync", "--quiet", "--python", str(PYTHON), "--require-hashes", str(lock)]
    _run(uv, waiting=lambda elapsed: say("Python environment", f"installing … {elapsed:.0f} s", end=_END))
    stamp.write_text(stamps[purpose])
    return say("Python environment", f"installed in {time.monotonic() - began:.0f} s")


def install_engine(own: Path | None) -> None:
    """Install the engine in .tools/bin: a link to the user's, or the pinned one, built once per machine.

    Raises:
        SetupError: The build failed. The message contains the end of the compiler's output.
    """
    ENGINE.parent.mkdir(parents=True, exist_ok=True)
    if own:
        _link(ENGINE, own)
        say("Pulumi engine", f"your own, {own}")
    else:
        built = _built_engine()
        if not built.exists():
            _build_engine(built)
        # A hard link or copy: the engine looks for its language hosts next to its resolved path.
        if not ENGINE.exists() or ENGINE.is_symlink() or not ENGINE.samefile(built):
            ENGINE.unlink(missing_ok=True)
            try:
                ENGINE.hardlink_to(built)
            except OSError:
                # The cache is on another file system.
                shutil.copy2(built, ENGINE)
        say("Pulumi engine", f"v{PULUMI}, built here from the pinned module")
    for host in _HOSTS:
        place = ENGINE.parent / host
        if own and shutil.which(host, path=f"{_foreign_path()}{os.pathsep}{own.resolve().parent}"):
            place.unlink(missing_ok=True)
        else:
            _link(place, Path("..", "..", "tools", "host", host))


def say(step: str, text: str, *, end: str = "\n") -> None:
    """Print a line of progress."""
    clear = "\x1b[K" if sys.stdout.isatty() else ""
    print(f"{clear}  {step:<20} {text}", end=end, flush=True)


def _foreign_path() -> str:
    """Return PATH without this clone's folders, whose bin/pulumi is a wrapper of the engine."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder).resolve().is_relative_to(ROOT))


def _built_engine() -> Path:
    """Return the pinned engine's path in the user's cache, which depends on pin and platform."""
    key = _digest(ROOT / "tools" / "engine" / "go.sum", f"{ENGINE_VERSION}{sys.platform}{os.uname().machine}")
    return cache() / f"engine-{key}" / "pulumi"


def _build_engine(target: Path) -> None:
    module = go_build.Module(
        manifest=ROOT / "tools" / "engine",
        packages={"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        count=1684,
        duration="3 to 5 min in all",
        ldflags=f"-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{PULUMI}",
        tags="osusergo,grpcnotrace",
        trimpath=False,
    )
    try:
        seconds = go_build.build(
            module, ["pulumi"], target.parent, lambda text, more: say("Pulumi engine", text, end=_END if more else "\n")
        )
    except go_build.GoError as problem:
        raise SetupError(
            f"The Pulumi engine v{PULUMI} could not be built (tools/engine/go.mod):\n{problem}\n"
            "Fix that, or install Pulumi (https://www.pulumi.com/docs/install/), and run the same command again."
        ) from problem
    say("Pulumi engine", f"built in {seconds:.0f} s")


def _digest(path: Path, salt: str = "") -> str:
    return hashlib.sha256(path.read_bytes() + salt.encode()).hexdigest()[:16]


def _run(command: list[str], waiting: Callable[[float], None] = lambda _: None) -> None:
    """Run a command; `waiting` receives the elapsed seconds, on a terminal every second."""
    if status := Child(command, cwd=ROOT).complete(waiting=waiting, every_s=1 if sys.stdout.isatty() else 15):
        raise SetupError(f"{' '.join(command[:6])} … failed with exit status {status}; see above")


def _link(place: Path, target: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(target)


if __name__ == "__main__":
    try:
        purpose = sys.argv[1] if len(sys.argv) > 1 else "run"
        lock() if purpose == "lock" else main(purpose)
    except SetupError as problem:
        sys.exit(f"\nsetup: {problem}")
    except KeyboardInterrupt:
        sys.exit("\nsetup: interrupted; run it again to continue")
