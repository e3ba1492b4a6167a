"""The client's side of a monitor job: submit it, renew its lease, read its newest snapshot, stop it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Protocol
from urllib.parse import urlencode

from infra.outputs import Outputs
from workloads.client.api import JobsApi, UnreachableError
from workloads.client.run import python_of, submit_driver
from workloads.exits import WorkloadError
from workloads.monitor.snapshot import LEASE_S, Lease, MonitorOptions, Snapshot, decode
from workloads.results.events import new_id

KIND = "monitor"
START_S = 120.0  # that a monitor job has for its first snapshot
NO_FILE = 500  # Ray's answer for a file that does not exist (2.60)
RETRY_S = 15.0  # between two monitor jobs, after the first one has ended


class SnapshotSource(Protocol):
    """Where snapshots come from. `poll` returns the newest one, or None if there is none yet."""

    interval_s: float

    def poll(self) -> Snapshot | None: ...


class MonitorJob(AbstractContextManager["MonitorJob"]):
    """A monitor job on a stack's cluster, as long as the context is open. It is replaced if it ends.

    The job ends with the context, or LEASE_S seconds after the last call of `poll`. WorkloadError if Ray does not
    answer, rejects the token, or the job fails before its first snapshot.
    """

    def __init__(
        self,
        api: JobsApi,
        outputs: Outputs,
        interval_s: float,
        *,
        submit: Callable[..., None] = submit_driver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api, self.outputs, self.interval_s = api, outputs, interval_s
        self._submit, self._clock = submit, clock
        self._options: MonitorOptions | None = None
        self._node: str | None = None
        self._seen = False
        self._started = 0.0
        self._renewed: tuple[float, float] | None = None
        self._count = 0

    def __enter__(self) -> MonitorJob:
        self._start()
        self.api.patience_s = 0  # `poll` comes back anyway
        return self

    def __exit__(self, *_: object) -> None:
        if self._options is not None:
            # Without an answer, the job ends with its lease.
            with suppress(WorkloadError):
                self.api.call(f"/api/jobs/{self._options.name}/stop", method="POST")

    def poll(self) -> Snapshot | None:
        """Return the newest snapshot; None if the job has not written one.

        UnreachableError if Ray does not answer, and WorkloadError for other errors.
        """
        if self._options is None:
            self._restart()
        assert self._options is not None
        self._renew(self._options)
        if self._node is None:
            self._node = self.api.call(f"/api/jobs/{self._options.name}").get("driver_node_id")
        try:
            if self._node is not None:
                query = urlencode({"node_id": self._node, "filename": self._options.file, "lines": -1})
                snapshot = decode(self.api.call(f"/api/v0/logs/file?{query}"))
                self._seen = True
                return snapshot
        except WorkloadError as error:
            if isinstance(error, UnreachableError) and error.status != NO_FILE:
                raise
            problem = error
        else:
            problem = WorkloadError(f"the monitor job {self._options.name} has not started")
        self._check(self._options.name, problem)
        return None

    def _start(self) -> None:
        outputs = self.outputs
        options = MonitorOptions(
            name=new_id(KIND),
            cluster=outputs.ray.cluster,
            gbps_per_nic=outputs.fabric.gbps_per_nic,
            elastic=outputs.nodes.elastic,
        )
        words = [python_of(outputs), "-m", "workloads.monitor.driver", options.model_dump_json()]
        self._started, self._seen, self._node, self._renewed = self._clock(), False, None, None
        self._submit(self.api, options.name, words, {"workload": KIND})
        self._options = options

    def _restart(self) -> None:
        if self._clock() - self._started < RETRY_S:
            raise WorkloadError("the monitor job ended; another one starts in a moment")
        self._start()

    def _renew(self, options: MonitorOptions) -> None:
        """Renew the lease, if it is due or the interval has changed."""
        now = self._clock()
        if self._renewed is None or now - self._renewed[0] > LEASE_S / 4 or self._renewed[1] != self.interval_s:
            self._count += 1
            lease = Lease(count=self._count, interval_s=self.interval_s)
            self.api.call(f"/api/packages/gcs/{options.lease}", "PUT", lease.model_dump_json().encode(), read=bytes)
            self._renewed = now, self.interval_s

    def _check(self, name: str, problem: WorkloadError) -> None:
        """Raise WorkloadError if the job will not write a snapshot."""
        try:
            job = self.api.job(name)
        except UnreachableError:
            raise
        except WorkloadError as error:  # the head was replaced, and knows no job of before
            self._options = None
            raise WorkloadError(f"the monitor job is gone: {error}") from None
        if job.terminal:
            self._options = None if self._seen else self._options
            reason = (job.message.strip().splitlines() or ["no reason given"])[-1]
            raise WorkloadError(f"the monitor job {name} {job.status}: {reason}\nits log: rdma-ray logs {name}")
        if self._seen or self._clock() - self._started > START_S:
            raise problem
