"""From a stack file to resources: settings, catalog, addresses, and the components of each target.

Workloads are not part of this package: `workloads` starts from the stack's outputs.
"""
