"""From a stack file to a cluster: settings, then the target's resources, then the outputs contract."""

from __future__ import annotations

from typing import Any

import pulumi

from infra.settings import EksSettings, GkeSettings, LocalSettings, Settings, SettingsError
from infra.settings.load import load


def main() -> None:
    """Read the stack file, create the target's resources, export what `workloads` needs."""
    try:
        outputs = deploy(load())
    except SettingsError as problems:
        # Every problem is in the message; a traceback would bury it.
        raise pulumi.RunError(str(problems)) from None
    for name, value in outputs.items():
        pulumi.export(name, value)


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


main()
