"""The simulated Google Cloud: networks, GKE, IAM and storage as far as the stacks use them.

Ids, computed outputs, refusals and changes of its own follow the real APIs; no machine runs.
"""
