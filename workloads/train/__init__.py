"""Training on Ray Train: real data, distributed data parallel, checkpoints that survive an interruption.

Bandwidth is not proven here: a small model needs little of a network. See `workloads.nccl`.
"""
