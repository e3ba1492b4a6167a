"""The client's side of the monitor job, with a double of Ray's REST interface; and what is no snapshot."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from pydantic import SecretStr

from infra.outputs import Outputs
from tests.workloads.monitor.simulated import Fleet
from tests.workloads.stack_outputs import GKE, TOKEN
from workloads.client.api import JobsApi, UnreachableError
from workloads.exits import WorkloadError
from workloads.monitor.commands import complete, one
from workloads.monitor.snapshot import LEASE_S, PROBE_STARTS, Lease, MonitorOptions, Reading, Snapshot, decode, encode
from workloads.monitor.source import RETRY_S, MonitorJob


class Head(JobsApi):
    """A head with one monitor job: `file` is what its log interface serves, `status` the job's."""

    def __init__(self) -> None:
        super().__init__("http://head", SecretStr(TOKEN), "test")
        self.now = 0.0
        self.file: Any = UnreachableError("500: file not found", 500)
        self.status = "RUNNING"
        self.jobs_started: list[str] = []
        self.commands: list[list[str]] = []
        self.leases: list[Lease] = []
        self.stopped: list[str] = []
        self.down = False

    def submit(self, _: JobsApi, job: str, words: list[str], metadata: dict[str, str]) -> None:
        assert metadata == {"workload": "monitor"}
        if self.down:
            raise UnreachableError("down")
        self.jobs_started.append(job)
        self.commands.append(words)
        self.status = "RUNNING"

    def call(self, path: str, method: str = "GET", body: object = None, **_: object) -> Any:
        if self.down:
            raise UnreachableError("down")
        job = self.jobs_started[-1]
        if method == "PUT":
            assert path == f"/api/packages/gcs/rdma-ray-top-{job}.zip"
            assert isinstance(body, bytes)
            self.leases.append(Lease.model_validate_json(body))
            return None
        if method == "POST":
            assert path == f"/api/jobs/{job}/stop"
            return self.stopped.append(job)
        if path == f"/api/jobs/{job}":
            if self.status == "unknown":
                raise WorkloadError("404")
            return {"submission_id": job, "status": self.status, "message": "no such module", "driver_node_id": "n1"}
        assert path == f"/api/v0/logs/file?node_id=n1&filename=rdma-ray-top-{job}.json&lines=-1"
        if isinstance(self.file, Exception):
            raise self.file
        return self.file

    def monitor(self, interval_s: float = 2) -> MonitorJob:
        return MonitorJob(self, Outputs.model_validate(GKE), interval_s, submit=self.submit, clock=lambda: self.now)


def served(snapshot: Snapshot) -> Any:
    return json.loads(encode(snapshot))


def test_snapshots_arrive_under_a_lease_and_the_job_ends_with_the_client() -> None:
    head = Head()
    with head.monitor() as source:
        assert source.poll() is None
        head.file = served(Fleet(3).snapshot())
        assert source.poll() == Fleet(3).snapshot()
        head.now += LEASE_S / 3
        source.interval_s = 10
        source.poll()
        source.poll()
        assert [(lease.count, lease.interval_s) for lease in head.leases] == [(1, 2), (2, 10)]
    [job] = head.jobs_started
    assert head.stopped == [job]
    [[*program, request]] = head.commands
    assert program == ["python", "-m", "workloads.monitor.driver"]
    options = MonitorOptions.model_validate_json(request)
    assert (options.gbps_per_nic, options.elastic, options.cluster) == (400, True, "a3u")
    assert TOKEN not in request


def test_job_that_fails_before_its_first_snapshot_is_an_error_and_is_not_repeated() -> None:
    head = Head()
    with head.monitor() as source:
        source.poll()
        head.status = "FAILED"
        for _ in range(2):
            with pytest.raises(WorkloadError, match="FAILED: no such module\nits log: rdma-ray logs monitor-"):
                source.poll()
    assert len(head.jobs_started) == 1


def test_replaced_head_gets_a_new_job() -> None:
    head = Head()
    with head.monitor() as source:
        head.file = served(Fleet(3).snapshot())
        source.poll()
        head.now, head.down = 100, True
        with pytest.raises(UnreachableError):
            source.poll()
        head.down, head.status, head.file = False, "unknown", WorkloadError("500")
        with pytest.raises(WorkloadError, match="the monitor job is gone"):
            source.poll()
        assert source.poll() is None
        # It fails as well: one job per RETRY_S, not one per poll.
        head.status = "unknown"
        for _ in range(3):
            with pytest.raises(WorkloadError):
                source.poll()
        assert len(head.jobs_started) == 2
        head.now += RETRY_S
        source.poll()
        assert len(head.jobs_started) == 3


def test_one_snapshot_waits_for_the_second_reading_of_every_probe() -> None:
    starting, first, whole = (Fleet(2).snapshot(step) for step in range(3))

    def changed(found: Snapshot, **update: Any) -> Snapshot:
        return found.model_copy(update={"nodes": [node.model_copy(update=update) for node in found.nodes]})

    starting = changed(starting, reading=None, note=PROBE_STARTS)
    first = changed(first, reading=Reading())
    whole = changed(whole, reading=Reading(seconds=2))
    assert complete(changed(whole, reading=None, note="not probed"))

    class Script:
        interval_s = 2.0

        def __init__(self) -> None:
            self.script: list[Any] = [None, UnreachableError("down"), starting, first, whole]

        def poll(self) -> Snapshot | None:
            found = self.script.pop(0)
            if isinstance(found, Exception):
                raise found
            assert found is None or isinstance(found, Snapshot)
            return found

    assert one(Script(), pause_s=0) == whole


def packed(document: bytes) -> str:
    return base64.b64encode(zlib.compress(document)).decode()


@pytest.mark.parametrize(
    "text",
    ["", "not base64!", packed(b"{}")[:9], packed(b"{}"), 5, packed(b" " * 2**27)],
    ids=["empty", "text", "cut", "empty document", "number", "bomb"],
)
def test_what_is_no_snapshot_is_one_error(text: object) -> None:
    with pytest.raises(WorkloadError, match="the monitor's file is not a snapshot of this version") as error:
        decode(text)
    assert len(str(error.value)) < 300


def test_document_keeps_its_keys() -> None:
    """Who reads `--once --json` relies on these names: a change of one is a change of the schema's number."""
    document = Fleet(3).snapshot().document()
    assert document["schema"] == "rdma-ray/top/1"
    assert Snapshot.model_validate_json(json.dumps(document)) == Fleet(3).snapshot()
    keys = {
        "": "schema cluster ray time interval_s nodes jobs actors groups demands starting failed notes",
        "nodes": "id address role group state idle_s cpus gpus reading note",
        "jobs": "id workload status started ended message",
        "actors": "name states",
        "groups": "id name strategy state bundles why",
        "demands": "what count why",
    }
    for part, names in keys.items():
        assert " ".join(document[part][-1] if part else document) == names
    reading = document["nodes"][-1]["reading"]
    assert " ".join(reading) == "seconds cpu_percent memory_used memory_total gpus nics missing"
    assert " ".join(reading["gpus"][0]) == (
        "index name utilization memory_used memory_total power_w power_limit_w temperature_c sm_mhz sm_max_mhz"
        " limited_by xids ecc_uncorrected"
    )
    assert " ".join(reading["nics"][0]) == "name state gbps sent_gbps received_gbps errors"
