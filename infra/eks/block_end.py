"""The end of a Capacity Block: the GPU nodes are drained before EC2 takes them, and no new ones come until it is over.

EC2 begins to take the instances 30 minutes before the end, and EKS advises to have scaled to zero by then (EC2 docs,
capacity-blocks-monitor; EKS docs, capacity-blocks; read 2026-11). So the Auto Scaling group of the node group has two
scheduled actions. The first takes its size and its bound to 0: EKS cordons and drains each node, whose pods get
SIGTERM, and the autoscaler, which reads the bound, brings none back for the pods that wait again. The second, at the
end, gives the group its bound back, so that it is what `up` made and the next block needs nothing by hand.
(terraform-aws-eks PR #2504, 2023-03, does so on AWS for managed node groups.)

When the block ends comes from the stack file: a preview asks AWS nothing. Both actions recur, once a year: AWS deletes
one that ran for good, after which the next `up` would ask for it anew and be refused, since its time is past.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import autoscaling

EVICTION_MINUTES = 15
"""How long EKS drains a node before its instance is terminated all the same (EKS docs; from memory, 2026-11)."""
TAKEN_MINUTES = 30
"""How long before the block's end EC2 begins to take instances (EC2 docs, capacity-blocks-monitor, read 2026-11)."""

LEAVE = -1
"""What the provider takes for "as it is" (pulumi-aws 7.51.1, autoscaling.Schedule)."""


@dataclass(frozen=True, kw_only=True)
class BlockEndArgs:
    """group: the Auto Scaling group. most: the bound of its size. ends: the block's end, ISO 8601 in UTC."""

    group: pulumi.Input[str]
    most: int
    ends: str


class BlockEnd(pulumi.ComponentResource):
    """The two scheduled actions at the end of a block."""

    def __init__(self, name: str, args: BlockEndArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:BlockEnd", name, {}, opts)
        end = datetime.fromisoformat(args.ends)
        drained = end - timedelta(minutes=TAKEN_MINUTES + EVICTION_MINUTES)
        self._action("drain", drained, args.group, most=0, desired=0)
        self._action("reopen", end, args.group, most=args.most, desired=LEAVE)
        self.register_outputs({})

    def _action(self, does: str, when: datetime, group: pulumi.Input[str], *, most: int, desired: int) -> None:
        autoscaling.Schedule(
            does,
            # The time is in the name: for another time it is another action. Changing the old one's would send the
            # start that AWS once computed for it, and be refused if that is past (terraform-provider-aws #38983).
            scheduled_action_name=f"{does}-{when:%Y%m%d-%H%M}",
            autoscaling_group_name=group,
            recurrence=yearly(when),
            min_size=0,
            max_size=most,
            desired_capacity=desired,
            opts=ResourceOptions(parent=self),
        )


def yearly(when: datetime) -> str:
    """The cron line of a minute of the year; Auto Scaling reads it in UTC."""
    return f"{when.minute} {when.hour} {when.day} {when.month} *"
