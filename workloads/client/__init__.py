"""The user's side of a cluster: reads a stack's outputs, submits jobs, follows their logs, shows what runs.

Nothing here imports torch; only `submit` imports ray, because Ray's own client packs and uploads the code.
"""
