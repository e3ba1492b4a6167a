"""Depth `cluster`: the Kubernetes half of a rehearsal by a real API server, scheduler, KubeRay and Kueue.

It makes no node and runs no container: nodes are kwok's, and what only a cloud has is stood in for (`landlord`).
"""
