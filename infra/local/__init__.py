"""Ray on this machine: one head and N worker nodes, each a process group of its own, as Pulumi resources.

It shows that a stack comes up, drifts, heals and comes down; it says nothing about a network (one machine has none).
"""
