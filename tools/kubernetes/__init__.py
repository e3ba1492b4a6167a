"""A real Kubernetes on this machine, without Docker and without a cloud: its builds, its processes, a client for it."""
