"""Published images whose tags do not name the Ray that is in them; facts, each with its source."""

from __future__ import annotations

AWS_RAY_TRAIN = "public.ecr.aws/deep-learning-containers/ray:train-ml-cuda-v1.1.0"
"""Ray, torch 2.13.0 for CUDA 13, NCCL 2.29.7, EFA 1.49.0 and aws-ofi-nccl 1.20.0, Python 3.13. AWS publishes no release
of it without training on several nodes over EFA and under KubeRay (aws/deep-learning-containers: docs/ray-train, its
changelog of 2026-09-01, read 2026-11)."""

RAY_IN = {AWS_RAY_TRAIN: "2.58.0"}
"""The Ray of an image, by the whole name of the image."""

RAY = "2.60.0"
"""The Ray of every other image, unless the stack file says otherwise: the project's own."""
