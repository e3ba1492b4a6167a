"""The script of `nodes.maxHours` against people who would switch it off: annotations, pods and lists of the API."""

from __future__ import annotations

import argparse
import json
import time
import urllib.error
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.kubernetes import time_limit_pod
from infra.kubernetes.time_limit_pod import ENDED, SINCE, KubernetesApi, check

HOURS = 24
NOW = 1_800_000_000.0
FUTURE = "2099-01-01T00:00:00Z"
SUSPEND = [{"op": "add", "path": "/spec/suspend", "value": True}]
DEACTIVATE = [{"op": "add", "path": "/spec/active", "value": False}]


def at(hours: float) -> str:
    """Return the time so many hours before now, as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - hours * 3600))


def pod(hours: float | str | None, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    """Return a worker that started so many hours ago, or at a time of its own; None: without a node."""
    start = at(hours) if isinstance(hours, float | int) else hours
    return {"metadata": metadata, "status": {"phase": phase, **({} if start is None else {"startTime": start})}}


class Cluster(KubernetesApi):
    """An API server with a workload, its pods and a queue's objects, which are also in pages."""

    def __init__(self, pods: list[dict[str, Any]], since: str | None = None, owned: dict[str, str] | None = None):
        self.workload: dict[str, Any] = {"metadata": {"uid": "mine"}, "spec": {}}
        if since is not None:
            self.workload["metadata"]["annotations"] = {SINCE: since}
        self.pods, self.patched = pods, list[tuple[str, Any]]()
        self.owned = [
            {"metadata": {"name": name, "ownerReferences": [{"uid": uid}]}} for name, uid in (owned or {}).items()
        ]

    def request(self, path: str, patch: Any = None) -> Any:
        lists = {"/pods": self.pods, "/owned": self.owned}
        there = urlsplit(path)
        if patch is not None:
            self.patched.append((there.path, patch))
            if isinstance(patch, dict):
                # As a merge patch: a null removes.
                merged = self.workload["metadata"].get("annotations", {}) | patch["metadata"]["annotations"]
                self.workload["metadata"]["annotations"] = {key: one for key, one in merged.items() if one is not None}
            return {}
        if there.path not in lists:
            return json.loads(json.dumps(self.workload))
        query = parse_qs(there.query)
        first, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        rest = len(lists[there.path]) - first - limit
        more = {"continue": str(first + limit), "remainingItemCount": rest} if rest > 0 else {}
        return {"metadata": more, "items": lists[there.path][first : first + limit]}

    @property
    def notes(self) -> dict[str, str]:
        notes: dict[str, str] = self.workload["metadata"].get("annotations", {})
        return notes

    @property
    def ended(self) -> list[str]:
        """The objects that the ending patch went to."""
        return [path for path, patch in self.patched if isinstance(patch, list)]


def look(cluster: Cluster, owned: str | None = None) -> str:
    """Check once; return the line."""
    patch = DEACTIVATE if owned else SUSPEND
    args = argparse.Namespace(hours=HOURS, workload="/workload", pods="/pods?labelSelector=a", patch=patch, owned=owned)
    said = check(cluster, args, NOW)
    assert said.isprintable()
    assert len(said) < 400
    return said


@pytest.mark.parametrize("since", [FUTURE, "soon", "", "0", "soon\nended", "\x1b[2J", "x" * 200_000, at(-1), at(1)])
def test_annotation_of_another_does_not_stop_the_limit(since: str) -> None:
    cluster = Cluster([pod(HOURS + 1), pod(2)], since)
    said = look(cluster)
    assert cluster.ended == ["/workload"]
    assert said.startswith("ended.")
    assert "ignored" in said
    assert set(cluster.notes) == {ENDED}


@pytest.mark.parametrize("since", [FUTURE, "soon", at(-1), at(1)])
def test_ignored_annotation_is_named_and_corrected(since: str) -> None:
    cluster = Cluster([pod(3), pod(2)], since)
    said = look(cluster)
    assert cluster.ended == []
    assert f"ignored {since!r}" in said
    assert cluster.notes == {SINCE: at(3)}
    assert "ignored" not in look(cluster)


def test_removed_annotation_does_not_stop_the_limit() -> None:
    """Also where it is removed before every check, and with it all others."""
    cluster = Cluster([pod(HOURS + 1)])
    assert "ended" in look(cluster)
    assert cluster.ended == ["/workload"]


def test_older_annotation_outlives_recreated_workers() -> None:
    cluster = Cluster([pod(1)], at(HOURS + 1))
    assert "ignored" not in look(cluster)
    assert cluster.ended == ["/workload"]


def test_count_begins_and_goes_on() -> None:
    cluster = Cluster([pod(2), pod(None, "Pending"), pod(30, "Succeeded"), pod(1, "Pending")])
    assert "the count begins" in look(cluster)
    assert cluster.notes == {SINCE: at(2)}
    patched = list(cluster.patched)
    assert "2 workers hold nodes" in look(cluster)
    assert cluster.patched == patched


def test_count_ends_without_workers() -> None:
    cluster = Cluster([pod(30, deletionTimestamp=at(-0.03))], at(30))
    assert look(cluster) == "no worker holds a node"
    assert cluster.notes == {}


def test_worker_deleted_with_a_long_grace_holds_its_node() -> None:
    cluster = Cluster([pod(HOURS + 1, deletionTimestamp=at(-1000))])
    look(cluster)
    assert cluster.ended == ["/workload"]


@pytest.mark.parametrize("start", [FUTURE, "soon"])
def test_start_that_no_clock_has_shown_is_ignored(start: str) -> None:
    """Alone, it counts from the check that saw it first."""
    cluster = Cluster([pod(start)])
    assert f"ignored {start!r}" in look(cluster)
    assert cluster.notes == {SINCE: at(0)}
    cluster.workload["metadata"]["annotations"] = {SINCE: at(HOURS + 1)}
    assert "ended" in look(cluster)


def test_oldest_worker_counts_on_any_page() -> None:
    cluster = Cluster([*(pod(1) for _ in range(3 * time_limit_pod._PAGE)), pod(HOURS + 1)])
    look(cluster)
    assert cluster.ended == ["/workload"]


def test_only_what_the_workload_owns_is_ended() -> None:
    cluster = Cluster([pod(HOURS + 1)], owned={"../../pods/a?b": "mine", "other": "other", "third": "mine"})
    assert "ended" in look(cluster, "/owned")
    assert cluster.ended == ["/owned/..%2F..%2Fpods%2Fa%3Fb", "/owned/third"]


def test_end_that_found_nothing_is_not_reported_as_one() -> None:
    cluster = Cluster([pod(HOURS + 1)], owned={"other": "other"})
    with pytest.raises(LookupError, match="nothing in /owned belongs to it"):
        look(cluster, "/owned")
    assert ENDED not in cluster.notes


def test_api_server_that_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise urllib.error.HTTPError("https://api", 403, "Forbidden", {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr(time_limit_pod, "KubernetesApi", refuse)
    options = ("--hours=1", "--workload=/workload", "--pods=/pods", "--patch=[]", "--account=/none")
    monkeypatch.setattr("sys.argv", ["time-limit", *options])
    with pytest.raises(SystemExit) as ended:
        time_limit_pod.main()
    assert ended.value.code == "/workload: not checked: HTTP Error 403: Forbidden"
