"""Benchmarks of the collectives between the ranks of a cluster: NCCL on GPUs, gloo on CPUs, verified bit by bit.

The training step's own collectives are not measured here; see `workloads.train`.
"""
