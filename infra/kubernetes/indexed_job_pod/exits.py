"""Exit codes of a pod: the entry point's own, or one of these.

They do not use 1 to 5 and 130, which the entry point uses (workloads.exits), nor 128 + N, an exit by signal N.
"""

from __future__ import annotations

USAGE = 64
"""The pod's environment is incomplete or inconsistent."""
RAY_FAILED = 70
"""Ray did not start on this pod, or ended unexpectedly."""
HEAD_NOT_FOUND = 71
"""Neither the name nor the file led to the head of this Job in time."""
TOO_FEW_NODES = 72
"""Not every pod joined in time, or Ray does not report their nodes as alive."""
PEER_LOST = 73
"""A pod was lost or restarted while the Job ran, which ends the generation."""
WRONG_TOKEN = 77
"""Head and worker have different tokens."""
STOPPED = 143
"""This pod was asked to end (SIGTERM)."""


def of_peer(code: int) -> int:
    """Return the exit code of this pod after another one ended with `code`: a peer that was asked to end is lost to the
    others, and STOPPED would say that this pod was asked."""
    return PEER_LOST if code == STOPPED else code
