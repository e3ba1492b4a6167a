"""nccl-tests without Ray: the command that prints a Kubernetes Job for a stack file."""
