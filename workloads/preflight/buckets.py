"""Records of jobs in a bucket, read by the cloud's command line with the rights of its user."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.terminal import printable
from workloads import untrusted
from workloads.client.kept_jobs import FolderStore, JobStore
from workloads.exits import WorkloadError
from workloads.history.record import END, END_SCHEMA, FOLDERS, JOB, LARGEST_LOG, SCHEMA, document, part
from workloads.preflight.aws_cli import AWS
from workloads.preflight.cli import Cli, NoAnswerError
from workloads.preflight.gcloud import GCLOUD

ANSWER_S = 600.0
LARGEST_LIST = 2**26
"""Bytes of the documents of all jobs: some 200,000 jobs."""
NOTHING = "matched no objects"
"""What gcloud says of a pattern without a match (528.0.0: command_lib/storage/name_expansion.py)."""


def bucket(name: str) -> JobStore:
    """Return the place in a bucket, by its address: `gs://…` or `s3://…`."""
    return GcsStore(name) if name.startswith("gs://") else S3Store(name)


def _read(cli: Cli, *arguments: str, largest: int) -> bytes:
    try:
        return cli.read(*arguments, answer_s=ANSWER_S, largest=largest)
    except NoAnswerError as error:
        if NOTHING in str(error):
            return b""
        raise WorkloadError(f"{error.asked}: {error}\n{error.fix}") from None


def _inside(name: str, *parts: str) -> str:
    return "/".join([name.rstrip("/"), *FOLDERS, *parts])


@dataclass(frozen=True)
class GcsStore:
    """Bucket of Cloud Storage. `gcloud storage cat` prints the objects that match one after the other, by their names
    (528.0.0: surface/storage/cat.py, without parallel tasks)."""

    name: str

    def documents(self) -> list[dict[str, bytes]]:
        """Return job.json and end.json of each job."""
        found: dict[str, dict[str, bytes]] = {}
        for line in _read(
            GCLOUD, "storage", "cat", _inside(self.name, "*", "*.json"), largest=LARGEST_LIST
        ).splitlines():
            for name, schema in ((JOB, SCHEMA), (END, END_SCHEMA)):
                if about := document(line, schema):
                    found.setdefault(str(about.get("id")), {})[name] = line
        return list(found.values())

    def files(self, folder: str) -> dict[str, bytes]:
        """Return the files of one job, whose names are in this order: end.json, job.json, the log's parts."""
        rest = _read(GCLOUD, "storage", "cat", _inside(self.name, folder, "*"), largest=LARGEST_LOG + LARGEST_LIST)
        found = {}
        for name, schema in ((END, END_SCHEMA), (JOB, SCHEMA)):
            line, _, others = rest.partition(b"\n")
            if document(line, schema):
                found[name], rest = line, others
        return found | {part(0): rest}


@dataclass(frozen=True)
class S3Store:
    """Bucket of S3. The AWS CLI downloads no object whose name leaves the folder (1.45.11: s3handler.py,
    `_warn_parent_reference`)."""

    name: str

    def documents(self) -> list[Mapping[str, bytes]]:
        """Return job.json and end.json of each job."""
        only = ["--exclude=*", f"--include=*/{JOB}", f"--include=*/{END}"]
        with self._downloaded("", LARGEST_LIST, "Contents[?ends_with(Key, '.json')].Size", *only) as place:
            return [*place.documents()]

    def files(self, folder: str) -> Mapping[str, bytes]:
        """Return the files of one job."""
        with self._downloaded(folder, LARGEST_LOG + LARGEST_LIST, "Contents[].Size") as place:
            return place.files(folder)

    @contextmanager
    def _downloaded(self, folder: str, largest: int, sizes: str, *only: str) -> Iterator[FolderStore]:
        """Download a folder of records, unless it is larger."""
        address = _inside(self.name, *([folder] if folder else []), "")
        where = urlsplit(address)
        listing = ("--bucket", where.netloc, "--prefix", where.path.lstrip("/"), "--query", sizes, "--output=json")
        found = self._sizes(_read(AWS, "s3api", "list-objects-v2", *listing, largest=LARGEST_LIST))
        if (size := sum(found)) > largest:
            raise WorkloadError(f"{printable(address)} has {size} bytes, more than the records of jobs: not read")
        with tempfile.TemporaryDirectory(prefix="rdma-ray-") as temporary:
            target = Path(temporary).joinpath(*FOLDERS, folder)
            if found:
                target.mkdir(parents=True)
                copy = ("--recursive", "--only-show-errors", *only, address, str(target))
                _read(AWS, "s3", "cp", *copy, largest=largest)
            yield FolderStore(temporary)

    def _sizes(self, answer: bytes) -> list[float]:
        """Return the sizes that AWS lists; null for none."""
        try:
            found: Any = untrusted.read(answer)
        except ValueError:
            raise WorkloadError(f"the list of {self.name} is not JSON: run the command yourself") from None
        sizes = [untrusted.number(size) for size in found] if isinstance(found, list) else []
        return [LARGEST_LOG * 2.0 if size is None else size for size in sizes]
