"""Exit codes of all `rdma-ray` commands, on the cluster and on the user's machine."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    ERROR = 1  # usage, or a failure before there was a result
    BELOW = 2  # a result below the requested one (accuracy, bandwidth)
    WRONG_DATA = 3  # a collective delivered wrong numbers
    HANG = 4  # no answer within the timeout; communicator aborted, ranks killed
    NOT_AS_ASKED = 5  # not the requested measurement: sockets, no GPUDirect RDMA, a NIC missing, one host, bad GPUs
    STOPPED = 130  # the user stopped it (Ctrl-C), as in shells


class WorkloadError(Exception):
    """Error with a message for the user: the problem and the fix."""

    def __init__(self, message: str, code: Exit = Exit.ERROR) -> None:
        super().__init__(message)
        self.code = code


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


PEER_FAULTS = ("by peer", "broken pipe", "refused", "timed out", "timeout", "remote process", "failed to recv")
"""Parts of messages that blame another rank: gloo's (tcp/pair.cc), c10d's sockets and NCCL's ncclRemoteError."""


def blames_peer(text: str) -> bool:
    """Return whether an error's text blames another rank, which has ended or does not answer."""
    return any(part in text.lower() for part in PEER_FAULTS)
