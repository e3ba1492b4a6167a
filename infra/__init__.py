"""From a stack file to resources: settings, facts, rules, addresses, and the components of each target.

Nothing here runs a workload; `workloads` begins where the stack's outputs end.
"""
