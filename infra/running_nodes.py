"""Refusal of updates that would replace running nodes one after another, while `rdma-ray:protect` is true.

The engine's `protect` refuses replacements of resources only. An update in place of a node group or node pool can also
end every node in it: each is drained and recreated, and a gang of Ray workers does not survive the loss of one.

A PodDisruptionBudget of the workers would do worse. GKE waits an hour for one and then continues; EKS fails after 15
minutes with a part of the group updated; and pods would get no SIGTERM from the drains that precede a reclaim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulumi import ResourceHook, ResourceHookArgs, ResourceHookBinding

Values = Mapping[str, Any]


class RunningNodesError(RuntimeError):
    """An update would replace running nodes."""


def keep_running_nodes(
    name: str, *, protect: bool, nodes: Callable[[Values], int], recreates: Callable[[Values], Any]
) -> ResourceHookBinding | None:
    """Return the hook of a node group that refuses an update, or None without protection.

    Args:
        name: Name of the node group or node pool.
        nodes: Returns the running nodes from the last outputs, which the engine has refreshed.
        recreates: Returns the inputs whose change recreates nodes.
    """

    def refuse(args: ResourceHookArgs) -> None:
        refuse_replacement(args, name, nodes=nodes, recreates=recreates)

    return ResourceHookBinding(before_update=[ResourceHook(f"keep-{name}", refuse)]) if protect else None


def refuse_replacement(
    args: ResourceHookArgs, name: str, *, nodes: Callable[[Values], int], recreates: Callable[[Values], Any]
) -> None:
    """Raise `RunningNodesError` if an update would replace running nodes; the arguments are `keep_running_nodes`'."""
    outputs, now = args.old_outputs or {}, args.new_inputs or {}
    running = nodes(outputs)
    # An input that is new to the program, with the value that the cloud had chosen, changes nothing.
    before = {**{key: outputs[key] for key in now if key in outputs}, **(args.old_inputs or {})}
    if running and recreates(before) != recreates(now):
        raise RunningNodesError(
            f"rdma-ray:protect is true, and this update would replace the running nodes of {name} ({running}) and"
            " end what runs on them. When no job runs, set protect=false and run up (docs/changes.md)"
        )
