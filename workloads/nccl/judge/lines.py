"""Lines of a log as their program wrote them, without what terminals, launchers and collectors put around. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
# Open MPI's --tag-output and PRRTE's, before which a collector may have put a time or a pod's name.
_MPI = re.compile(r"^.{0,200}?\[[^\[\]\s]{0,80}?\d+,\d+\] ?<std(?:out|err)> ?: ?")
# A watchdog's, a scheduler's or a time limit's last word.
_HANG = re.compile(
    r"Test timeout \(\d+s\)"  # nccl-tests -T
    r"|[Ww]atchdog caught collective operation timeout"  # torch.distributed
    r"|NCCL WARN .{0,400}(?:[Tt]imed ?-?out|[Tt]imeout)"
    r"|time limit for job execution has been reached"  # mpirun --timeout
    r"|CANCELLED AT .{0,40} DUE TO TIME LIMIT"  # Slurm
    r"|DeadlineExceeded"  # a Kubernetes Job's activeDeadlineSeconds
)
_ERROR = re.compile(
    r"Test (?:NCCL|CUDA) failure"
    r"|Invalid number of GPUs"
    r"|mpirun noticed that|mpirun was unable|ORTE (?:was unable|has lost)|PRTE has lost"
    r"|exited on signal \d"
    r"|error while loading shared libraries"
    r"|command not found"
)
KEPT = 5  # lines of one kind: the first ones tell what the others repeat


def clean(text: str) -> Iterator[str]:
    """The lines without colours, carriage returns and launchers' tags."""
    for line in text.splitlines():
        yield _MPI.sub("", _ANSI.sub("", line)).rstrip()


def hangs(text: str) -> tuple[str, ...]:
    """The first lines that tell of a hang or a time-out."""
    return _found(_HANG, text)


def errors(text: str) -> tuple[str, ...]:
    """The first lines that tell why a run broke."""
    return _found(_ERROR, text)


def _found(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in clean(text):
        if pattern.search(line[:2000]):
            found[line.strip()[:300]] = None
            if len(found) == KEPT:
                break
    return tuple(found)
