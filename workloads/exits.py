"""Exit codes of every `rdma-ray` command, the same on the cluster and on the user's machine."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    ERROR = 1  # usage, or something that broke before there was a result
    BELOW = 2  # a result below what was asked for (accuracy, bandwidth)
    WRONG_DATA = 3  # a collective delivered wrong numbers
    HANG = 4  # no answer within the time-out; communicator aborted, ranks killed
    NOT_AS_ASKED = 5  # something else was measured: sockets, no GPUDirect RDMA, a NIC missing, one host, few ranks
    STOPPED = 130  # the user stopped it (Ctrl-C), as shells count


class WorkloadError(Exception):
    """An error whose message is meant for the user as it stands: what was wrong, and the fix."""

    def __init__(self, message: str, code: Exit = Exit.ERROR) -> None:
        super().__init__(message)
        self.code = code


def last_line(error: BaseException) -> str:
    """What Ray's long errors come to: their last line; the kind of error where it has no words."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
