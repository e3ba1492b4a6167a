"""Google's APIs on loopback, for the real gcloud: documents of gke/api.yaml, and 404 for everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

OVERRIDES = {
    "COMPUTE": "compute/v1/",
    "CONTAINER": "container/",
    "SERVICEUSAGE": "serviceusage/",
    "CLOUDRESOURCEMANAGER": "resourcemanager/",
    "CLOUDBILLING": "billing/",
    "CLOUDQUOTAS": "quotas/",
    "STORAGE": "storage/v1/",
}
"""Path of each API on the server. gcloud appends its version to the ones without."""


@contextmanager
def served(documents: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Serve documents by `METHOD path`; yield the address, and the requests that no document answers.

    A list of documents is one page each.
    """
    unknown: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = f"{self.command} {urlsplit(self.path).path}"
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = documents.get(key)
            if isinstance(found, list):
                page = int(parse_qs(urlsplit(self.path).query).get("pageToken", ["0"])[0])
                more = {"nextPageToken": str(page + 1)} if page + 1 < len(found) else {}
                found = {**found[page], **more}
            if found is None:
                unknown.append(key)
                found = {
                    "error": {"code": 404, "message": f"The resource '{key}' was not found", "status": "NOT_FOUND"}
                }
            answer = json.dumps(found)
            if "{constraint}" in answer:
                answer = answer.replace("constraints/{constraint}", json.loads(body)["constraint"])
            data = answer.encode()
            self.send_response(404 if key in unknown else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", unknown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
