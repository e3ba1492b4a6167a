"""The gIB installer: a DaemonSet that puts Google's NCCL plugin on every node with the machine's GPUs.

Own, typed and pinned. Google publishes a manifest whose branch changed what it installs between two days (commit
2da1c92f, 2026-05-06, dropped the replacement of the image's NCCL); a cluster must not change because a branch did.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import apps, core, meta

from infra.catalog.machines import GkeMachine
from infra.catalog.pins import GIB, GIB_IMAGE, PAUSE_IMAGE
from infra.gke.fabric import HOST_GIB, HOST_NVIDIA

LABELS = {"k8s-app": "nccl-rdma-installer"}
HOST_LIBRARIES = f"{HOST_NVIDIA}/lib64"

# Copied, not moved: the container may run again on the same node, for example after a reboot.
INSTALL = (
    "set -eu; "
    "/scripts/container_entry.sh install; "
    f"cp -R /var/lib/gib/lib64/. /usr/local{HOST_LIBRARIES}; "
    f"cp -R /var/lib/gib/. /usr/local{HOST_GIB}"
)


@dataclass(frozen=True, kw_only=True)
class NcclInstallerArgs:
    """machine: the type whose nodes get the plugin."""

    machine: GkeMachine


class NcclInstaller(pulumi.ComponentResource):
    """The DaemonSet. Its init container does the work and is the only privileged one of the stack.

    Another version reaches a node when its pod is deleted or the node is new (`OnDelete`): a rolling update would
    replace libraries under running jobs. Flex-start nodes are new every seven days at the latest.
    """

    def __init__(self, name: str, args: NcclInstallerArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:NcclInstaller", name, {}, opts)
        apps.v1.DaemonSet(
            name,
            metadata=meta.v1.ObjectMetaArgs(
                name=args.machine.nccl_installer,
                namespace="kube-system",
                labels=LABELS,
                # Ready means "every node runs this version's pod". `up` of another version would wait until somebody
                # has deleted the old pods, and a refresh would report each GPU node that is still installing.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=apps.v1.DaemonSetSpecArgs(
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                update_strategy=apps.v1.DaemonSetUpdateStrategyArgs(type="OnDelete"),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(labels={"name": args.machine.nccl_installer, **LABELS}),
                    spec=_pod(args.machine),
                ),
            ),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"version": GIB})


def _pod(machine: GkeMachine) -> core.v1.PodSpecArgs:
    return core.v1.PodSpecArgs(
        priority_class_name="system-node-critical",
        # As Google's own: the installer must run before the node's pod network does, and asks nothing of it.
        host_network=True,
        host_pid=True,
        automount_service_account_token=False,
        affinity=core.v1.AffinityArgs(
            node_affinity=core.v1.NodeAffinityArgs(
                required_during_scheduling_ignored_during_execution=core.v1.NodeSelectorArgs(
                    node_selector_terms=[
                        core.v1.NodeSelectorTermArgs(
                            match_expressions=[
                                core.v1.NodeSelectorRequirementArgs(
                                    key="cloud.google.com/gke-accelerator", operator="In", values=[machine.accelerator]
                                )
                            ]
                        )
                    ]
                )
            )
        ),
        tolerations=[core.v1.TolerationArgs(operator="Exists")],
        volumes=[
            core.v1.VolumeArgs(
                name="libraries",
                host_path=core.v1.HostPathVolumeSourceArgs(path=HOST_LIBRARIES, type="DirectoryOrCreate"),
            ),
            core.v1.VolumeArgs(
                name="gib", host_path=core.v1.HostPathVolumeSourceArgs(path=HOST_GIB, type="DirectoryOrCreate")
            ),
        ],
        init_containers=[
            core.v1.ContainerArgs(
                name="nccl-rdma-installer",
                image=GIB_IMAGE,
                image_pull_policy="IfNotPresent",
                security_context=core.v1.SecurityContextArgs(privileged=True),
                resources=core.v1.ResourceRequirementsArgs(requests={"cpu": "150m"}),
                command=["/bin/sh", "-c", INSTALL],
                volume_mounts=[
                    core.v1.VolumeMountArgs(name="libraries", mount_path=f"/usr/local{HOST_LIBRARIES}"),
                    core.v1.VolumeMountArgs(name="gib", mount_path=f"/usr/local{HOST_GIB}"),
                ],
            )
        ],
        containers=[core.v1.ContainerArgs(name="pause", image=PAUSE_IMAGE)],
    )
