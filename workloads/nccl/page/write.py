"""The report as files: for people, for a slide, for programs."""

from __future__ import annotations

from pathlib import Path

from workloads.exits import WorkloadError
from workloads.nccl.page.html import as_json, page
from workloads.nccl.page.picture import picture
from workloads.nccl.result import Result


def write_report(result: Result, folder: Path, machine: str | None = None) -> list[Path]:
    """report.html, report.png and result.json in `folder`, which is made if it is missing; returns the three.

    Raises:
        WorkloadError: `machine` is not in the catalog, or a file cannot be written.
    """
    return [
        write(folder / "report.html", page(result, machine)),
        write(folder / "report.png", picture(result, machine)),
        write(folder / "result.json", as_json(result) + "\n"),
    ]


def write(path: Path, content: str | bytes) -> Path:
    """Write one file and the folders above it.

    Raises:
        WorkloadError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise WorkloadError(f"cannot write {path}: {error.strerror}") from error
    return path
