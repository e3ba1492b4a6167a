"""End a workload whose worker pods have held nodes for longer than a limit. A CronJob runs this; it needs Python alone.

The count is in an annotation of the workload, so a recreated worker does not restart it: a driver that hangs makes Ray
ask for its workers again. It ends when no worker holds a node. A run that fails changes nothing, and the next one
checks again.
"""

from __future__ import annotations

import argparse
import calendar
import json
import os
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any

SINCE = "rdma-ray/nodes-held-since"
"""Annotation of the workload with the start of the first worker that held a node, as Kubernetes writes a time."""
ENDED = "rdma-ray/ended"
"""Annotation of the workload that says why it was ended last."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_TIMEOUT_S = 60.0


class Api:
    """The API server, as a ServiceAccount.

    Args:
        account: Folder with the account's `token` and the API server's `ca.crt`.
    """

    def __init__(self, account: Path) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        self._token = (account / "token").read_text(encoding="utf-8").strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

    def request(self, path: str, patch: list[dict[str, Any]] | None = None) -> Any:
        """Return an object or a list, after a JSON patch if there is one."""
        request = urllib.request.Request(
            self._server + path,
            None if patch is None else json.dumps(patch).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json-patch+json"},
            method="GET" if patch is None else "PATCH",
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
            return json.load(answer)


def annotation(name: str, value: str | None) -> dict[str, Any]:
    """Return the operation of a JSON patch that sets an annotation, or removes it. The workload has annotations."""
    path = f"/metadata/annotations/{name.replace('/', '~1')}"
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}


def check(api: Api, args: argparse.Namespace, now: float) -> str:
    """Start, continue or end the count, and end the workload at the limit. Return what was done."""
    workload = api.request(args.workload)
    since = workload["metadata"].get("annotations", {}).get(SINCE)
    started = [
        pod["status"]["startTime"]
        for pod in api.request(args.pods)["items"]
        # A pod without a start has no node; one that ended, or is being deleted, keeps none.
        if pod["status"].get("startTime")
        and pod["status"].get("phase") in ("Pending", "Running")
        and "deletionTimestamp" not in pod["metadata"]
    ]
    if not started:
        if since:
            api.request(args.workload, [annotation(SINCE, None)])
        return "no worker holds a node"
    if since is None:
        since = min(started)
        # The next run compares: workers may remain for some minutes after the end of their workload.
        api.request(args.workload, [annotation(SINCE, since)])
        return f"workers hold nodes since {since}; the count begins"
    if now - calendar.timegm(time.strptime(since, _TIME)) < args.hours * 3600:
        return f"{len(started)} workers hold nodes, the first one since {since}; the limit is {args.hours} hours"
    why = f"{time.strftime(_TIME, time.gmtime(now))}: workers held nodes since {since}, longer than "
    why += f"nodes.maxHours={args.hours}"
    notes = [annotation(SINCE, None), annotation(ENDED, why)]
    if args.owned is None:
        api.request(args.workload, [*args.patch, *notes])
        return f"ended. {why}"
    for each in api.request(args.owned)["items"]:
        owners = each["metadata"].get("ownerReferences", [])
        if workload["metadata"]["uid"] in [owner["uid"] for owner in owners]:
            api.request(f"{args.owned}/{each['metadata']['name']}", args.patch)
    api.request(args.workload, notes)
    return f"ended. {why}"


def main() -> None:
    """Look once."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--hours", type=int, required=True, help="the limit")
    parser.add_argument("--workload", required=True, help="path of the workload")
    parser.add_argument("--pods", required=True, help="path of the list of its worker pods")
    parser.add_argument("--patch", type=json.loads, required=True, help="JSON patch that ends it")
    parser.add_argument("--owned", help="path of a list; the patch is for its objects that the workload owns")
    parser.add_argument("--account", type=Path, required=True, help="folder of the ServiceAccount's token")
    args = parser.parse_args()
    print(f"{args.workload}: {check(Api(args.account), args, time.time())}", flush=True)


if __name__ == "__main__":
    main()
