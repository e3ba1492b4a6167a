"""The gIB installer: a DaemonSet that copies Google's NCCL plugin to every node with the machine's GPUs.

The DaemonSet is defined and pinned here, because Google's manifest is on a branch whose content changes without a
release (commit 2da1c92f, 2026-05-06, dropped the replacement of the image's NCCL).
"""

from __future__ import annotations

from collections.abc import Collection

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import apps, core

from infra.catalog.fabrics import HOST_GIB, HOST_NVIDIA, INSTALLED
from infra.catalog.gcp import ACCELERATOR_LABEL, POOL_LABEL
from infra.catalog.machines import GkeMachine
from infra.catalog.pins import GIB, GIB_IMAGE, PAUSE_IMAGE

LABELS = {"k8s-app": "nccl-rdma-installer"}
HOST_LIBRARIES = f"{HOST_NVIDIA}/lib64"
LIBRARIES, GIB_FOLDER = f"/usr/local{HOST_LIBRARIES}", f"/usr/local{HOST_GIB}"
"""Where the installer's container has these folders of the node."""

# cp, not mv: the container may run again on the same node, for example after a reboot. Workers wait for the last file.
INSTALL = (
    "set -eu; "
    f"rm -f {GIB_FOLDER}/{INSTALLED}; "
    "/scripts/container_entry.sh install; "
    f"cp -R /var/lib/gib/lib64/. {LIBRARIES}; "
    f"cp -R /var/lib/gib/. {GIB_FOLDER}; "
    f": > {GIB_FOLDER}/{INSTALLED}"
)


class NcclInstaller(pulumi.ComponentResource):
    """DaemonSet for the nodes of `machine`. Its init container installs, and is the stack's only privileged container.

    A node gets a new version when its pod is deleted or the node is created (`OnDelete`): a rolling update would
    replace libraries under running jobs. Flex-start nodes are replaced at least every seven days.

    Args:
        pools: The only node pools that get it, in a cluster that has others; empty for every one with the machine.
    """

    def __init__(
        self, name: str, machine: GkeMachine, opts: ResourceOptions | None = None, *, pools: Collection[str] = ()
    ) -> None:
        super().__init__("rdma-ray:gke:NcclInstaller", name, {}, opts)
        labels = {"name": machine.nccl_installer, **LABELS}
        apps.v1.DaemonSet(
            name,
            metadata={
                "name": machine.nccl_installer,
                "namespace": "kube-system",
                "labels": LABELS,
                # The provider awaits this version's pod on every node: `up` of a new version would wait until the old
                # pods are deleted, and a refresh would report each GPU node that is still installing.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec={
                "selector": {"match_labels": LABELS},
                "update_strategy": {"type": "OnDelete"},
                "template": {"metadata": {"labels": labels}, "spec": _pod(machine, pools)},
            },
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"version": GIB})


def _pod(machine: GkeMachine, pools: Collection[str]) -> core.v1.PodSpecArgsDict:
    labels = {ACCELERATOR_LABEL: [machine.accelerator], **({POOL_LABEL: [*pools]} if pools else {})}
    selector: core.v1.NodeSelectorArgsDict = {
        "node_selector_terms": [
            {"match_expressions": [{"key": key, "operator": "In", "values": each} for key, each in labels.items()]}
        ]
    }
    return {
        "priority_class_name": "system-node-critical",
        # As in Google's manifest: the installer runs before the node's pod network does, and does not use it.
        "host_network": True,
        "host_pid": True,
        "automount_service_account_token": False,
        "affinity": {"node_affinity": {"required_during_scheduling_ignored_during_execution": selector}},
        "tolerations": [{"operator": "Exists"}],
        "volumes": [
            {"name": "libraries", "host_path": {"path": HOST_LIBRARIES, "type": "DirectoryOrCreate"}},
            {"name": "gib", "host_path": {"path": HOST_GIB, "type": "DirectoryOrCreate"}},
        ],
        "init_containers": [
            {
                "name": "nccl-rdma-installer",
                "image": GIB_IMAGE,
                "image_pull_policy": "IfNotPresent",
                "security_context": {"privileged": True},
                "resources": {"requests": {"cpu": "150m"}},
                "command": ["/bin/sh", "-c", INSTALL],
                "volume_mounts": [
                    {"name": "libraries", "mount_path": LIBRARIES},
                    {"name": "gib", "mount_path": GIB_FOLDER},
                ],
            }
        ],
        "containers": [{"name": "pause", "image": PAUSE_IMAGE}],
    }
