"""What the links of a stack's machines can carry, out of the catalogue: the cluster's side knows no machine types."""

from __future__ import annotations

from infra.catalog.machines import CATALOG, NVLINK
from workloads.nccl.point_patterns import Limits


def limits_of(machine: str | None) -> Limits | None:
    """The limits of a machine type; None for one that is not in the catalogue, and for none (`local`)."""
    if machine is None or machine not in CATALOG:
        return None
    row = CATALOG[machine]
    link = NVLINK.get(row.gpu)
    return Limits(
        machine=row.name,
        gpus=row.gpus,
        nics=row.nics,
        gbps_per_nic=row.gbps_per_nic,
        nvlink=link.bandwidth if link else None,
    )
