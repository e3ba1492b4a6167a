"""What any cluster gets: operators, the RayCluster, its token and its network policy.

It knows no cloud: what a pod needs there arrives as a `GpuPod` and a few values.
"""
