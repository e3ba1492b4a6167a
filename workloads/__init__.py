"""Benchmarks, training, and the client that submits them. They know a stack by its outputs only (`infra.outputs`)."""
