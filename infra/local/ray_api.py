"""What a Ray head answers over HTTP, and which Ray this interpreter would start."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def http_status(url: str, *, token: str | None = None) -> int | None:
    """The HTTP status that `url` answers with, or None if nothing answers."""
    try:
        with urllib.request.urlopen(_request(url, token), timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def answers_with_token_only(jobs_url: str, token: str) -> bool:
    """Whether the Jobs API serves the bearer of the token, and refuses everybody else."""
    url = f"{jobs_url}/api/jobs/"
    return http_status(url, token=token) == 200 and http_status(url) == 401


def listens(address: str, port: int) -> bool:
    """Whether something accepts TCP connections there."""
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def nodes(jobs_url: str, token: str) -> dict[str, str]:
    """Ray's node id by node name, for the nodes that Ray counts as alive; empty while the head does not answer."""
    try:
        with urllib.request.urlopen(_request(f"{jobs_url}/api/v0/nodes?detail=true", token), timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
        rows = answer["data"]["result"]["result"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {row["node_name"]: row["node_id"] for row in rows if row["state"] == "ALIVE"}


def ray_version() -> str | None:
    """The version of Ray in the interpreter that nodes are started with, or None if it is not installed."""
    try:
        return version("ray")
    except PackageNotFoundError:
        return None


def _request(url: str, token: str | None) -> urllib.request.Request:
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
