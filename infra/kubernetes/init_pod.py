"""Mark the pod of a RayJob's later head, so that the entry point does not start there. An init container runs this.

The first head starts while the RayJob is Initializing. KubeRay writes Running before it submits the entry point, and
Initializing again only for a retry or after a suspension, with another cluster (ray-operator/controllers/ray/
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
from pathlib import Path

FIRST = "Initializing"
"""The status of a RayJob whose entry point has not been submitted."""

_TIMEOUT_S, _PAUSE_S, _TRIES = 20.0, 5.0, 24


def status(job: str, account: Path) -> str:
    """Return the `jobDeploymentStatus` of the RayJob at this path, or "deleted".

    Raises:
        OSError: The API server did not answer, or refused the request.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    token = (account / "token").read_text(encoding="utf-8").strip()
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}{job}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:
            return str((json.load(answer).get("status") or {}).get("jobDeploymentStatus", ""))
    except urllib.error.HTTPError as refused:
        if refused.code == 404:
            return "deleted"
        raise


def main() -> None:
    """Ask until the API server answers; without an answer the pod does not start, and the kubelet runs this again."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--job", required=True, help="path of the RayJob at the API server")
    parser.add_argument("--account", type=Path, required=True, help="folder with `token` and `ca.crt`")
    parser.add_argument("--mark", type=Path, required=True, help="folder that marks a started entry point")
    args = parser.parse_args()
    for left in reversed(range(_TRIES)):
        try:
            found = status(args.job, args.account)
            break
        except OSError as problem:
            print(f"the status of the RayJob cannot be read from the API server: {problem}", flush=True)
            if not left:
                sys.exit(1)
            time.sleep(_PAUSE_S)
    if found == FIRST:
        print("the entry point has not started yet: it may start on this head")
        return
    args.mark.mkdir(exist_ok=True)
    print(
        f"the RayJob is {found or 'new'}: an earlier head already got the entry point, which must not"
        " start again on this one"
    )


if __name__ == "__main__":
    main()
