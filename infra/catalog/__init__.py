"""Facts as data: machines, capacity, published baselines and pinned versions, each with its source."""
