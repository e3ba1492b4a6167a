"""Valid stack files, and ways to change one setting of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from infra.catalog.pins import RAY
from infra.settings import EksSettings, GkeSettings, Problem, SettingsError, parse
from infra.settings.load import SETTINGS

GKE: dict[str, Any] = {
    "target": "gke",
    "location": "us-central1-b",
    "nodes": {"machine": "a3-ultragpu-8g"},
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
EKS: dict[str, Any] = {
    "target": "eks",
    "location": "us-east-1a",
    "nodes": {"machine": "p5en.48xlarge"},
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
LOCAL: dict[str, Any] = {"target": "local"}


def changed(stack: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The stack file with dotted settings set; None takes a setting out."""
    result: dict[str, Any] = copy.deepcopy(dict(stack))
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        place = result.setdefault(section, {}) if section else result
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return result


def gke(changes: Mapping[str, Any] | None = None) -> GkeSettings:
    """The settings of the stack file `GKE` with changes."""
    settings = parse(changed(GKE, changes or {}))
    assert isinstance(settings, GkeSettings)
    return settings


def eks(changes: Mapping[str, Any] | None = None) -> EksSettings:
    """The settings of the stack file `EKS` with changes."""
    settings = parse(changed(EKS, changes or {}))
    assert isinstance(settings, EksSettings)
    return settings


def names(path: str) -> tuple[str, ...]:
    """Every name that a setting takes on any target."""
    return tuple(dict.fromkeys(name for setting in SETTINGS[path].values() for name in setting.every_name))


def problems_of(raw: Mapping[str, Any], *, stack: str | None = None) -> tuple[Problem, ...]:
    """The problems of a stack file; none if it is valid."""
    try:
        parse(raw, stack=stack)
    except SettingsError as error:
        return error.problems
    return ()


_OBSOLETE = """
FI_PROVIDER FI_EFA_USE_DEVICE_RDMA FI_EFA_FORK_SAFE RDMAV_FORK_SAFE NCCL_PROTO NCCL_ALGO NCCL_TUNER_PLUGIN
NCCL_BUFFSIZE NCCL_P2P_NET_CHUNKSIZE NCCL_NVLS_CHUNKSIZE NCCL_NVLSTREE_MAX_CHUNKSIZE NCCL_NET_FORCE_FLUSH
NCCL_NETDEVS_POLICY NCCL_TIMEOUT OFI_NCCL_PROTOCOL
"""
OBSOLETE = tuple(_OBSOLETE.split())
"""Variables of EFA that older guides set and that must stay unset: the plugin sets or chooses them by platform, some
turn off its tuner, and NCCL never had an NCCL_TIMEOUT (awslabs/awsome-distributed-ai: 1.architectures/
efa-cheatsheet.md, 95b939cd, 2026-07-23; aws/aws-ofi-nccl: src/platform-aws.cpp, 2daf7d3)."""
