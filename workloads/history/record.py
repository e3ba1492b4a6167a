"""What a stack's storage keeps of a job after its cluster: names, and the contents of its files.

    <storage>/rdma-ray/jobs/<job>/job.json     at the start of the job
                                  log.000000   the log in parts, which follow each other
                                  end.json     at its end; without it, the end is unknown

No file is changed but the last part, which grows: GCS FUSE writes a changed object anew (gcsfuse: docs/semantics.md,
read 2026-11-28), and Mountpoint for S3 refuses to change one (mountpoint-s3: doc/SEMANTICS.md, read 2026-11-28).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads import untrusted

SCHEMA, END_SCHEMA = "rdma-ray/kept-job/1", "rdma-ray/kept-end/1"
FOLDERS = ("rdma-ray", "jobs")
"""Folders in the storage, one in the other, with a folder for each job."""
JOB, END = "job.json", "end.json"
PART = re.compile(r"log\.[0-9]{6}")
LARGEST_FILE = 2**16
"""Bytes of job.json and end.json."""
LARGEST_LOG = 2**29
"""Bytes of a log that are kept: as many as commands read of one that Ray has (`client.answer.LARGEST`)."""
LONGEST_TEXT = 1_000
UNKNOWN = "UNKNOWN"
"""Status of a job without a known end."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """What is kept of a job, and where.

    Args:
        folder: The storage on the nodes, an absolute path.
        days: Days for which it is kept.
        machine: Machine type of the stack, by which its result is judged.
        metadata: As Ray keeps it: the kind and the name, neither variables nor the command.
    """

    folder: str
    days: int
    id: str
    cluster: str
    machine: str | None
    metadata: Mapping[str, str]

    def as_json(self) -> str:
        """Return the record as an argument of the program that keeps it."""
        return json.dumps(self.__dict__, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> JobRecord:
        """Return the record in an argument."""
        return cls(**json.loads(text))

    def start(self, now: float) -> dict[str, Any]:
        """Return the content of job.json; `now` in seconds since 1970."""
        metadata = {name: text[:LONGEST_TEXT] for name, text in self.metadata.items()}
        about = {"id": self.id, "cluster": self.cluster, "machine": self.machine, "metadata": metadata}
        return {"schema": SCHEMA, **about, "started": now, "days": self.days}


def part(number: int) -> str:
    """Return the name of a part of the log."""
    return f"log.{number:06}"


def line(document: Mapping[str, Any]) -> bytes:
    """Return a document as one line, so that the files of several jobs can be read in one stream."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def document(data: bytes | None, schema: str) -> dict[str, Any] | None:
    """Return the document of a schema in a file of a record; None if it is something else."""
    if data is None or len(data) > LARGEST_FILE:
        return None
    try:
        found = untrusted.read(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("schema") == schema else None
