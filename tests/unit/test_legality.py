"""Each rule: one stack file in which it alone speaks, and the edge on the other side of which it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from infra.legality import RULES, Rule, access, aws, capacity, fabric, indexed_job, ray
from infra.ray_images import AWS_RAY_TRAIN

from .stacks import EKS, GKE, LOCAL, changed, problems_of


@dataclass(frozen=True)
class Case:
    """A rule, a legal stack file, the change that makes the rule speak, and a nearby change that is legal."""

    rule: Rule
    stack: dict[str, Any]
    bad: dict[str, Any]
    good: dict[str, Any]
    about: str
    hint: str


QUEUED = changed(GKE, {"nodes.capacity": "flex-start-queued", "queue": "kueue"})
CLASSED = changed(GKE, {"computeClass": True, "nodes.fallback": "spot"})

ECR = "111122223333.dkr.ecr.us-east-1.amazonaws.com"

JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}

CASES = [
    Case(
        capacity.machine_of_other_cloud,
        GKE,
        {"nodes.machine": "p5.48xlarge"},
        {"nodes.machine": "a4-highgpu-8g"},
        "nodes.machine",
        "set target to eks",
    ),
    Case(
        capacity.machine_of_other_cloud,
        EKS,
        {"nodes.machine": "a4x-highgpu-4g"},
        {"nodes.machine": "p6-b300.48xlarge"},
        "nodes.machine",
        "set target to gke",
    ),
    Case(
        capacity.machine_unsupported,
        GKE,
        {"nodes.machine": "a4x-highgpu-4g"},
        {"nodes.machine": "a4-highgpu-8g"},
        "nodes.machine",
        "choose one of a3-ultragpu-8g, a4-highgpu-8g",
    ),
    Case(
        capacity.capacity_of_other_cloud,
        GKE,
        {"nodes.capacity": "capacity-block", "nodes.reservation": "ours"},
        {"nodes.capacity": "reservation", "nodes.reservation": "ours"},
        "nodes.capacity",
        "flex-start, flex-start-queued, spot, reservation, on-demand",
    ),
    Case(
        capacity.capacity_of_other_cloud,
        EKS,
        {"nodes.capacity": "flex-start"},
        {"nodes.capacity": "spot"},
        "nodes.capacity",
        "on-demand, spot, reservation, capacity-block",
    ),
    Case(
        capacity.capacity_not_obtainable,
        GKE,
        {"nodes.capacity": "on-demand"},
        {"nodes.capacity": "spot"},
        "nodes.capacity",
        "flex-start",
    ),
    Case(
        capacity.capacity_not_obtainable,
        EKS,
        {"nodes.capacity": "spot", "nodes.machine": "p6-b300.48xlarge"},
        {"nodes.capacity": "spot", "nodes.machine": "p6-b200.48xlarge"},
        "nodes.capacity",
        "on-demand, reservation, capacity-block",
    ),
    Case(
        capacity.reservation_missing,
        GKE,
        {"nodes.capacity": "reservation"},
        {"nodes.capacity": "reservation", "nodes.reservation": "ours"},
        "nodes.reservation",
        "name",
    ),
    Case(
        capacity.reservation_missing,
        CLASSED,
        {"nodes.fallback": "reservation"},
        {"nodes.fallback": "reservation", "nodes.reservation": "ours"},
        "nodes.reservation",
        "name",
    ),
    Case(
        capacity.reservation_missing,
        EKS,
        {"nodes.capacity": "capacity-block"},
        {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0"},
        "nodes.reservation",
        "cr-",
    ),
    Case(
        capacity.reservation_unused,
        GKE,
        {"nodes.reservation": "ours"},
        {"nodes.reservation": "ours", "nodes.capacity": "reservation"},
        "nodes.reservation",
        "remove nodes.reservation",
    ),
    Case(
        capacity.reservation_unused,
        EKS,
        {"nodes.reservation": "cr-0123456789abcdef0"},
        {"nodes.reservation": "cr-0123456789abcdef0", "nodes.capacity": "reservation"},
        "nodes.reservation",
        "remove nodes.reservation",
    ),
    Case(
        aws.block_end_unused,
        EKS,
        {"nodes.blockEnds": "2026-12-03T11:30:00Z"},
        {
            "nodes.blockEnds": "2026-12-03T11:30:00Z",
            "nodes.capacity": "capacity-block",
            "nodes.reservation": "cr-0123456789abcdef0",
        },
        "nodes.blockEnds",
        "remove nodes.blockEnds",
    ),
    Case(
        capacity.reservation_misspelt,
        EKS,
        {"nodes.reservation": "ours", "nodes.capacity": "reservation"},
        {"nodes.reservation": "cr-0123456789abcdef0", "nodes.capacity": "reservation"},
        "nodes.reservation",
        "cr-0123456789abcdef0",
    ),
    Case(
        capacity.reservation_misspelt,
        GKE,
        {"nodes.reservation": "Ours!", "nodes.capacity": "reservation"},
        {"nodes.reservation": "projects/p/reservations/ours/reservationBlocks/b-1", "nodes.capacity": "reservation"},
        "nodes.reservation",
        "projects/",
    ),
    Case(
        capacity.flex_runs_too_long,
        GKE,
        {"nodes.maxRunHours": 169},
        {"nodes.maxRunHours": 168},
        "nodes.maxRunHours",
        "168 or less",
    ),
    Case(
        capacity.run_time_without_flex,
        GKE,
        {"nodes.maxRunHours": 24, "nodes.capacity": "spot"},
        {"nodes.maxRunHours": 24},
        "nodes.maxRunHours",
        "remove nodes.maxRunHours",
    ),
    Case(
        capacity.flex_is_not_static,
        GKE,
        {"nodes.min": 1},
        {"nodes.min": 1, "nodes.capacity": "spot"},
        "nodes.min",
        "set nodes.min to 0",
    ),
    Case(capacity.queued_starts_empty, QUEUED, {"nodes.min": 1}, {}, "nodes.min", "set nodes.min to 0"),
    Case(capacity.queued_needs_kueue, QUEUED, {"queue": "none"}, {}, "nodes.capacity", "set queue to kueue"),
    Case(capacity.queued_with_compute_class, QUEUED, {"computeClass": True}, {}, "computeClass", "false"),
    Case(capacity.queued_has_no_fallback, QUEUED, {"nodes.fallback": "spot"}, {}, "nodes.fallback", "remove"),
    Case(
        capacity.fallback_of_other_cloud,
        CLASSED,
        {"nodes.fallback": "capacity-block", "nodes.capacity": "reservation", "nodes.reservation": "ours"},
        {},
        "nodes.fallback",
        "flex-start",
    ),
    Case(
        capacity.fallback_not_obtainable,
        CLASSED,
        {"nodes.fallback": "on-demand"},
        {"nodes.capacity": "spot", "nodes.fallback": "flex-start"},
        "nodes.fallback",
        "spot",
    ),
    Case(
        capacity.fallback_needs_compute_class,
        CLASSED,
        {"computeClass": False},
        {},
        "nodes.fallback",
        "set computeClass to true",
    ),
    Case(
        capacity.fallback_repeats_capacity,
        CLASSED,
        {"nodes.fallback": "flex-start"},
        {},
        "nodes.fallback",
        "another fallback",
    ),
    Case(
        capacity.fallback_cannot_queue,
        CLASSED,
        {"nodes.fallback": "flex-start-queued"},
        {},
        "nodes.fallback",
        "flex-start or spot",
    ),
    Case(
        capacity.capacity_block_starts_empty,
        EKS,
        {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0", "nodes.min": 1},
        {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0", "nodes.min": 0},
        "nodes.min",
        "set nodes.min to 0",
    ),
    Case(
        fabric.location_is_a_zone,
        GKE,
        {"location": "us-central1"},
        {"location": "europe-west4-b"},
        "location",
        "us-central1-b",
    ),
    Case(fabric.location_is_a_zone, EKS, {"location": "us-east-1"}, {"location": "use1-az1"}, "location", "us-east-1a"),
    Case(
        fabric.location_is_a_zone,
        EKS,
        {"location": "us-central1-b"},
        {"location": "ap-southeast-2c"},
        "location",
        "us-east-1a",
    ),
    Case(fabric.fabric_of_other_cloud, GKE, {"fabric": "efa"}, {"fabric": "dranet"}, "fabric", "managed-dranet"),
    Case(
        fabric.fabric_of_other_cloud,
        EKS,
        {"fabric": "dranet"},
        {"fabric": "efa-dranet", "nodes.min": 1},
        "fabric",
        "efa, efa-dranet",
    ),
    Case(
        fabric.efa_dranet_cannot_wake,
        EKS,
        {"fabric": "efa-dranet"},
        {"fabric": "efa-dranet", "nodes.min": 1},
        "fabric",
        "set nodes.min to 1",
    ),
    Case(
        fabric.base_range_is_private,
        GKE,
        {"network.baseRange": "11.0.0.0/14"},
        {"network.baseRange": "172.16.0.0/14"},
        "network.baseRange",
        "10.0.0.0/8",
    ),
    Case(
        fabric.base_range_holds_the_nodes,
        GKE,
        {"network.baseRange": "10.0.0.0/20"},
        {"network.baseRange": "10.0.0.0/19"},
        "network.baseRange",
        "/19",
    ),
    Case(
        fabric.base_range_holds_the_nodes,
        EKS,
        {"network.baseRange": "10.0.0.0/15"},
        {"network.baseRange": "10.0.0.0/16"},
        "network.baseRange",
        "10.0.0.0/16",
    ),
    Case(ray.nodes_min_above_max, EKS, {"nodes.min": 3}, {"nodes.min": 2}, "nodes.min", "raise nodes.max to 3"),
    Case(
        ray.workers_above_nodes, GKE, {"ray.maxWorkers": 3}, {"ray.maxWorkers": 2}, "ray.maxWorkers", "raise nodes.max"
    ),
    Case(
        ray.workers_min_above_max,
        GKE,
        {"ray.minWorkers": 2, "ray.maxWorkers": 1},
        {"ray.minWorkers": 1, "ray.maxWorkers": 1},
        "ray.minWorkers",
        "lower ray.minWorkers",
    ),
    Case(
        ray.kueue_wants_a_fixed_size,
        GKE,
        {"queue": "kueue", "ray.minWorkers": 0},
        {"queue": "kueue", "ray.minWorkers": 2},
        "ray.minWorkers",
        "set ray.minWorkers to 2",
    ),
    Case(
        ray.ray_too_old_for_tokens,
        LOCAL,
        {"ray.version": "2.51.9"},
        {"ray.version": "2.52.0"},
        "ray.version",
        "2.52.0",
    ),
    Case(
        ray.image_runs_another_ray,
        GKE,
        {"ray.image": "example/ray:2.59.0-py311-cu128"},
        {"ray.image": "example/ray@sha256:" + "0" * 64},
        "ray.image",
        "2.60.0",
    ),
    Case(
        ray.image_runs_another_ray,
        EKS,
        {"ray.image": AWS_RAY_TRAIN, "ray.version": "2.60.0"},
        {"ray.image": AWS_RAY_TRAIN},
        "ray.image",
        'set ray.version to "2.58.0"',
    ),
    Case(
        ray.image_is_the_gpu_alias,
        GKE,
        {"ray.image": "example/ray:2.60.0-gpu"},
        {"ray.image": "example/ray-gpu:2.60.0-cu128"},
        "ray.image",
        "cu128",
    ),
    Case(
        ray.image_too_old_for_blackwell,
        EKS,
        {"nodes.machine": "p6-b200.48xlarge", "ray.image": "example/ray:2.60.0-py311-cu126"},
        {"nodes.machine": "p5en.48xlarge", "ray.image": "example/ray:2.60.0-py311-cu126"},
        "ray.image",
        "cu128",
    ),
    Case(
        ray.local_cpus_beyond_reason,
        LOCAL,
        {"nodes.count": 33, "nodes.cpus": 32},
        {"nodes.count": 32, "nodes.cpus": 32},
        "nodes.count",
        "1024",
    ),
    Case(
        access.public_endpoint_for_nobody,
        GKE,
        {"access.publicEndpoint": True},
        {"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32"]},
        "access.publicEndpoint",
        "203.0.113.7/32",
    ),
    Case(
        access.public_endpoint_for_everybody,
        EKS,
        {"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32", "0.0.0.0/0"]},
        {"access.publicEndpoint": False, "access.authorizedNetworks": ["0.0.0.0/0"]},
        "access.authorizedNetworks",
        "203.0.113.7/32",
    ),
    Case(
        access.bucket_misspelt,
        GKE,
        {"storage.bucket": "gs://ours/data"},
        {"storage.bucket": "ours_data"},
        "storage.bucket",
        "write ours",
    ),
    Case(
        access.bucket_misspelt,
        EKS,
        {"storage.bucket": "ours_data"},
        {"storage.bucket": "ours-data"},
        "storage.bucket",
        "correct",
    ),
    Case(
        access.mount_path_hides_the_system,
        GKE,
        {"storage.mountPath": "/usr/local/gib"},
        {"storage.mountPath": "/mnt/usr"},
        "storage.mountPath",
        "/bucket",
    ),
    Case(
        aws.second_zone_unfit,
        EKS,
        {"network.secondZone": "us-east-1a"},
        {"network.secondZone": "us-east-1f"},
        "network.secondZone",
        "another zone of the region",
    ),
    Case(
        aws.second_zone_unfit,
        changed(EKS, {"location": "use1-az1"}),
        {"network.secondZone": "us-east-1b"},
        {"network.secondZone": "use1-az4"},
        "network.secondZone",
        "written like location",
    ),
    Case(
        aws.second_zone_unfit,
        EKS,
        {"network.secondZone": "us-west-2b"},
        {"network.secondZone": "us-east-1b"},
        "network.secondZone",
        "another zone of the region",
    ),
    Case(
        aws.second_zone_unfit,
        EKS,
        {"network.secondZone": "somewhere"},
        {"network.secondZone": "us-east-1c"},
        "network.secondZone",
        "leave network.secondZone out",
    ),
    Case(
        aws.interfaces_unfit,
        EKS,
        {"network.interfaces": "bandwidth-optimised"},
        {"network.interfaces": "bandwidth-optimised", "nodes.machine": "p5e.48xlarge"},
        "network.interfaces",
        "p5.48xlarge, p5e.48xlarge",
    ),
    Case(
        aws.endpoints_without_mirror,
        changed(EKS, {"ray.image": f"{ECR}/ray-efa:2.60.0"}),
        {"access.egress": "endpoints"},
        {"access.egress": "endpoints", "access.imageMirror": f"{ECR}/mirror"},
        "access.egress",
        "access.imageMirror",
    ),
    Case(
        aws.image_out_of_reach,
        changed(EKS, {"access.imageMirror": f"{ECR}/mirror", "ray.image": None}),
        {"access.egress": "endpoints"},
        {"access.egress": "endpoints", "ray.image": f"{ECR}/ray-efa:2.60.0"},
        "ray.image",
        "private registry",
    ),
    Case(
        aws.file_system_size,
        EKS,
        {"storage.capacityGib": 2000},
        {"storage.capacityGib": 4800},
        "storage.capacityGib",
        "2400",
    ),
    Case(
        aws.file_system_size,
        EKS,
        {"storage.efa": True, "storage.capacityGib": 2400},
        {"storage.efa": True, "storage.capacityGib": 4800},
        "storage.capacityGib",
        "4800",
    ),
    Case(
        aws.file_system_efa_unfit,
        changed(EKS, {"storage.capacityGib": 4800}),
        {"storage.efa": True, "nodes.machine": "p4d.24xlarge"},
        {"storage.efa": True, "nodes.machine": "p6-b300.48xlarge"},
        "storage.efa",
        "leave storage.efa out",
    ),
    Case(
        aws.administrator_misspelt,
        EKS,
        {"access.administrators": ["arn:aws:sts::111122223333:assumed-role/ops/me"]},
        {"access.administrators": ["arn:aws:iam::111122223333:role/ops"]},
        "access.administrators",
        "role/ops",
    ),
    Case(indexed_job.job_without_entrypoint, GKE, {"ray.mode": "indexed-job"}, JOB, "ray.mode", "set ray.entrypoint"),
    Case(
        indexed_job.entrypoint_without_job,
        EKS,
        {"ray.entrypoint": "torchrun train.py"},
        {"ray.entrypoint": "torchrun train.py", "ray.mode": "indexed-job"},
        "ray.entrypoint",
        "indexed-job",
    ),
    Case(
        indexed_job.job_wants_a_fixed_size,
        changed(GKE, JOB),
        {"ray.minWorkers": 1},
        {"ray.minWorkers": 2},
        "ray.minWorkers",
        "set ray.minWorkers to 2",
    ),
    Case(
        indexed_job.job_in_a_queue,
        changed(EKS, {"queue": "kueue"}),
        JOB,
        {"ray.minWorkers": 2},
        "ray.mode",
        "set queue to none",
    ),
]


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)
    assert len(RULES) == len(set(RULES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{case.stack['target']}")
def test_the_rule_alone_speaks(case: Case) -> None:
    assert problems_of(case.stack) == ()
    assert problems_of(changed(case.stack, case.good)) == ()
    (problem,) = problems_of(changed(case.stack, case.bad))
    assert problem.settings[0] == case.about
    assert case.hint in problem.fix
    assert problem.says.endswith(".")
    assert problem.source
    assert len(problem.values) == len(problem.settings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{case.stack['target']}")
def test_without_the_rule_the_case_would_pass(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.legality.RULES", tuple(rule for rule in RULES if rule is not case.rule))
    assert problems_of(changed(case.stack, case.bad)) == ()
