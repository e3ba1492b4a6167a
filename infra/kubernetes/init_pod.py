"""Init container of a Ray pod that reads one object from the API server: the head's RayJob, or the worker's node.

The first head of a RayJob starts while it is Initializing. KubeRay writes Running before it submits the entry point,
and Initializing again only for a retry or after a suspension, with another cluster (ray-operator/controllers/ray/
rayjob_controller.go, v1.6.2). It submits the entry point again to every head that does not know it, which is any head
that starts while the RayJob is Running.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIRST = "Initializing"
"""The status of a RayJob whose entry point has not been submitted."""

_TIMEOUT_S, _PAUSE_S, _TRIES = 20.0, 5.0, 24


def read(path: str, account: Path) -> dict[str, Any] | None:
    """Return the object at this path of the API server; None if it is deleted.

    Raises:
        OSError: The API server did not answer, or refused the request.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    token = (account / "token").read_text(encoding="utf-8").strip()
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as refused:
        if refused.code == 404:
            return None
        raise


def read_in_time(path: str, account: Path, *, despite_refusals: bool) -> dict[str, Any] | None:
    """As `read`, and ask again for two minutes, after a refusal only `despite_refusals`."""
    for _ in range(_TRIES - 1):
        try:
            return read(path, account)
        except OSError as problem:
            print(f"{path} cannot be read from the API server: {problem}", flush=True)
            if isinstance(problem, urllib.error.HTTPError) and not despite_refusals:
                raise
            time.sleep(_PAUSE_S)
    return read(path, account)


def mark_started(job: dict[str, Any] | None, mark: Path) -> None:
    """Make the folder `mark` unless the entry point of the RayJob has not started yet."""
    found = "deleted" if job is None else str((job.get("status") or {}).get("jobDeploymentStatus", ""))
    if found == FIRST:
        print("the entry point has not started yet: it may start on this head")
        return
    mark.mkdir(exist_ok=True)
    print(
        f"the RayJob is {found or 'new'}: an earlier head already got the entry point, which must not"
        " start again on this one"
    )


def write_place(node: dict[str, Any] | None, names: Sequence[str], file: Path) -> None:
    """Write the place of the node as the file of `ray start --labels-file`: `rdma-ray/topology-1`, the widest, and on.

    Args:
        names: Labels of the node, the widest part of the network first. A node without one has an empty value.
    """
    labels = ((node or {}).get("metadata") or {}).get("labels") or {}
    place = {f"rdma-ray/topology-{level}": str(labels.get(name, "")) for level, name in enumerate(names, 1)}
    file.write_text(json.dumps(place), encoding="utf-8")
    print(f"the place of the node: {place}")


def main() -> None:
    """Read, and write what follows.

    Without an answer, a head does not start, and the kubelet runs this again. A worker does: its place orders ranks.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--account", type=Path, required=True, help="folder with `token` and `ca.crt`")
    parser.add_argument("--object", required=True, help="path of the RayJob or the Node at the API server")
    parser.add_argument("--mark", type=Path, help="folder that marks a started entry point")
    parser.add_argument("--place", type=Path, help="file with the place of the node")
    parser.add_argument("labels", nargs="*", help="labels of the node, the widest part of the network first")
    args = parser.parse_args()
    try:
        found = read_in_time(args.object, args.account, despite_refusals=bool(args.mark))
    except OSError as problem:
        if args.mark:
            sys.exit(f"no answer: {problem}")
        found = None
    if args.mark:
        mark_started(found, args.mark)
    if args.place:
        write_place(found, args.labels, args.place)


if __name__ == "__main__":
    main()
