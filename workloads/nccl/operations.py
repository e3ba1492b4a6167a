"""Everything that can be measured, by name."""

from __future__ import annotations

from workloads.nccl.collectives import AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter
from workloads.nccl.operation import Operation
from workloads.nccl.points import SendBoth, SendDown, SendUp

OPERATIONS: dict[str, tuple[type[Operation], ...]] = {
    "all_reduce": (AllReduce,),
    "all_gather": (AllGather,),
    "reduce_scatter": (ReduceScatter,),
    "all_to_all": (AllToAll,),
    "broadcast": (Broadcast,),
    "sendrecv": (SendUp, SendDown, SendBoth),
}
"""By name: the measurements that an operation consists of."""
