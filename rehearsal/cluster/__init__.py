"""Depths `cluster` and `pods`: the Kubernetes half of a rehearsal by a real API server, scheduler, KubeRay and Kueue.

At depth `cluster` no container runs: nodes are kwok's. At depth `pods` they are real (`real_nodes`), and what is sent
is scaled to this machine (`fitted`). What only a cloud has is stood in for (`landlord`).
"""
