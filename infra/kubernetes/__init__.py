"""What any cluster gets: operators, the RayCluster, its token and its network policy.

It knows no cloud: what a pod needs there arrives as a `GpuPod` and a few values.

The clouds' providers leave enableSecretMutable and enableConfigMapMutable off (both beta in pulumi-kubernetes 4.34.2).
What changes by content here is Ray's token and the scripts of an Indexed Job, and pods that run have read both: another
content under the same name would part them from those that come later. So a preview shows a replacement, and
`rdma-ray:protect` refuses it until somebody has looked.
"""
