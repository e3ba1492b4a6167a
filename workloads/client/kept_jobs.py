"""Jobs that a stack's storage keeps after their cluster, read wherever the storage can be reached.

Whoever may write to the storage may have written a record: its parts are checked like what a cluster answers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pkgutil import resolve_name
from typing import Protocol

from infra.catalog.names import LOCAL_HISTORY
from infra.outputs import Outputs
from infra.project import PROJECT
from infra.terminal import printable
from workloads import untrusted
from workloads.client.answer import text_of
from workloads.client.api import LAST_TIME, Job
from workloads.client.claim import ClaimStore
from workloads.client.stack import name_of, read_outputs
from workloads.exits import WorkloadError
from workloads.history.record import (
    END,
    END_SCHEMA,
    FOLDERS,
    JOB,
    LARGEST_FILE,
    LARGEST_LOG,
    PART,
    SCHEMA,
    UNKNOWN,
    document,
)
from workloads.options import StackOptions
from workloads.unlinked import NotSameError, open_folder, open_regular

Files = Mapping[str, bytes]
"""Content of a record's files by name."""
MOST_JOBS = 10_000
FROM = "--from gs://BUCKET, --from s3://BUCKET, --from claim:NAMESPACE/NAME or --from FOLDER"
STATUSES = ("SUCCEEDED", "FAILED", "STOPPED", UNKNOWN)
NO_END = "its end is not known: it still runs, or what watched it was lost with its node"
BUCKET = re.compile(r"(gs|s3)://[a-z0-9][a-z0-9._-]{1,220}(/(?!\.{1,2}(/|$))[\w.=@+-]+)*/?", re.ASCII)
CLAIM = re.compile(r"claim:(?P<namespace>[a-z0-9-]{1,63})/(?P<claim>[a-z0-9.-]{1,253})", re.ASCII)


class NoStorageError(WorkloadError):
    """The stack keeps no job."""


class JobStore(Protocol):
    """Storage with the records of jobs."""

    @property
    def name(self) -> str:
        """The place as in `--from`."""

    def documents(self) -> Iterable[Files]:
        """Return job.json and end.json of each job. WorkloadError if the storage cannot be read."""

    def files(self, folder: str) -> Files:
        """Return the files of one job, none if it is not kept. WorkloadError if the storage cannot be read."""


@dataclass(frozen=True)
class FolderStore:
    """Folder of this machine."""

    name: str

    def documents(self) -> Iterable[Files]:
        """Return job.json and end.json of each job."""
        with suppress(FileNotFoundError), os.scandir(self._path()) as entries:
            return [self._read(entry.name, (JOB, END)) for entry in islice(entries, MOST_JOBS)]
        return []

    def files(self, folder: str) -> Files:
        """Return the files of one job."""
        return self._read(folder, ())

    def _path(self, *folder: str) -> str:
        return "/".join([os.path.realpath(self.name), *FOLDERS, *folder])

    def _read(self, folder: str, names: Sequence[str]) -> Files:
        """Return these files, or all without names; what is no folder has none. Follows no link in the storage."""
        found, left = {}, LARGEST_LOG
        try:
            with open_folder(self._path(folder)) as opened:
                for name in names or _names(opened):
                    limit = left if PART.fullmatch(name) else LARGEST_FILE + 1 if name in (JOB, END) else 0
                    with suppress(FileNotFoundError, NotSameError):
                        if limit:
                            found[name] = _content(opened, name, limit)
                            left -= len(found[name]) if PART.fullmatch(name) else 0
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise WorkloadError(f"cannot read {self._path(folder)}: {error.strerror}") from None
        return found


def _names(folder: int) -> list[str]:
    return sorted(os.listdir(folder))


def _content(folder: int, name: str, limit: int) -> bytes:
    with open_regular(name, folder) as (descriptor, _), os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(limit)


@dataclass(frozen=True)
class KeptJob:
    """Job of a record, with its cluster and the machine type by which its result is judged.

    Args:
        log: Text of its log; line ends are `\\n`.
        whole: Whether the log is known to be complete.
    """

    job: Job
    cluster: str
    machine: str | None
    log: str
    whole: bool

    @staticmethod
    def of(files: Files) -> KeptJob | None:
        """Return the job of a record; None if it is not one."""
        about, end = document(files.get(JOB), SCHEMA), document(files.get(END), END_SCHEMA) or {}
        if about is None or not isinstance(about.get("id"), str):
            return None
        log = b"".join(files[name] for name in sorted(files) if PART.fullmatch(name))
        code, status, machine = end.get("exit_code"), end.get("status"), about.get("machine")
        metadata = about["metadata"] if isinstance(about.get("metadata"), dict) else {}
        status = status if status in STATUSES else UNKNOWN
        exit_code = code if type(code) is int and -128 <= code <= 255 else None
        job = Job(
            id=about["id"],
            status=status,
            message=NO_END if status == UNKNOWN else f"it exited with {exit_code}",
            started=_time(about.get("started")),
            ended=_time(end.get("ended")),
            exit_code=exit_code,
            metadata={name: text for name, text in metadata.items() if isinstance(text, str)},
        )
        return KeptJob(
            job=job,
            cluster=str(about.get("cluster")),
            machine=machine if isinstance(machine, str) else None,
            log=text_of(log),
            whole=end.get("cut") is False and end.get("bytes") == len(log),
        )


def _time(value: object) -> float | None:
    return untrusted.number(value, most=LAST_TIME / 1000)


def kept_jobs(place: JobStore) -> list[KeptJob]:
    """Return the jobs that are kept in a place, newest first, without their logs."""
    found = [job for files in place.documents() if (job := KeptJob.of(files))]
    return sorted(found, key=lambda kept: kept.job.started or 0, reverse=True)


def kept_job(place: JobStore, job_id: str) -> KeptJob:
    """Return a job that is kept in a place. WorkloadError if there is none of this ID."""
    found = KeptJob.of(place.files(untrusted.file_name(job_id)))
    if found is None or found.job.id != job_id:
        raise WorkloadError(f"{place.name} does not keep a job {job_id!r}: see `rdma-ray list --ended`")
    return found


def kept_instead(options: StackOptions, job_id: str, error: WorkloadError) -> KeptJob:
    """Return the kept job that Ray, by this error, does not show.

    WorkloadError with both reasons if it is not kept, and with Ray's if the stack keeps none.
    """
    try:
        place = place_of(options, None)
        found = kept_job(place, job_id)
    except NoStorageError:
        raise error from None
    except WorkloadError as missing:
        reason = str(missing).removeprefix(str(error)).strip()
        raise WorkloadError(f"{error}\n{reason}", error.code) from None
    print(printable(f"job {job_id} from {place.name}: {str(error).splitlines()[0]}"), file=sys.stderr)
    return found


def place_of(options: StackOptions, origin: str | None) -> JobStore:
    """Return where the jobs of a stack are kept, or the place of `--from`. WorkloadError if there is none."""
    if origin is not None:
        return _named(origin, None)
    try:
        outputs = read_outputs(options)
    except WorkloadError as error:
        # A local stack leaves it.
        folder = PROJECT / LOCAL_HISTORY / name_of(options.stack)
        if options.outputs is None and options.team is None and (folder / FOLDERS[0]).is_dir():
            return FolderStore(str(folder))
        raise WorkloadError(f"{error}\nfor the jobs of a stack that is down, name its storage with {FROM}") from None
    return place_of_outputs(outputs)


def place_of_outputs(outputs: Outputs) -> JobStore:
    """Return where the jobs of a stack are kept. WorkloadError if it keeps none."""
    storage = outputs.storage
    if storage is None:
        raise NoStorageError(
            f"{outputs.ray.cluster!r} has no storage, so no job is kept after its cluster: set storage.bucket, or"
            " storage.claim on kubernetes, and `make up`"
        )
    return _named(storage.source or storage.path, outputs)


def _named(origin: str, outputs: Outputs | None) -> JobStore:
    """Return the place of this name. WorkloadError if it is not a place."""
    if claim := CLAIM.fullmatch(origin):
        return ClaimStore(name=origin, **claim.groupdict(), outputs=outputs)
    if BUCKET.fullmatch(origin):
        place: JobStore = resolve_name("workloads.preflight.buckets:bucket")(origin)
        return place
    if re.match(r"[a-z0-9]+:", origin):
        raise WorkloadError(f"--from {origin} is not a storage: use {FROM}")
    return FolderStore(origin)
