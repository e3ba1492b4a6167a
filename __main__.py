"""From a stack file to a cluster: settings, then the target's resources, then the outputs contract."""

from __future__ import annotations

import pulumi

from infra.problems import SettingsError
from infra.settings import load


def main() -> None:
    """Read the stack file, make the target's resources, export what `workloads` needs."""
    try:
        settings = load()
    except SettingsError as problems:
        # Every problem is in the message; a traceback would bury it.
        raise pulumi.RunError(str(problems)) from None
    # One import per target: `pulumi up` of one cloud needs neither the other's SDK nor Ray.
    match settings.target:
        case "local":
            from infra.local.stack import deploy
        case target:
            raise pulumi.RunError(
                f"target: {target} is a known target, but this version makes only local stacks. "
                f"`bin/rdma-ray plan` checks a {target} stack file and prints its address plan"
            )
    for name, value in deploy(settings).items():
        pulumi.export(name, value)


main()
