"""End a workload whose worker pods have held nodes for longer than a limit. A CronJob runs this; it needs Python alone.

The count is in an annotation of the workload, so a recreated worker does not restart it: a driver that hangs makes Ray
ask for its workers again. It ends when no worker holds a node. Anyone who may change the workload may change the
annotation, so the start of the oldest worker counts if it is earlier, and a value that no clock has shown is ignored. A
run that fails changes nothing, and the next one checks again.
"""

from __future__ import annotations

import argparse
import calendar
import json
import os
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SINCE = "rdma-ray/nodes-held-since"
"""Annotation of the workload with the start of the first worker that held a node, as Kubernetes writes a time."""
ENDED = "rdma-ray/ended"
"""Annotation of the workload with the reason for its most recent end."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_TIMEOUT_S = 60.0
_PAGE = 10
"""Objects per request: one may have 1.5 MiB (etcd's limit of a request), and this pod has 128 MiB."""
_LONGEST_GRACE_S = 300.0
"""The stacks' pods have at most 120 s (`infra.kubernetes.pods`); with more, somebody else has deleted the pod."""
_SHOWN = 60
"""Maximum characters of foreign text in a line."""


class KubernetesApi:
    """The API server, as a ServiceAccount.

    Args:
        account: Folder with the account's `token` and the API server's `ca.crt`.
    """

    def __init__(self, account: Path) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        self._token = (account / "token").read_text(encoding="utf-8").strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

    def request(self, path: str, patch: dict[str, Any] | list[dict[str, Any]] | None = None) -> Any:
        """Return an object or a list, after a merge patch (a dict) or a JSON patch (a list) if there is one."""
        kind = "json" if isinstance(patch, list) else "merge"
        request = urllib.request.Request(
            self._server + path,
            None if patch is None else json.dumps(patch).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": f"application/{kind}-patch+json"},
            method="GET" if patch is None else "PATCH",
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
            return json.load(answer)

    def items(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list, without keeping them."""
        more = ""
        while True:
            query = f"limit={_PAGE}&continue={urllib.parse.quote(more, safe='')}"
            page = self.request(f"{path}{'&' if '?' in path else '?'}{query}")
            yield from page["items"]
            more = page["metadata"].get("continue")
            if not more:
                return

    def annotate(self, path: str, **values: str | None) -> None:
        """Set annotations of an object, or remove those that are None."""
        self.request(path, {"metadata": {"annotations": values}})


def seconds(value: object) -> float | None:
    """Return a time of Kubernetes in seconds since 1970, or None if it is unreadable."""
    try:
        return calendar.timegm(time.strptime(str(value), _TIME))
    except ValueError:
        return None


def holds_node(pod: dict[str, Any], now: float) -> bool:
    """Return whether a pod holds a node: it has started, has not ended, and is not about to end."""
    status, deleted = pod.get("status", {}), pod["metadata"].get("deletionTimestamp")
    if not status.get("startTime") or status.get("phase") not in ("Pending", "Running"):
        return False
    # The time at which the kubelet kills the pod.
    killed = None if deleted is None else seconds(deleted)
    return deleted is None or (killed is not None and killed > now + _LONGEST_GRACE_S)


def check(api: KubernetesApi, args: argparse.Namespace, now: float) -> str:
    """Start, continue or end the count, and end the workload at the limit. Return a description of the action.

    Raises:
        LookupError: The object that ends the workload does not exist.
        OSError: The API server did not answer, or refused a request.
    """
    workload = api.request(args.workload)
    noted = (workload["metadata"].get("annotations") or {}).get(SINCE)
    starts = [pod["status"]["startTime"] for pod in api.items(args.pods) if holds_node(pod, now)]
    if not starts:
        if noted is not None:
            api.annotate(args.workload, **{SINCE: None})
        return "no worker holds a node"
    shown = {value: seconds(value) for value in (*starts, *([] if noted is None else [noted]))}
    known = {value: at for value, at in shown.items() if at is not None and at <= now}
    since = min(known, key=known.__getitem__, default=time.strftime(_TIME, time.gmtime(now)))
    ignored = [value for value in shown if value not in known or (value == noted and value != since)]
    remark = f"; ignored {', '.join(map(_shown, ignored))}: no time, in the future, or later than a worker's start"
    remark = remark if ignored else ""
    if since != noted:
        api.annotate(args.workload, **{SINCE: since})
    if now - known.get(since, now) < args.hours * 3600:
        if noted is None:
            return f"workers hold nodes since {since}; the count begins{remark}"
        held = f"{len(starts)} workers hold nodes, the first one since {since}"
        return f"{held}; the limit is {args.hours} hours{remark}"
    moment = time.strftime(_TIME, time.gmtime(now))
    why = f"{moment}: workers held nodes since {since}, longer than nodes.maxHours={args.hours}"
    for path in [args.workload] if args.owned is None else _owned(api, args.owned, workload["metadata"]["uid"]):
        api.request(path, args.patch)
    api.annotate(args.workload, **{SINCE: None, ENDED: why})
    return f"ended. {why}{remark}"


def _owned(api: KubernetesApi, path: str, uid: str) -> list[str]:
    """Return the paths of the objects of a list that an object owns. LookupError if there are none."""
    found = [
        f"{path}/{urllib.parse.quote(each['metadata']['name'], safe='')}"
        for each in api.items(path)
        if uid in [owner.get("uid") for owner in each["metadata"].get("ownerReferences", [])]
    ]
    if not found:
        raise LookupError(f"nothing in {path} belongs to it")
    return found


def _shown(value: str) -> str:
    """Return another's text for a line: printable, and not long."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def main() -> None:
    """Check the workload once."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--hours", type=int, required=True, help="the limit")
    parser.add_argument("--workload", required=True, help="path of the workload")
    parser.add_argument("--pods", required=True, help="path of the list of its worker pods")
    parser.add_argument("--patch", type=json.loads, required=True, help="JSON patch that ends it")
    parser.add_argument("--owned", help="path of a list; the patch is for its objects that the workload owns")
    parser.add_argument("--account", type=Path, required=True, help="folder of the ServiceAccount's token")
    args = parser.parse_args()
    try:
        print(f"{args.workload}: {check(KubernetesApi(args.account), args, time.time())}", flush=True)
    except (OSError, LookupError) as problem:
        sys.exit(f"{args.workload}: not checked: {problem}")


if __name__ == "__main__":
    main()
