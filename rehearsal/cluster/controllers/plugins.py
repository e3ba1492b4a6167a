"""Devices on existing nodes: counts change when a plugin, a driver or a Network is added or removed.

Replaces the pods of device plugins and of DRANET, which register with the kubelet; `devices` has their devices and
sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.pins import DEVICE_API
from rehearsal.clouds.kind import Json
from rehearsal.cluster.controllers.devices import DRIVER, EFA, GPU, NETWORK_PREFIX, claimable, offered, resource_slice
from rehearsal.cluster.controllers.nodes import pool_of
from rehearsal.cluster.controllers.snapshot import Context, Snapshot

SLICES = (DEVICE_API, "ResourceSlice")


class Plugins:
    """Maintains the counts in the nodes' status and the drivers' ResourceSlices."""

    name = "device plugins"

    def __init__(self, context: Context) -> None:
        self._context = context

    def reconcile(self, snapshot: Snapshot) -> None:
        """Correct the devices, node by node."""
        pools = {pool.name: pool for pool in snapshot.pools}
        api = self._context.api
        slices = {each["spec"].get("nodeName"): each for each in api.list(*SLICES) if each["spec"]["driver"] == DRIVER}
        for its in snapshot.nodes:
            pool = pools.get(str(pool_of(its)))
            if pool is None:
                continue
            name = its["metadata"]["name"]
            change = difference(its, offered(pool, snapshot.networks, snapshot.charts))
            if change:
                status = {"status": {"capacity": change, "allocatable": change}}
                api.patch("v1", "Node", name, None, status, subresource="status")
            claimed, there = claimable(pool, snapshot.charts), slices.get(name)
            if claimed and there is None:
                api.create(resource_slice(its, claimed))
            if not claimed and there is not None:
                api.delete(*SLICES, there["metadata"]["name"])


def difference(node: Json, devices: Mapping[str, int]) -> dict[str, str | None]:
    """Return the status patch that gives a node exactly these devices of ours. Pure."""
    there = {
        name: str(count)
        for name, count in ((node.get("status") or {}).get("capacity") or {}).items()
        if name in (GPU, EFA) or name.startswith(NETWORK_PREFIX)
    }
    wanted = {name: str(count) for name, count in devices.items()}
    changed: dict[str, str | None] = {name: count for name, count in wanted.items() if there.get(name) != count}
    return changed | dict.fromkeys(there.keys() - wanted.keys())
