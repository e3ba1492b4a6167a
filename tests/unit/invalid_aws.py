"""Stack files that only AWS rejects."""

from __future__ import annotations

from infra.catalog.pins import RAY
from infra.settings import EksSettings

from .stacks import EKS, Case, changed

ECR = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
BUCKET = {"storage.bucket": "ours"}
CLOSED = {"access.egress": "endpoints", "access.imageMirror": f"{ECR}/mirror", "ray.image": f"{ECR}/ray:{RAY}"}
"""A stack without a way to the Internet."""

CASES = (
    Case(
        EksSettings.block_end_without_block,
        EKS,
        {"nodes.blockEnds": "2026-12-03T11:30:00Z"},
        {
            "nodes.blockEnds": "2026-12-03T11:30:00Z",
            "nodes.capacity": "capacity-block",
            "nodes.reservation": "cr-0123456789abcdef0",
        },
    ),
    Case(
        EksSettings.second_zone_wrong,
        EKS,
        {"network.secondZone": "us-east-1a"},
        {"network.secondZone": "us-east-1f"},
    ),
    Case(
        EksSettings.second_zone_wrong,
        changed(EKS, {"location": "use1-az1"}),
        {"network.secondZone": "us-east-1b"},
        {"network.secondZone": "use1-az4"},
    ),
    Case(
        EksSettings.second_zone_wrong,
        EKS,
        {"network.secondZone": "us-west-2b"},
        {"network.secondZone": "us-east-1b"},
    ),
    Case(
        EksSettings.second_zone_wrong,
        EKS,
        {"network.secondZone": "somewhere"},
        {"network.secondZone": "us-east-1c"},
    ),
    Case(
        EksSettings.interfaces_unavailable,
        EKS,
        {"network.interfaces": "bandwidth-optimised"},
        {"network.interfaces": "bandwidth-optimised", "nodes.machine": "p5e.48xlarge"},
    ),
    Case(
        EksSettings.endpoints_without_mirror,
        changed(EKS, {"ray.image": f"{ECR}/ray-efa:{RAY}"}),
        {"access.egress": "endpoints"},
        {"access.egress": "endpoints", "access.imageMirror": f"{ECR}/mirror"},
    ),
    Case(
        EksSettings.image_out_of_reach,
        changed(EKS, {"access.imageMirror": f"{ECR}/mirror", "ray.image": None}),
        {"access.egress": "endpoints"},
        {"access.egress": "endpoints", "ray.image": f"{ECR}/ray-efa:{RAY}"},
    ),
    Case(
        EksSettings.file_system_size,
        changed(EKS, BUCKET),
        {"storage.capacityGib": 2000},
        {"storage.capacityGib": 4800},
    ),
    Case(
        EksSettings.file_system_size,
        changed(EKS, BUCKET),
        {"storage.efa": True, "storage.capacityGib": 2400},
        {"storage.efa": True, "storage.capacityGib": 4800},
    ),
    Case(
        EksSettings.file_system_without_efa_client,
        changed(EKS, {**BUCKET, "storage.capacityGib": 4800}),
        {"storage.efa": True, "nodes.machine": "p4d.24xlarge"},
        {"storage.efa": True, "nodes.machine": "p6-b300.48xlarge"},
    ),
    Case(
        EksSettings.file_system_client_out_of_reach,
        changed(EKS, {**BUCKET, **CLOSED, "storage.capacityGib": 4800}),
        {"storage.efa": True},
        {"storage.efa": True, "access.egress": "nat"},
    ),
    Case(
        EksSettings.file_system_devices_exceeded,
        changed(EKS, {**BUCKET, "storage.capacityGib": 4800}),
        {"storage.efa": True, "nodes.max": 129},
        {"storage.efa": True, "nodes.max": 128},
    ),
    Case(
        EksSettings.file_system_without_bucket,
        EKS,
        {"storage.capacityGib": 2400},
        {"storage.capacityGib": 2400, **BUCKET},
    ),
    Case(
        EksSettings.file_system_without_bucket,
        EKS,
        {"storage.efa": True, "storage.capacityGib": 4800},
        {"storage.efa": True, "storage.capacityGib": 4800, **BUCKET},
    ),
    Case(
        EksSettings.administrator_malformed,
        EKS,
        {"access.administrators": ["arn:aws:sts::111122223333:assumed-role/ops/me"]},
        {"access.administrators": ["arn:aws:iam::111122223333:role/ops"]},
    ),
)
