"""From a stack file to a cluster: settings, then the target's resources, then the outputs contract."""

from __future__ import annotations

import os
from typing import Any

import pulumi

from infra.cost import log_cost
from infra.settings import (
    CloudSettings,
    EksSettings,
    GkeSettings,
    KubernetesSettings,
    LocalSettings,
    Settings,
    SettingsError,
    warnings,
)
from infra.settings.load import load
from infra.settings.problems import empty_passphrase


def main() -> None:
    """Read the stack file, create the target's resources, export what `workloads` needs."""
    try:
        outputs = deploy(checked(load()))
    except SettingsError as problems:
        # Every problem is in the message; a traceback would bury it.
        raise pulumi.RunError(str(problems)) from None
    for name, value in outputs.items():
        pulumi.export(name, value)


def checked(settings: Settings) -> Settings:
    """Return the settings, if the engine may write a state with their secrets.

    A preview writes none. In CI an undefined secret is an empty variable, also where no passphrase is in use. Warnings
    and the cost go to the engine's diagnostics.
    """
    for warning in warnings(settings):
        pulumi.log.warn(str(warning))
    if isinstance(settings, CloudSettings):
        log_cost(settings)
    empty = os.environ.get("PULUMI_CONFIG_PASSPHRASE") == ""
    if empty and settings.target != "local" and not pulumi.runtime.is_dry_run():
        raise SettingsError([empty_passphrase(pulumi.get_stack())], origin="The environment")
    return settings


def deploy(settings: Settings) -> dict[str, Any]:
    """Register the target's resources; return the stack's outputs."""
    # One import per target: `pulumi up` of one cloud needs neither the other's SDK nor Ray.
    match settings:
        case LocalSettings():
            from infra.local import stack as local

            return local.deploy(settings)
        case GkeSettings():
            from infra.gke import stack as gke

            return gke.deploy(settings)
        case EksSettings():
            from infra.eks import stack as eks

            return eks.deploy(settings)
        case KubernetesSettings():
            from infra.existing import stack as existing

            return existing.deploy(settings)


main()
