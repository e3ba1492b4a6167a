"""One pod: its environment and its command line."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .exits import USAGE

PUBLISHED = 2**16  # characters of the file to read; it has about 100


@dataclass(frozen=True, kw_only=True)
class Pod:
    """This pod: `index` of `nodes`, in Job `job` (its UID); the other fields are the options of the command line."""

    address: str
    index: int
    job: str
    token: str
    nodes: int
    head_host: str
    folder: Path | None
    wait_s: float
    everywhere: bool
    entrypoint: str
    port: int
    gcs_port: int
    torch_port: int
    ray: list[str]
    ray_head: list[str]

    @property
    def file(self) -> Path | None:
        """File in which the head of this Job publishes its address."""
        return self.folder / "rdma-ray" / f"{self.job}.json" if self.folder else None

    def published(self) -> Any:
        """Return the content of `file`. Raises OSError or ValueError.

        Any pod with the same storage can put a FIFO or a link there: neither is waited for or followed.
        """
        assert self.file is not None
        descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, encoding="utf-8") as opened:
            try:
                return json.loads(opened.read(PUBLISHED))
            except RecursionError:
                raise ValueError("not an announcement") from None

    def say(self, text: str) -> None:
        """Write one line to the pod's log."""
        print(f"[pod {self.index}] {text}", flush=True)


def pod_of(arguments: list[str]) -> Pod:
    """Return the pod of this command line and environment. Exits with `USAGE` and a message if they are incomplete."""
    parser = _Parser(prog="indexed_job_pod", description="One pod of an Indexed Job that is a Ray cluster.")
    parser.add_argument("--nodes", type=int, required=True, help="pods of the Job")
    parser.add_argument("--head-host", required=True, help="the stable host name of pod 0, or its address")
    parser.add_argument("--folder", type=Path, help="shared storage, where the head also publishes its address")
    parser.add_argument("--wait-s", type=float, required=True, help="seconds between the first pod and the last")
    parser.add_argument("--everywhere", action="store_true", help="run the entry point on every pod")
    parser.add_argument("--entrypoint", required=True, help="command line for /bin/sh")
    parser.add_argument("--port", type=int, default=6378, help="the control port")
    parser.add_argument("--gcs-port", type=int, default=6379)
    parser.add_argument("--torch-port", type=int, default=29500)
    parser.add_argument("--ray", action="append", default=[], help="an argument for `ray start` on every pod")
    parser.add_argument("--ray-head", action="append", default=[], help="an argument for `ray start` on the head")
    names = ("POD_IP", "JOB_COMPLETION_INDEX", "JOB_UID", "RAY_AUTH_TOKEN")
    address, index, job, token = (os.environ.get(name, "") for name in names)
    if missing := [name for name in names if not os.environ.get(name)]:
        parser.error(f"the environment lacks {', '.join(missing)}")
    if os.environ.get("RAY_AUTH_MODE") != "token":
        parser.error("RAY_AUTH_MODE must be token: without it, anyone who reaches Ray can run programs on every pod")
    options = vars(parser.parse_args(arguments))
    if not index.isdigit() or int(index) >= options["nodes"]:
        parser.error(f"JOB_COMPLETION_INDEX is {index}, and the Job has {options['nodes']} pods")
    return Pod(address=address, index=int(index), job=job, token=token, **options)


class _Parser(argparse.ArgumentParser):
    """Parser with another exit code: argparse's 2 would mean a result below the floor."""

    def error(self, message: str) -> NoReturn:
        """Print the problem and exit."""
        self.exit(USAGE, f"cannot start: {message}\n")
