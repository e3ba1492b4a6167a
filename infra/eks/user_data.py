"""What a GPU node is told at its first start: a NodeConfig for nodeadm, as MIME user data.

Pure. EKS adds a part of its own with the cluster's name, endpoint and certificate; ours says only what differs.
"""

from __future__ import annotations

import base64
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from typing import Any

import yaml

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


def node_config() -> dict[str, Any]:
    """What differs from nodeadm's defaults on a GPU node."""
    return {
        "apiVersion": "node.eks.aws/v1alpha1",
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


def user_data(config: dict[str, Any]) -> str:
    """A NodeConfig as a launch template's user data: MIME, base64, the same text for the same config."""
    document = MIMEMultipart("mixed", boundary=BOUNDARY)
    part = MIMENonMultipart("application", "node.eks.aws")
    part.set_payload(yaml.safe_dump(config, sort_keys=False))
    document.attach(part)
    return base64.b64encode(document.as_bytes()).decode("ascii")
