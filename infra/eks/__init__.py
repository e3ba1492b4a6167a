"""The AWS half: P4d to P6 on EKS, EFA.

It makes networks, cluster, node groups and what EKS needs in the cluster; Ray and queues are in `infra.kubernetes`.
"""
