"""Lines of ranks in a job's log, as the driver writes them and the client reads them.

2026-11-23T11:09:07.123Z rank 3 | text of the rank
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

TORCHRUN = "torchrun on "
"""First words of lines that torchrun itself writes, mostly about how it ends its ranks."""
_FORM = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) rank (\d{1,6}) \| (.*)", re.DOTALL)


@dataclass(frozen=True)
class RankLine:
    """Line of one rank. `time` is seconds since 1970 on the rank's node when the rank wrote it."""

    rank: int
    time: float
    text: str

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds")
        return f"{moment.removesuffix('+00:00')}Z rank {self.rank} | {self.text}"

    @staticmethod
    def parse(line: str) -> RankLine | None:
        """Return the rank's line in a line of a job's log; None if no rank wrote it."""
        match = _FORM.fullmatch(line)
        if match is None:
            return None
        try:
            moment = datetime.fromisoformat(match[1].removesuffix("Z") + "+00:00")
        except ValueError:
            return None
        return RankLine(int(match[2]), moment.timestamp(), match[3])
