"""KubeRay in a cluster that the user has: whether it is there, watches Ray's namespace and is new enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from infra.catalog.names import KUBERAY_NAMES, STACK_LABEL
from infra.catalog.pins import KUBERAY, RAY_API
from infra.existing.kubectl import Json
from infra.existing.questions import ASK, Questions, containers, part, parts, place_of
from infra.settings import Problem

OLDEST_KUBERAY = (1, 6)
"""KubeRay's minor release from which tokens, the autoscaler's settings and the fields of workers are tested here."""
OPERATORS = f"labelSelector=app.kubernetes.io%2Fname+in+({','.join(KUBERAY_NAMES)})"
"""Selects KubeRay's operator among Deployments."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The setting by which a stack installs KubeRay or uses the cluster's: its path, and how to change it.

    `leftovers` is whether CRDs without an operator may be GKE's add-on.
    """

    path: str
    use_theirs: str
    install: str
    leftovers: bool = True


def kuberay_problems(found: Questions, choice: Choice, *, install: bool) -> Iterator[Problem]:
    """Yield why the stack cannot install KubeRay, or cannot use the one that is there."""
    every = parts(found.maybe(f"/apis/apps/v1/deployments?{OPERATORS}"), "items")
    there = [each for each in every if _watches(each, found.namespace)]
    if install:
        others = [place_of(each) for each in there if part(each, "metadata", "labels", STACK_LABEL) != found.stack]
        if others:
            yield found.problem(
                f"KubeRay is there, in the Deployment {few(others)}, and two operators would work on the same "
                "clusters.",
                choice.use_theirs,
                choice.path,
            )
        elif (
            choice.leftovers
            and not every
            and found.serves(RAY_API)
            and "-gke." in str(part(found.maybe("/version"), "gitVersion"))
        ):
            yield found.problem(
                f"The cluster serves {RAY_API} without a visible operator: GKE's Ray add-on, which must be the only "
                "operator of a cluster, or CRDs that an earlier installation left.",
                f"{choice.use_theirs}; without the add-on, first delete the CRDs and all of their "
                "objects: kubectl delete crd rayclusters.ray.io rayjobs.ray.io rayservices.ray.io",
                choice.path,
                source="GKE docs, Ray on GKE add-on; ray-project/kuberay #3115, read 2026-11",
            )
        return
    if not found.serves(RAY_API):
        yield found.problem(
            f"The cluster has no KubeRay: it does not serve {RAY_API}.",
            f"{choice.install} if you are an administrator, else {ASK} to install KubeRay {KUBERAY.version}, "
            "or set ray.mode to indexed-job",
            choice.path,
            found.place,
        )
        return
    if every and not there:
        yield found.problem(
            f"KubeRay is there, in the Deployment {few(map(place_of, every))}, and watches other namespaces than "
            f"{found.namespace}.",
            f"{ASK} to let it watch this one, or {choice.install}",
            found.where,
            choice.path,
        )
    for each in there:
        image = part(next(iter(containers(each)), {}), "image")
        tag = re.search(r":v?(\d{1,4})\.(\d{1,4})", str(image))
        if tag and (int(tag[1]), int(tag[2])) < OLDEST_KUBERAY:
            oldest = ".".join(map(str, OLDEST_KUBERAY))
            yield found.problem(
                f"KubeRay is {tag[1]}.{tag[2]}, but the stack needs {oldest} or later: an older one ignores fields "
                "such as the one that requires a token.",
                f"{ASK} to upgrade KubeRay to {KUBERAY.version}",
                found.place,
                source="ray-project/kuberay: release notes of 1.6; this project's tests run 1.6.2",
            )


def _watches(operator: Json, namespace: str) -> bool:
    """Return whether an operator's Deployment watches a namespace: without the argument, it watches all."""
    given = [part(each, name) for each in containers(operator) for name in ("command", "args")]
    words = [word for each in given if isinstance(each, list) for text in each for word in str(text).split("=", 1)]
    named = next((after for each, after in pairwise(words) if each == "--watch-namespace"), "")
    return not named or namespace in named.split(",")


def few(names: Iterable[str]) -> str:
    """Return at most three names as text."""
    first, *more = sorted(each[:126] for each in names)
    return ", ".join([first, *more[:2], *(["..."] if more[2:] else [])])
