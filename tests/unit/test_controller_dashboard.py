"""Stub of Ray's job API: authentication, and its answers to KubeRay 1.6.2."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from infra.catalog.pins import RAY
from rehearsal.clouds.kind import Json
from rehearsal.cluster.controllers.dashboard import Dashboard
from rehearsal.cluster.controllers.events import Event, JobChanged
from tools.kubernetes.api import Api

URL = "http://train-head-svc.ray.svc.cluster.local:8265"
TOKEN = {"x-ray-authorization": "Bearer right"}


class Objects:
    """The few objects that the stub reads from an API server."""

    def __init__(self) -> None:
        self.ready = "True"
        self.options: Json = {"mode": "token", "secretName": "token"}

    def get(self, _version: str, kind: str, name: str, namespace: str) -> Json | None:
        metadata = {"name": name, "namespace": namespace}
        match kind, name:
            case "Service", "train-head-svc":
                return {
                    "metadata": metadata,
                    "spec": {"selector": {"ray.io/cluster": "train", "ray.io/node-type": "head"}},
                }
            case "RayCluster", "train":
                return {"metadata": metadata, "spec": {"authOptions": self.options}}
            case "Secret", "token":
                return {"metadata": metadata, "data": {"auth_token": base64.b64encode(b"right").decode()}}
        return None

    def list(self, _version: str, _kind: str, _namespace: str, _selector: str) -> list[Json]:
        return [{"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": self.ready}]}}]


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def dashboard(objects: Objects, events: list[Event]) -> Iterator[Dashboard]:
    dashboard = Dashboard(cast(Api, objects), events.append, runs_s=0.0)
    yield dashboard
    dashboard.close()


def ask(
    dashboard: Dashboard, method: str, path: str, body: Json | None = None, headers: Json | None = None
) -> tuple[int, Any]:
    shown: Json = TOKEN if headers is None else headers
    return dashboard.answer(method, URL + path, lambda name: shown.get(name), json.dumps(body or {}).encode())


def test_job_succeeds_after_submission(dashboard: Dashboard, events: list[Event]) -> None:
    request = {"entrypoint": "python train.py", "submission_id": "one", "runtime_env": {"env_vars": {"A": "1"}}}
    assert ask(dashboard, "POST", "/api/jobs/", request) == (200, {"job_id": "one", "submission_id": "one"})
    _, job = ask(dashboard, "GET", "/api/jobs/one")
    assert (job["status"], job["entrypoint"], job["runtime_env"]) == (
        "PENDING",
        "python train.py",
        request["runtime_env"],
    )
    dashboard.reconcile()
    assert ask(dashboard, "GET", "/api/jobs/one")[1]["status"] == "RUNNING"
    dashboard.reconcile()
    _, (job,) = ask(dashboard, "GET", "/api/jobs/")
    assert job["status"] == "SUCCEEDED"
    assert job["end_time"] >= job["start_time"]
    assert [event.status for event in events if isinstance(event, JobChanged)] == ["PENDING", "RUNNING", "SUCCEEDED"]


def test_manual_job_waits_for_the_test(dashboard: Dashboard) -> None:
    dashboard.manual = True
    ask(dashboard, "POST", "/api/jobs/", {"entrypoint": "x", "submission_id": "one"})
    dashboard.reconcile()
    assert ask(dashboard, "GET", "/api/jobs/one")[1]["status"] == "PENDING"
    dashboard.change("one", "FAILED", "it broke", logs="Traceback")
    assert ask(dashboard, "GET", "/api/jobs/one")[1]["message"] == "it broke"
    assert ask(dashboard, "GET", "/api/jobs/one/logs") == (200, {"logs": "Traceback"})
    with pytest.raises(KeyError, match="no job two; known jobs: one"):
        dashboard.change("two", "FAILED")


def test_stop_delete_and_duplicate_submission(dashboard: Dashboard) -> None:
    dashboard.manual = True
    ask(dashboard, "POST", "/api/jobs/", {"entrypoint": "x", "submission_id": "one"})
    status, words = ask(dashboard, "POST", "/api/jobs/", {"entrypoint": "x", "submission_id": "one"})
    # By these words the operator recognizes an earlier submission.
    assert (status, "Please use a different submission_id" in words["error"]) == (500, True)
    assert ask(dashboard, "POST", "/api/jobs/one/stop") == (200, {"stopped": True})
    assert ask(dashboard, "POST", "/api/jobs/one/stop") == (200, {"stopped": False})
    assert ask(dashboard, "DELETE", "/api/jobs/one")[0] == 200
    assert ask(dashboard, "GET", "/api/jobs/one")[0] == 404


def test_only_version_and_serve_are_answered(dashboard: Dashboard) -> None:
    assert ask(dashboard, "GET", "/api/version")[1]["ray_version"] == RAY
    assert ask(dashboard, "GET", "/api/serve/applications/?api_type=declarative") == (200, {"applications": {}})
    assert ask(dashboard, "GET", "/nodes")[0] == 404
    assert ask(dashboard, "PATCH", "/api/jobs/")[0] == 404


@pytest.mark.parametrize("headers", [{}, {"x-ray-authorization": "Bearer wrong"}, {"x-ray-authorization": "right"}])
def test_request_without_cluster_token_is_unauthorized(dashboard: Dashboard, headers: Json) -> None:
    assert ask(dashboard, "GET", "/api/jobs/", headers=headers)[0] == 401
    assert dashboard.refused == ["ray/train"]


def test_cluster_without_authentication_needs_no_token(dashboard: Dashboard, objects: Objects) -> None:
    objects.options = {"mode": "disabled"}
    assert ask(dashboard, "GET", "/api/jobs/", headers={})[0] == 200


def test_dashboard_needs_a_ready_head(dashboard: Dashboard, objects: Objects) -> None:
    elsewhere = "http://other-head-svc.ray.svc.cluster.local:8265/api/jobs/"
    assert dashboard.answer("GET", elsewhere, TOKEN.get, b"")[0] == 502
    objects.ready = "False"
    assert ask(dashboard, "GET", "/api/jobs/")[0] == 502
