"""What brings the project's tools onto a machine that lacks them, and the `make up` that ties everything together."""
