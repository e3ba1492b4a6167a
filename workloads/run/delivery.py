"""Delivery of a run's secrets: sealed to the key of the job's driver, when that runs (`workloads.sealed`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from workloads import sealed
from workloads.client.api import JobsApi
from workloads.client.submit import upload_for_minutes
from workloads.results.events import parse

POLL_S = 0.3
QUIET_S = 10.0
"""Seconds of waiting that need no explanation: the driver starts."""


def deliver(api: JobsApi, job_id: str, key: sealed.Key, values: Mapping[str, str]) -> None:
    """Wait for the driver of a job, and send the secrets to it. Nothing is sent if the job ends before."""
    waited, refused = 0.0, set[str]()
    while True:
        job = api.job(job_id)
        events = [event for line in api.logs(job).splitlines() if (event := parse(line))]
        for driver in [str(event.get("key")) for event in events if event["kind"] == sealed.KIND]:
            if driver in refused:
                continue
            try:
                package = key.seal(dict(values), driver)
            except ValueError as error:
                refused.add(driver)
                print(f"job {job_id}: its log has a key for secrets that is refused: {error}", file=sys.stderr)
            else:
                upload_for_minutes(api, sealed.package(key.public), package)
                return
        if job.terminal:
            return
        if waited < QUIET_S <= waited + POLL_S:
            print(f"job {job_id}: its secrets are sent when its driver runs", file=sys.stderr)
        api.sleep(POLL_S)
        waited += POLL_S
