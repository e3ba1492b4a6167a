"""Stub of Ray's job API: authentication, and its answers to KubeRay 1.6.2."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rehearsal.cluster.controllers.dashboard import Dashboard
from rehearsal.cluster.controllers.events import Event
from rehearsal.engine.kind import Json
from tools.kubernetes.api import Api

URL = "http://train-head-svc.ray.svc.cluster.local:8265"
TOKEN = {"x-ray-authorization": "Bearer right"}


class Objects:
    """The few objects that the stub reads from an API server."""

    def __init__(self) -> None:
        self.ready = "True"
        self.head, self.restarts = "first", 0
        self.options: Json = {"mode": "token", "secretName": "token"}

    def get(self, _version: str, kind: str, name: str, namespace: str) -> Json | None:
        found: dict[str, Json] = {
            "Service train-head-svc": {"spec": {"selector": {"ray.io/cluster": "train", "ray.io/node-type": "head"}}},
            "RayCluster train": {"spec": {"authOptions": self.options}},
            "Secret token": {"data": {"auth_token": base64.b64encode(b"right").decode()}},
        }
        its = found.get(f"{kind} {name}")
        return its and {"metadata": {"name": name, "namespace": namespace}, **its}

    def list(self, _version: str, _kind: str, _namespace: str, _selector: str) -> list[Json]:
        if not self.head:
            return []
        ran = {"name": "ray-head", "restartCount": self.restarts}
        status = {"conditions": [{"type": "Ready", "status": self.ready}], "containerStatuses": [ran]}
        return [{"metadata": {"uid": self.head}, "spec": {"containers": [{"name": "ray-head"}]}, "status": status}]


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def dashboard(objects: Objects, events: list[Event]) -> Iterator[Dashboard]:
    def report(kind: str, **fields: Any) -> None:
        events.append(Event(kind, fields))

    dashboard = Dashboard(cast(Api, objects), report, runs_s=0.0)
    yield dashboard
    dashboard.close()


def ask(
    dashboard: Dashboard, method: str, path: str, body: Json | None = None, headers: Json | None = None
) -> tuple[int, Any]:
    shown: Json = TOKEN if headers is None else headers
    return dashboard.answer(method, URL + path, lambda name: shown.get(name), json.dumps(body or {}).encode())


def test_job_succeeds_after_submission(dashboard: Dashboard, events: list[Event]) -> None:
    request = {"entrypoint": "python train.py", "submission_id": "one"}
    assert ask(dashboard, "POST", "/api/jobs/", request) == (200, {"job_id": "one", "submission_id": "one"})
    _, job = ask(dashboard, "GET", "/api/jobs/one")
    assert (job["status"], job["entrypoint"]) == ("PENDING", "python train.py")
    dashboard.reconcile()
    assert ask(dashboard, "GET", "/api/jobs/one")[1]["status"] == "RUNNING"
    dashboard.reconcile()
    _, job = ask(dashboard, "GET", "/api/jobs/one")
    assert job["status"] == "SUCCEEDED"
    assert job["end_time"] >= job["start_time"]
    assert [event.status for event in events if event.kind == "JobChanged"] == ["PENDING", "RUNNING", "SUCCEEDED"]


def test_job_is_stopped_once_and_submitted_once(dashboard: Dashboard) -> None:
    dashboard.manual = True
    ask(dashboard, "POST", "/api/jobs/", {"entrypoint": "x", "submission_id": "one"})
    status, words = ask(dashboard, "POST", "/api/jobs/", {"entrypoint": "x", "submission_id": "one"})
    # By these words the operator recognizes an earlier submission.
    assert (status, "Please use a different submission_id" in words["error"]) == (500, True)
    assert ask(dashboard, "POST", "/api/jobs/one/stop") == (200, {"stopped": True})
    assert ask(dashboard, "POST", "/api/jobs/one/stop") == (200, {"stopped": False})
    assert ask(dashboard, "GET", "/api/jobs/two")[0] == ask(dashboard, "GET", "/nodes")[0] == 404


@pytest.mark.parametrize("headers", [{}, {"x-ray-authorization": "Bearer wrong"}, {"x-ray-authorization": "right"}])
def test_request_without_cluster_token_is_unauthorized(dashboard: Dashboard, headers: Json) -> None:
    assert ask(dashboard, "GET", "/api/jobs/one", headers=headers)[0] == 401
    assert dashboard.refused == ["ray/train"]


def test_cluster_without_authentication_needs_no_token(dashboard: Dashboard, objects: Objects) -> None:
    objects.options = {"mode": "disabled"}
    assert ask(dashboard, "GET", "/api/jobs/one", headers={})[0] == 404


def test_dashboard_needs_a_ready_head(dashboard: Dashboard, objects: Objects) -> None:
    elsewhere = "http://other-head-svc.ray.svc.cluster.local:8265/api/jobs/one"
    assert dashboard.answer("GET", elsewhere, TOKEN.get, b"")[0] == 502
    objects.ready = "False"
    assert ask(dashboard, "GET", "/api/jobs/one")[0] == 502


@pytest.mark.parametrize("lost", [{"head": "second"}, {"restarts": 1}], ids=["pod", "container"])
def test_jobs_are_forgotten_with_their_head(dashboard: Dashboard, objects: Objects, lost: Json) -> None:
    """As Ray does without fault tolerance of its GCS: the operator then submits the entry point again."""
    request = {"entrypoint": "x", "submission_id": "one"}
    ask(dashboard, "POST", "/api/jobs/", request)
    dashboard.reconcile()
    assert ask(dashboard, "GET", "/api/jobs/one")[0] == 200
    for field, value in lost.items():
        setattr(objects, field, value)
    assert ask(dashboard, "GET", "/api/jobs/one")[0] == 404
    assert ask(dashboard, "POST", "/api/jobs/", request)[0] == 200


def test_jobs_do_not_run_without_their_head(dashboard: Dashboard, objects: Objects, events: list[Event]) -> None:
    ask(dashboard, "POST", "/api/jobs/", {"entrypoint": "x", "submission_id": "one"})
    objects.head = ""
    dashboard.reconcile()
    assert dashboard.jobs == []
    assert [event.status for event in events if event.kind == "JobChanged"] == ["PENDING", "lost with its head"]
