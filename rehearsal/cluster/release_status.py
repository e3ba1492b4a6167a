"""Helm releases at this depth: who says of a release that what its chart brings is running.

The provider writes the release into the world, with its values, and waits for the word of the one who plays it: the
landlord starts the real controller of `kuberay-operator` and of `kueue`, and says "ready"; of a chart whose pods only
do something on a real machine (device plugins) it says "stand-in". After a deletion it stops the controller and says
"stopped".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rehearsal.clouds.kind import Json
from rehearsal.clouds.state import View
from tools.kubernetes.api import Api

SETTING = "controllers"
"""The world's setting: id of the release ("namespace/name") to state and words."""
SOURCE = "helm 3.18: pkg/action; pulumi-kubernetes: provider/pkg/provider/helm_release.go, 94977969, 2026-07-01"


@dataclass(frozen=True)
class Said:
    """state: "" (nobody has seen it), "starting", "ready", "stand-in", "failed" or "stopped"; words: why, or what."""

    status: str = ""
    words: str = ""


def say(state: View, id_: str, status: str, words: str = "") -> None:
    """Say how it stands with a release."""
    state.set(SETTING, {**state.setting(SETTING, {}), id_: asdict(Said(status, words))})


def said(state: View, id_: str) -> Said:
    """How it stands with a release."""
    found: Any = state.setting(SETTING, {}).get(id_) or {}
    return Said(**found) if isinstance(found, dict) else Said(str(found))


def prepare(server: Api, inputs: Json) -> None:
    """Make the release's namespace, if Helm is told to."""
    namespace = inputs.get("namespace")
    if inputs.get("createNamespace") and namespace:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"name": namespace}}}
        server.apply(body, manager="helm")
