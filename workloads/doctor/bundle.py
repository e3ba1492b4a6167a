"""Bundle of `rdma-ray inspect`: the state, the diagnosis, the logs' last lines and the settings, without secrets.

One file, written at once with mode 0600: after an interruption there is the whole bundle or none.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from workloads.client.connection import Connection
from workloads.doctor.diagnosis import Diagnosis, Finding
from workloads.doctor.machines import name_of
from workloads.doctor.ray import jobs_of
from workloads.doctor.redaction import Redactor
from workloads.doctor.state import Collector, State, dumped, is_true, reading
from workloads.nccl.evidence.raw_log import KEPT, KIND
from workloads.results import MARK, parse

LINES = 500
"""Last lines of each log."""
LOG_CHARACTERS = 2**24
"""Last characters of a job's log that are read for them."""
JOBS, PODS = 10, 12
"""Newest jobs and unready pods whose logs are kept."""
NCCL = "NCCL "


class Bundle:
    """Files of a bundle by name, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.files: dict[str, bytes] = {}

    def add(self, name: str, text: str) -> None:
        """Add a text file."""
        self.files[name] = self.redactor.text(text).encode("utf-8", "replace")

    def add_value(self, name: str, value: Any, dump: Callable[[Any], str]) -> None:
        """Add a document. Its values lose their secrets, because the rules for text would break its syntax."""
        self.files[name] = dump(self.redactor.value(value)).encode("utf-8", "replace")

    def packed(self, folder: str, moment: float) -> bytes:
        """Return the files as .tar.gz, within a folder."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, data in sorted(self.files.items()):
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(moment), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()


def bundle_of(
    stack: Connection, collector: Collector, state: State, diagnosis: Diagnosis, stack_file: Path | None
) -> Bundle:
    """Return the bundle of a stack: what cannot be read is in `not-read.txt`."""
    found, missing = Bundle(collector.redactor), dict(state.unknown)
    found.add_value("doctor.json", diagnosis.model_dump(mode="json", by_alias=True), _json)
    found.add_value("state.json", dumped(state), _json)
    if stack_file is not None:
        with reading(missing, "settings"):
            found.add_value("settings.yaml", settings(stack_file), yaml.safe_dump)
    for pod in [pod for pod in state.objects("pods") if not is_true(pod, "Ready")][:PODS]:
        with reading(missing, f"log of pod {name_of(pod)}"):
            arguments = ("logs", name_of(pod), "--all-containers", "--prefix", f"--tail={LINES}")
            found.add(f"pods/{name_of(pod)}.log", stack.kubectl.run(*arguments))
    submitted = [job for job in jobs_of(state) if job.get("submission_id")]
    for job in sorted(submitted, key=lambda job: job.get("start_time") or 0, reverse=True)[:JOBS]:
        with reading(missing, f"log of job {job['submission_id']}"):
            add_log(found, job["submission_id"], stack.api.logs(job["submission_id"]))
    not_read = [f"{what}: {reason}" for what, reason in missing.items()]
    if not_read:
        found.add("not-read.txt", "\n".join(not_read) + "\n")
    found.add("README.txt", summary(state, diagnosis, [*found.files], not_read))
    return found


def add_log(bundle: Bundle, job_id: str, text: str) -> None:
    """Add a job's last lines, those of NCCL in a file of their own, and the ranks' NCCL logs that it carries."""
    lines: list[str] = []
    nccl: list[str] = []
    # Before lines are cut: the first half of a token is not recognized.
    for line in bundle.redactor.text(text[-LOG_CHARACTERS:]).splitlines():
        event = parse(line) if MARK in line else None
        if event is not None and event["kind"] == KIND:
            with suppress(binascii.Error, zlib.error, KeyError, TypeError, ValueError):
                data = zlib.decompressobj().decompress(base64.b64decode(event["data"], validate=True), 4 * KEPT)
                bundle.add(
                    f"nccl/{job_id}/rank-{int(event['rank']):03d}.log",
                    _tail(data.decode("utf-8", "replace").splitlines()),
                )
        else:
            (nccl if NCCL in line else lines).append(line)
    bundle.add(f"jobs/{job_id}.log", _tail(lines))
    if nccl:
        bundle.add(f"nccl/{job_id}/log.txt", _tail(nccl))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _tail(lines: list[str]) -> str:
    kept = [line[:4000] for line in lines[-LINES:]]
    cut = [f"[{len(lines) - LINES} lines before these were left out]"] if len(lines) > LINES else []
    return "\n".join([*cut, *kept]) + "\n"


def settings(file: Path) -> Any:
    """Return a stack file's settings without the values that Pulumi has encrypted."""
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    config = found.get("config") or {}
    return {
        "config": {name: value for name, value in config.items() if not (isinstance(value, dict) and "secure" in value)}
    }


def summary(state: State, diagnosis: Diagnosis, names: list[str], missing: list[str]) -> str:
    """Return the text of README.txt: what is wrong first, then what the files are."""
    outputs, probes = state.outputs, state.probes
    passed, skipped, absent = map(len, (diagnosis.passed, diagnosis.skipped, diagnosis.absent))
    taken = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(state.time))
    lines = [
        f"rdma-ray inspect: {outputs.ray.cluster} ({outputs.target}), {taken}",
        f"machine {outputs.machine or 'none'}, ray.mode {outputs.ray.mode}",
        f"Ray {outputs.ray.version}, on the client {state.client}",
        f"{len(probes)} Ray nodes probed, {len(state.objects('nodes'))} nodes of Kubernetes",
        "Secrets are removed. Read the files before you send them all the same.",
        "",
        *(report(diagnosis) or ["No check found a problem."]),
        "",
        f"Checks: {passed} passed, {skipped} not run, {absent} not applicable",
        *(f"not read: {text}" for text in missing[:20]),
        "",
        "doctor.json    findings (rdma-ray/doctor/1)",
        "state.json     outputs, Kubernetes' objects and events, Ray's state, probes (rdma-ray/state/1)",
        "settings.yaml  the stack file, without encrypted values",
        f"jobs, nccl, pods: the last {LINES} lines of logs",
        "",
        *sorted(names),
    ]
    return "\n".join(lines) + "\n"


def report(diagnosis: Diagnosis) -> list[str]:
    """Return the findings as text: four lines each."""
    return [line for finding in diagnosis.findings for line in _block(finding)]


def _block(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.upper()}  {finding.where}: {finding.cause}  [{finding.check}]"
    if finding.evidence:
        yield f"    seen: {finding.evidence}"
    yield f"    cure: {finding.cure}"
