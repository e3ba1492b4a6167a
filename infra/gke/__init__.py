"""The Google Cloud half: A3 Ultra and A4 on GKE, RoCE by gIB.

It makes networks, cluster, node pools and what GKE needs in the cluster; Ray and queues are in `infra.kubernetes`.
"""
