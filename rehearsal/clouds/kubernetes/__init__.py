"""The simulated Kubernetes API of a GKE or EKS cluster, in memory: objects, admission, CRDs; no controller runs.

The real API server, scheduler and controllers are another depth of the rehearsal.
"""
