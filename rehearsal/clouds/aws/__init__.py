"""The simulated AWS: VPC, EC2 launch templates, EKS, IAM, FSx for Lustre and what goes with them.

Request and answer are those of the pulumi-aws provider; what the APIs refuse is in the modules `rules_…`.
"""
