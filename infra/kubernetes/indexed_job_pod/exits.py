"""Exit codes of a pod: the entry point's own, or one of these.

They leave 1 to 5 and 130 to the entry point (workloads.exits), and 128 + N to a death by signal N.
"""

from __future__ import annotations

USAGE = 64
"""The pod's environment lacks something, or contradicts itself."""
RAY_FAILED = 70
"""Ray did not start on this pod, or ended by itself."""
HEAD_NOT_FOUND = 71
"""Neither the name nor the file led to this Job's head in time."""
TOO_FEW_NODES = 72
"""Not every pod joined in time, or Ray does not count their nodes as alive."""
PEER_LOST = 73
"""A pod was lost or restarted in the middle: the generation is over."""
WRONG_TOKEN = 77
"""Head and worker do not have the same token."""
STOPPED = 143
"""Somebody asked this pod to end (SIGTERM)."""
