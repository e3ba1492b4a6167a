"""A hostile cluster: a head and a kubectl that answer as recorded, but for the fields that a test replaces.

`recorded_head.json` has the complete answers of a head of Ray 2.60 (2026-11). The objects of Kubernetes are those of
`tests.workloads.doctor.states`.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hostile import ESCAPES
from tests.workloads.doctor import states
from tests.workloads.monitor.simulated import Fleet
from tests.workloads.stack_outputs import LOCAL
from workloads.client.kubectl import Kubectl
from workloads.doctor.node_facts import KIND
from workloads.doctor.state import EVERYWHERE, OF_SYSTEM, OWN, RAY_PATHS, SYSTEM
from workloads.results.events import MARK

HEAD: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_head.json").read_text())
"""Answers by part, as in RAY_PATHS; `job` is that of one job."""
_GROUP = {
    "placement_group_id": "a" * 36,
    "name": "gang",
    "creator_job_id": "01000000",
    "state": "PENDING",
    "bundles": [{"bundle_id": "0", "node_id": None, "unit_resources": {"CPU": 8.0}}],
    "is_detached": False,
    "stats": {"scheduling_state": "INFEASIBLE", "creation_request_received_ns": "1795433000000000000"},
}
# The recorded head had none.
HEAD["placement groups"]["data"]["result"]["result"].append(_GROUP)
KINDS = OWN | EVERYWHERE | {"operators": "deployments.apps"}
JOB = HEAD["job"]["submission_id"]
PROBE = {"kind": KIND, "probe": states.probe(0, "127.0.0.1").model_dump()}
SNAPSHOT = Fleet(3).snapshot(1).document()

HOSTILE: dict[str, str] = {
    "null": "null",
    "true": "true",
    "number": "7",
    "negative": "-1",
    "not a number": "NaN",
    "infinite": "-Infinity",
    "huge": "1e308",
    "more than huge": "1e999",
    "400 digits": "9" * 400,
    "5000 digits": "9" * 5000,
    "empty": '""',
    "digits as text": json.dumps("9" * 5000),
    "path": '"../../../../../tmp/rdma-ray-was-here"',
    "absolute path": '"/etc/rdma-ray-was-here"',
    "parent": '".."',
    "flag": '"--kubeconfig=x"',
    "escapes": json.dumps(ESCAPES),
    "half a pair": '"\\ud800"',
    "markup": '"[/x][bold]:bug:"',
    "long": json.dumps("x" * 50_000),
    "lines": json.dumps("\n" * 15_000),
    "last year": '"9999-12-31T23:59:59-14:00"',
    "year 0": '"0000-00-00T00:00:00Z"',
    "year 1": '"0001-01-01T00:00:00+14:00"',
    "list": "[]",
    "object": "{}",
    "list of null": "[null]",
    "deep": "[" * 5000 + "]" * 5000,
    "deep objects": '{"a":' * 900 + "0" + "}" * 900,
    "many": "[" + "0," * 99_999 + "0]",
    "many objects": "[" + "{}," * 19_999 + "{}]",
}
"""JSON of what replaces a field."""
PLACE = "@@hostile@@"
Where = tuple[str | int, ...]


def fields(document: Any, path: Where = ()) -> Iterator[Where]:
    """The paths of all values in a document; of a list, those of its first and its last one."""
    if path:
        yield path
    if isinstance(document, dict):
        for name in document:
            yield from fields(document[name], (*path, name))
    elif isinstance(document, list) and document:
        for at in {0: None, len(document) - 1: None}:
            yield from fields(document[at], (*path, at))


def replaced(document: Any, path: Where, value: str) -> bytes:
    """A document as JSON with one of its values replaced."""
    found = at = deepcopy(document)
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = PLACE
    return json.dumps(found).replace(json.dumps(PLACE), value).encode()


def rounds(documents: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, tuple[Where, str]]]:
    """For each of `count` rounds, a path and the name of a value for every document.

    Each field of a document, and each value, comes up before one comes up again.
    """
    draw = random.Random(seed)
    documents = {part: document for part, document in documents.items() if document}
    paths = {part: _shuffled(fields(document), draw, count) for part, document in documents.items()}
    values = {part: _shuffled(HOSTILE, draw, count) for part in documents}
    for at in range(count):
        yield {part: (paths[part][at], values[part][at]) for part in documents}


def _shuffled(items: Iterable[Any], draw: random.Random, count: int) -> list[Any]:
    kinds, found = list(items), list[Any]()
    while len(found) < count:
        found += draw.sample(kinds, len(kinds))
    return found


def objects_of(name: str) -> dict[str, list[dict[str, Any]]]:
    """The objects of a cloud stack by kind, with the namespace where it is the system's, and one event."""
    state = states.cloud(name)
    found = {kind: state.objects(section) for section, kind in KINDS.items()}
    found |= {f"{kind} {SYSTEM}": state.objects(section) for section, kind in OF_SYSTEM.items()}
    event = {"reason": "Failed", "message": "pull", "type": "Warning", "involvedObject": {"kind": "Pod", "name": "w"}}
    its = {"metadata": {"name": "e"}, "count": 3, "lastTimestamp": states.at(states.NOW)}
    return {kind: deepcopy(objects) for kind, objects in found.items()} | {"events": [event | its]}


class HostileHead(BaseHTTPRequestHandler):
    """Head of Ray that answers as recorded, and takes jobs, which end at once.

    Class attributes:
        answers: Bytes of an answer by part, instead of the recorded one.
        log, times: Log of every job but the probe's, and how often it is repeated.
        running: Whether the recorded job runs until it is stopped.
        asked: Requests so far, as `METHOD path`.
        spoils: Answers about the job that are still spoiled: one that seems to run would be followed for ever.
    """

    answers: ClassVar[dict[str, bytes]] = {}
    log: ClassVar[bytes] = b"a line\n"
    times: ClassVar[int] = 1
    running: ClassVar[bool] = False
    asked: ClassVar[list[str]] = []
    spoils: ClassVar[int] = 0
    protocol_version = "HTTP/1.1"

    @classmethod
    def reset(cls, **answers: bytes) -> None:
        cls.answers, cls.log, cls.times, cls.running, cls.asked, cls.spoils = answers, b"a line\n", 1, False, [], 3

    def do_GET(self) -> None:
        type(self).asked.append(f"GET {self.path}")
        self._send(200, self._answer())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        type(self).asked.append(f"{self.command} {self.path} {body[:5000].decode(errors='replace')}")
        if self.path.endswith("/stop") or b'"stop"' in body:
            type(self).running = False
        self._send(200, b"{}")

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def _answer(self) -> bytes:
        part = next((part for part, path in RAY_PATHS.items() if path == self.path), None)
        if part is not None:
            found = self.answers.get(part) or json.dumps(HEAD[part]).encode()
            return found if self.running else found.replace(b'"RUNNING"', b'"STOPPED"')
        place = urlsplit(self.path)
        if place.path == "/api/v0/logs/file":
            query = parse_qs(place.query, keep_blank_values=True, max_num_fields=99)
            if "filename" in query:
                snapshot = self.answers.get("snapshot") or json.dumps(SNAPSHOT).encode()
                return json.dumps(base64.b64encode(zlib.compress(snapshot)).decode()).encode()
            if query["submission_id"][0].startswith("doctor-"):
                return MARK.encode() + (self.answers.get("probe") or json.dumps(PROBE).encode()) + b"\n"
            return self.log * self.times
        if place.path.startswith("/api/packages/"):
            return b"zip"
        name = unquote(place.path.rpartition("/")[2])
        if name.startswith("monitor-"):
            return json.dumps(HEAD["job"] | {"submission_id": name, "status": "FAILED"}).encode()
        if "job" in self.answers and type(self).spoils > 0 and not name.startswith(("doctor-", "stop-")):
            type(self).spoils -= 1
            return self.answers["job"]
        status = "RUNNING" if self.running else "SUCCEEDED"
        return json.dumps(HEAD["job"] | {"submission_id": name, "status": status}).encode()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class FakeKubectl:
    """A kubectl that answers `get` with `objects`: JSON of a list by kind. A pod's log is `log`."""

    objects: ClassVar[dict[str, bytes]] = {}
    log: ClassVar[str] = "a line\n"

    def __init__(self, *_: object) -> None:
        self.folder = Path()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, *arguments: str) -> str:
        if arguments[0] == "logs":
            return self.log
        if arguments[1] == "secrets":
            return "secret/ray-token\n"
        if arguments[1] == "--raw":
            return "{}"
        kind = f"{arguments[1]} {SYSTEM}" if f"--namespace={SYSTEM}" in arguments else arguments[1]
        items = self.objects.get(kind, b"[]").decode()
        return f'{{"kind": "List", "items": {items}}}'

    get = Kubectl.get


def outside(bundle: Path, folder: Path) -> list[str]:
    """Unpack a bundle as the least careful tools do, and return what is no regular file, or outside of its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    before = {*folder.parent.iterdir()}
    with tarfile.open(bundle) as archive:
        found = [member.name for member in archive if not member.isreg()]
        archive.extractall(folder, filter="fully_trusted")
    found += [str(file) for file in {*folder.parent.iterdir()} - before - {folder}]
    return found + [str(each) for each in folder.iterdir()][1:]


@contextmanager
def served(folder: Path) -> Iterator[Path]:
    """A file with the outputs of a local stack whose Ray is `HostileHead`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), HostileHead) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        file = folder / "outputs.json"
        file.write_text(json.dumps(LOCAL | {"ray": LOCAL["ray"] | {"jobs": address, "dashboard": address}}))
        yield file
        server.shutdown()
