"""kubectl for tests: `port-forward` listens and answers Ray's version with its process ID, `get` prints objects, `exec`
prints the report of a pod or runs the command here.

Its folder has `objects` (JSON: kind -> object or list), `reports` (JSON: pod -> text), and `error` and `refusal` (what
`port-forward` and `get` print before they fail), and gets `calls`, a line for each call: process ID and arguments,
without those after `--`. `config view` prints the context `mine`, or that of `--context`, in the namespace `team`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Fake:
    """A fake kubectl on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {folder} "$@"\n')
        program.chmod(0o700)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        self.has({})

    def has(self, objects: Mapping[str, Any]) -> None:
        """Set what `get` finds."""
        (self.folder / "objects").write_text(json.dumps(objects))

    def shows(self, reports: Mapping[str, str]) -> None:
        """Set what the program of `rdma-ray shell` prints in each pod."""
        (self.folder / "reports").write_text(json.dumps(reports))

    def fails(self, error: str) -> None:
        """Let `port-forward` fail."""
        (self.folder / "error").write_text(error)

    def refuses(self, error: str) -> None:
        """Let `get` fail."""
        (self.folder / "refusal").write_text(error)

    def calls(self, verb: str) -> list[tuple[int, str]]:
        """Return process ID and arguments of the calls with this verb."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(int(pid), rest) for pid, rest in (line.split(" ", 1) for line in lines) if f" {verb} " in rest]


class _Version(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"ray_version": str(os.getpid())}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(folder: Path, arguments: list[str]) -> int:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    with (folder / "calls").open("a") as calls:
        calls.write(f"{os.getpid()} {' '.join(own)}\n")
    if "exec" in own:
        words = arguments[len(own) + 1 :]
        if "show" not in words:
            os.execvp(words[0], words)
        reports = json.loads((folder / "reports").read_text())
        pod = next((word for word in own if word in reports), None)
        if pod is None:
            sys.stderr.write("error: unable to upgrade connection: container not found\n")
            return 1
        print(reports[pod])
        return 0
    if "config" in arguments:
        named = [word.partition("=")[2] for word in arguments if word.startswith("--context=")]
        print(json.dumps({"contexts": [{"name": (named or ["mine"])[0], "context": {"namespace": "team"}}]}))
        return 0
    if "get" in arguments:
        if (folder / "refusal").exists():
            sys.stderr.write((folder / "refusal").read_text())
            return 1
        kind = arguments[arguments.index("get") + 1]
        print(json.dumps(json.loads((folder / "objects").read_text()).get(kind, {"kind": "List", "items": []})))
        return 0
    if (folder / "error").exists():
        sys.stderr.write((folder / "error").read_text())
        return 1
    local, _, remote = arguments[-1].partition(":")
    with HTTPServer(("127.0.0.1", int(local or 0)), _Version) as server:
        print(f"Forwarding from 127.0.0.1:{server.server_port} -> {remote}", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
