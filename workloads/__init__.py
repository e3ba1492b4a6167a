"""What is used after `pulumi up`: benchmarks, training and the client that submits them.

Nothing here knows a cloud SDK or Pulumi: the stack's outputs (`infra.outputs`) are all that it is told.
"""
