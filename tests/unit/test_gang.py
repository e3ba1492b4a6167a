"""The job that a rehearsal of depth `pods` submits: its program, what it reports, and how it is requested."""

from __future__ import annotations

import ast
import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from rehearsal.cluster import gang
from rehearsal.cluster.phases import PhaseError

TOKEN = "secret"


class Dashboard(BaseHTTPRequestHandler):
    """As much of Ray's job API as is asked for here; `jobs` is what was submitted."""

    jobs: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(lambda: self.jobs.setdefault(body["submission_id"], body))

    def do_GET(self) -> None:
        job, _, what = self.path.removeprefix("/api/jobs/").partition("/")
        self._answer(lambda: {"logs": f"log of {job}"} if what == "logs" else {"status": "RUNNING", "id": job})

    def _answer(self, make: Any) -> None:
        known = self.headers["Authorization"] == f"Bearer {TOKEN}"
        body = json.dumps(make() if known else {}).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    Dashboard.jobs = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_program_asks_for_whole_nodes_each_its_own() -> None:
    code = gang.code(2, 8)
    ast.parse(code)
    assert "nodes, share = 2, {'GPU': 8}" in code
    assert 'strategy="STRICT_SPREAD"' in code
    assert "{'CPU': 1}" in gang.code(1, 0)


def test_what_it_tells_is_found_in_its_log_and_nothing_else_is() -> None:
    assert gang.addresses("2026-11-22 INFO begun\nADDRESSES 10.0.0.1 10.0.0.2\nover\n") == ["10.0.0.1", "10.0.0.2"]
    assert gang.addresses("Running entrypoint: print ADDRESSES 10.0.0.1\n") == []


def test_a_job_is_submitted_asked_for_and_read_with_the_token(port: int) -> None:
    job = gang.Job(port, TOKEN, gang.code(2, 8))
    assert job.status() == "RUNNING"
    assert job.log() == f"log of {job.id}"
    found = re.search(r"b64decode\('(.+)'\)", Dashboard.jobs[job.id]["entrypoint"])
    assert found is not None
    assert base64.b64decode(found[1]).decode() == gang.code(2, 8)


def test_a_refusal_and_a_silence_are_told_without_the_token(port: int) -> None:
    with pytest.raises(PhaseError, match="401") as refused:
        gang.Job(port, "wrong-token", "")
    assert "wrong-token" not in str(refused.value)
    with pytest.raises(PhaseError, match="POST /api/jobs/: ConnectionError"):
        gang.Job(1, TOKEN, "")
