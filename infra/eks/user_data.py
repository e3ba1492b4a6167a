"""What a GPU node is told at its first start: a NodeConfig for nodeadm, perhaps a script, as MIME user data.

Pure. EKS adds a part of its own with the cluster's name, endpoint and certificate; ours says only what differs.
"""

from __future__ import annotations

import base64
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from typing import Any

import yaml

from infra.catalog.pins import NODEADM_API

NODEADM = "awslabs/amazon-eks-ami: nodeadm docs, NodeConfig v1alpha1, 81fec2e, 2026-07-23"

BOUNDARY = "rdma-ray-node-config"
"""Fixed: a random one would make a new launch template version, and with it new nodes, in every `up`."""

MEMLOCK_BYTES = 2**50
"""A pebibyte: more than any node has. Not RLIM_INFINITY (2**64 - 1), because nodeadm merges this into containerd's
specification by way of JSON, whose numbers it reads as floats: that one would come out larger than the kernel takes
(nodeadm: internal/containerd/base_runtime_spec.go, 603b9f03, read 2026-11; the overflow is inferred)."""

OPEN_FILES = {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576}
"""nodeadm's own default, repeated because a list replaces the default's list and is not added to it
(internal/containerd/base-runtime-spec.json, 6aa77750, read 2026-11; replacement by its Merge, inferred)."""

LUSTRE_CLIENT = "https://docs.aws.amazon.com/fsx/latest/LustreGuide/samples"
LUSTRE_SETUP = "configure-efa-fsx-lustre-client"
"""AWS' own set-up of a Lustre client, which names and pins no version, and where it lies (FSx for Lustre docs,
configure-efa-clients; read 2026-11): loads Lustre's modules, adds eight of the EFA devices of a P5 or P6, and does so
again at every start of the machine."""


def node_config() -> dict[str, Any]:
    """What differs from nodeadm's defaults on a GPU node."""
    return {
        "apiVersion": NODEADM_API,
        "kind": "NodeConfig",
        "spec": {
            # The NVMe disks as one, with containerd and kubelet on it: images of 20 GB come from and go to fast disks.
            "instance": {"localStorage": {"strategy": "RAID0"}},
            # Registering memory with an EFA locks it, and the default of 8 MiB ends NCCL at its first buffer. Lifted
            # here for every container of the node, so no pod needs root and IPC_LOCK for it (infra/eks/fabric.py).
            "containerd": {
                "baseRuntimeSpec": {
                    "process": {
                        "rlimits": [
                            {"type": "RLIMIT_MEMLOCK", "soft": MEMLOCK_BYTES, "hard": MEMLOCK_BYTES},
                            OPEN_FILES,
                        ]
                    }
                }
            },
        },
    }


def lustre_over_efa() -> str:
    """The script that lets the node's Lustre client speak EFA, before anything mounts.

    cloud-init runs it before nodeadm starts the kubelet (amazon-eks-ami docs, nodeadm: nodeadm-run comes after user
    data; read 2026-11). Where a step fails, the node comes up all the same and its client speaks TCP, as it would
    without the script; /var/log/cloud-init-output.log says which step. Modules read their settings when they are
    loaded, so this must stay the first to load Lustre on a node. Without GPUDirect Storage: the node image has no
    nvidia-fs.
    """
    return f"""#!/bin/bash
set -euo pipefail
dnf install -y lustre-client unzip
cd "$(mktemp -d)"
curl -fsS --retry 10 --retry-all-errors -O {LUSTRE_CLIENT}/{LUSTRE_SETUP}.zip
unzip -q {LUSTRE_SETUP}.zip
cd {LUSTRE_SETUP}
./setup.sh
lnetctl net show | grep '@efa'
"""


def user_data(config: dict[str, Any], script: str | None = None) -> str:
    """A NodeConfig, and a script for a shell, as a launch template's user data: MIME, base64, the same text for the
    same parts."""
    document = MIMEMultipart("mixed", boundary=BOUNDARY)
    document.attach(_part("application", "node.eks.aws", yaml.safe_dump(config, sort_keys=False)))
    if script is not None:
        document.attach(_part("text", "x-shellscript", script))
    return base64.b64encode(document.as_bytes()).decode("ascii")


def _part(type_: str, subtype: str, text: str) -> MIMENonMultipart:
    part = MIMENonMultipart(type_, subtype)
    part.set_payload(text)
    return part
