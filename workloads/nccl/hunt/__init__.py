"""Find the slow node or NIC: a schedule of tests, the verdict, a simulator to try both on, and the run on a cluster.

The pure half (plan, ruler, fleet, pairs, groups, confirm, rails, search, simulate) knows nothing of Ray or torch.
"""
