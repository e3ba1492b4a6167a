"""How the queue is shaped on AWS: one flavor for the GPU nodes. Pure: values for `infra.kubernetes`."""

from __future__ import annotations

from infra.catalog.aws import SYSTEM_MAX_NODES
from infra.catalog.machines import EksMachine
from infra.eks import fabric as fabrics
from infra.eks.names import SYSTEM_NODES
from infra.kubernetes.pods import node_wait_s
from infra.kubernetes.queue_objects import GPU_FLAVOR, Flavor, QueueArgs
from infra.settings import EksSettings as Settings


def queue_args(settings: Settings, machine: EksMachine) -> QueueArgs:
    """Return the arguments of the queue.

    The GPU nodes' labels are what workers select anyway, so that Kueue, which writes a flavor's labels into the pods'
    template, changes nothing. The head's quota is one head per CPU node, since one fills such a node beside what else
    runs there.
    """
    pod = fabrics.gpu_pod(settings, machine)
    claims = settings.fabric == "efa-dranet"
    return QueueArgs(
        system_labels=SYSTEM_NODES,
        heads=SYSTEM_MAX_NODES,
        flavors=(Flavor(name=GPU_FLAVOR, labels=pod.node_selector),),
        nodes=settings.nodes.max,
        pod=pod,
        nics=machine.efa_max if claims else 0,
        device_class=fabrics.EFA_DEVICE_CLASS if claims else None,
        wait_s=node_wait_s(settings),
    )
