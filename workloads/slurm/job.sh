# One Ray node on each node of the allocation, by one step of Slurm (workloads/slurm/node.py, docs/slurm.md).
