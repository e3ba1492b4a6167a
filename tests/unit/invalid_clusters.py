"""Stack files with a fabric, Ray, job or access that does not work."""

from __future__ import annotations

from infra.catalog.pins import AWS_RAY_TRAIN, RAY
from infra.settings import CloudSettings, EksSettings, GkeSettings, LocalSettings

from .stacks import EKS, GKE, LOCAL, Case, changed

JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}

CASES = (
    Case(
        GkeSettings.location_not_a_zone,
        GKE,
        {"location": "us-central1"},
        {"location": "europe-west4-b"},
    ),
    Case(EksSettings.location_not_a_zone, EKS, {"location": "us-east-1"}, {"location": "use1-az1"}),
    Case(
        EksSettings.location_not_a_zone,
        EKS,
        {"location": "us-central1-b"},
        {"location": "ap-southeast-2c"},
    ),
    Case(None, GKE, {"fabric": "efa"}, {"fabric": "dranet"}),
    Case(None, EKS, {"fabric": "dranet"}, {"fabric": "efa-dranet", "nodes.min": 1}),
    Case(
        EksSettings.claims_from_zero_nodes,
        EKS,
        {"fabric": "efa-dranet"},
        {"fabric": "efa-dranet", "nodes.min": 1},
    ),
    Case(
        CloudSettings.base_range_public,
        GKE,
        {"network.baseRange": "11.0.0.0/14"},
        {"network.baseRange": "172.16.0.0/14"},
    ),
    Case(
        GkeSettings.base_range_too_small,
        GKE,
        {"network.baseRange": "10.0.0.0/20"},
        {"network.baseRange": "10.0.0.0/19"},
    ),
    Case(
        EksSettings.base_range_wrong_size,
        EKS,
        {"network.baseRange": "10.0.0.0/15"},
        {"network.baseRange": "10.0.0.0/16"},
    ),
    Case(CloudSettings.nodes_min_above_max, EKS, {"nodes.min": 3}, {"nodes.min": 2}),
    Case(CloudSettings.workers_above_nodes, GKE, {"ray.maxWorkers": 3}, {"ray.maxWorkers": 2}),
    Case(
        CloudSettings.workers_min_above_max,
        GKE,
        {"ray.minWorkers": 2, "ray.maxWorkers": 1},
        {"ray.minWorkers": 1, "ray.maxWorkers": 1},
    ),
    Case(None, LOCAL, {"ray.version": "2.51.9"}, {"ray.version": "2.52.0"}),
    Case(
        CloudSettings.image_runs_another_ray,
        GKE,
        {"ray.image": "example/ray:2.59.0-py311-cu128"},
        {"ray.image": "example/ray@sha256:" + "0" * 64},
    ),
    Case(
        CloudSettings.image_runs_another_ray,
        EKS,
        {"ray.image": AWS_RAY_TRAIN, "ray.version": RAY},
        {"ray.image": AWS_RAY_TRAIN},
    ),
    Case(
        CloudSettings.image_is_gpu_alias,
        GKE,
        {"ray.image": f"example/ray:{RAY}-gpu"},
        {"ray.image": f"example/ray-gpu:{RAY}-cu128"},
    ),
    Case(
        CloudSettings.image_too_old_for_blackwell,
        EKS,
        {"nodes.machine": "p6-b200.48xlarge", "ray.image": f"example/ray:{RAY}-py311-cu126"},
        {"nodes.machine": "p5en.48xlarge", "ray.image": f"example/ray:{RAY}-py311-cu126"},
    ),
    Case(
        LocalSettings.too_many_cpus,
        LOCAL,
        {"nodes.count": 33, "nodes.cpus": 32},
        {"nodes.count": 32, "nodes.cpus": 32},
    ),
    Case(
        CloudSettings.public_endpoint_for_the_internet,
        GKE,
        {"access.publicEndpoint": True},
        {"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32"]},
    ),
    Case(
        CloudSettings.public_endpoint_for_the_internet,
        EKS,
        {"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32", "0.0.0.0/0"]},
        {"access.publicEndpoint": False, "access.authorizedNetworks": ["0.0.0.0/0"]},
    ),
    Case(
        GkeSettings.bucket_malformed,
        GKE,
        {"storage.bucket": "gs://ours/data"},
        {"storage.bucket": "ours_data"},
    ),
    Case(
        EksSettings.bucket_malformed,
        EKS,
        {"storage.bucket": "ours_data"},
        {"storage.bucket": "ours-data"},
    ),
    Case(
        CloudSettings.mount_path_hides_system,
        GKE,
        {"storage.mountPath": "/usr/local/gib"},
        {"storage.mountPath": "/mnt/usr"},
    ),
    Case(CloudSettings.entrypoint_without_job, GKE, {"ray.mode": "indexed-job"}, JOB),
    Case(
        CloudSettings.entrypoint_without_job,
        EKS,
        {"ray.entrypoint": "torchrun train.py"},
        {"ray.entrypoint": "torchrun train.py", "ray.mode": "indexed-job"},
    ),
    Case(
        CloudSettings.job_size_not_fixed,
        changed(GKE, JOB),
        {"ray.minWorkers": 1},
        {"ray.minWorkers": 2},
    ),
    Case(
        CloudSettings.torchrun_not_on_every_pod,
        changed(GKE, {**JOB, "ray.mode": "job"}),
        {"ray.entrypoint": "torchrun --nproc-per-node=gpu /app/train.py"},
        {"ray.entrypoint": "torchrun --nproc-per-node=gpu /app/train.py", "ray.mode": "indexed-job"},
    ),
    *(
        Case(
            CloudSettings.torchrun_not_on_every_pod,
            changed(GKE, {**JOB, "ray.mode": "job"}),
            {"ray.entrypoint": wrong},
            {"ray.entrypoint": "python launch.py --with torchrun"},
        )
        for wrong in (
            "/opt/bin/torchrun train.py",
            "cd /app && torchrun train.py",
            "NCCL_DEBUG=INFO exec torchrun train.py",
            "python3 -m torch.distributed.run train.py",
        )
    ),
    *(
        Case(
            CloudSettings.torchrun_not_on_every_pod,
            changed(GKE, JOB),
            {"ray.entrypoint": wrong},
            {"ray.entrypoint": "torchrun train.py"},
        )
        for wrong in ("cd /app && torchrun train.py", "NCCL_DEBUG=INFO torchrun train.py", "/opt/bin/torchrun train.py")
    ),
    *(
        Case(
            CloudSettings.job_size_not_fixed,
            changed(stack, {**JOB, "ray.mode": "job"}),
            {"ray.minWorkers": 1},
            {"ray.minWorkers": 2},
        )
        for stack in (GKE, EKS)
    ),
    Case(
        CloudSettings.entrypoint_without_job,
        EKS,
        {"ray.mode": "job"},
        {**JOB, "ray.mode": "job"},
    ),
)
