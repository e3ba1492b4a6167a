"""Bundle of `rdma-ray inspect`: the state, the diagnosis, the logs' last lines and the settings, without secrets.

One file, written at once with mode 0600: after an interruption there is the whole bundle or none.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from infra.settings.stack_file import read_config
from workloads.client.answer import END_LINES
from workloads.client.api import Job
from workloads.client.connection import Connection
from workloads.doctor.diagnosis import Diagnosis, Finding
from workloads.doctor.kept import metadata
from workloads.doctor.objects import is_true
from workloads.doctor.ray_state import jobs_of
from workloads.doctor.redaction import Redactor
from workloads.doctor.state import State, StateReader, dumped, reading
from workloads.evidence.raw_log import KIND, rank_of, unpacked
from workloads.exits import WorkloadError
from workloads.results.events import MARK, Event, parse
from workloads.untrusted import file_name, number

LINES = 500
"""Last lines of each log."""
JOBS, PODS = 10, 12
"""Newest jobs and unready pods whose logs are kept."""
LONGEST_LINE, LONGEST_RAW_LINE = 4_000, 2**14
"""Characters of a line that are kept, and those from which secrets are removed: half of a token is not recognized."""
TEXT_BYTES, LOG_BYTES = 12 * 2**20, 2**19
"""Text of all logs, and of one: to remove secrets from a MiB takes up to two seconds (Redactor, 2026-11)."""
RANK_BYTES, RANKS = 2**17, 64
"""Text of a rank's NCCL log, and the ranks of a job whose logs are kept."""
LOGS_S = 40
"""Seconds after which no other log is read."""
SIZE = 60 * 2**20
"""Bytes of all files."""
NOT_READ, LONGEST_NAME = 500, 200
"""Lines of `not-read.txt`, and characters of a name in one."""
NCCL = "NCCL "


class Bundle:
    """Files of a bundle by name, without secrets, up to SIZE in all; `cut` names the parts that were left out."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.files: dict[str, bytes] = {}
        self.cut: dict[str, str] = {}
        self._left, self._text_left = SIZE, TEXT_BYTES

    def add(self, name: str, text: str) -> None:
        """Add a text file."""
        self._put(name, self.redactor.text(text))

    def add_log(self, name: str, lines: Sequence[str], size: int = LOG_BYTES) -> None:
        """Add the last lines of a log, as many as its size and that of all logs allow."""
        kept: list[str] = []
        left = min(size, self._text_left)
        for line in reversed(lines[-LINES:]):
            raw = line if len(line) <= LONGEST_RAW_LINE else _cut(line)
            left -= len(raw) + 1
            if left < 0:
                break
            kept.append(raw)
        self._text_left -= sum(len(line) + 1 for line in kept)
        text = self.redactor.text("\n".join(reversed(kept))).split("\n")
        if (missing := len(lines) - len(kept)) > 0:
            text.insert(0, f"[{missing} lines before these were left out]")
        if len(kept) < min(len(lines), LINES):
            self.cut[name] = f"{len(kept)} of the last {min(len(lines), LINES)} lines were kept, because they are long"
        self._put(name, "".join(f"{_shown(line)}\n" for line in text))

    def add_value(self, name: str, value: Any, dump: Callable[[Any], str]) -> None:
        """Add a document. Its values lose their secrets, because the rules for text would break its syntax."""
        self._put(name, dump(self.redactor.value(value)))

    def _put(self, name: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > self._left or name in self.files:
            self.cut[name] = (
                "left out: the bundle already has this file" if name in self.files else "left out: too large"
            )
            return
        self._left -= len(data)
        self.files[name] = data

    def packed(self, folder: str, moment: float) -> bytes:
        """Return the files as .tar.gz, within a folder."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, data in sorted(self.files.items()):
                entry = tarfile.TarInfo(f"{file_name(folder)}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(moment), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()


def bundle_of(
    stack: Connection, collector: StateReader, state: State, diagnosis: Diagnosis, stack_file: Path | None
) -> Bundle:
    """Return the bundle of a stack. `not-read.txt` lists parts that cannot be read or were left out."""
    bundle, missing = Bundle(collector.redactor), dict(state.unknown)
    bundle.add_value("doctor.json", diagnosis.model_dump(mode="json", by_alias=True), _json)
    bundle.add_value("state.json", dumped(state), _json)
    if stack_file is not None:
        with reading(missing, "settings"):
            bundle.add_value("settings.yaml", settings(stack_file), yaml.safe_dump)
    until = time.monotonic() + LOGS_S
    for what, add in chain(_pod_logs(stack, bundle, state), _job_logs(stack, bundle, state)):
        with reading(missing, what):
            if time.monotonic() > until:
                raise WorkloadError(f"the previous logs took {LOGS_S} s")
            add()
    not_read = [
        *(f"{what}: {reason}" for what, reason in missing.items()),
        *(f"{what}: {reason}" for what, reason in (state.cut | bundle.cut).items()),
    ]
    not_read = [bundle.redactor.text(line) for line in not_read[:NOT_READ]]
    if not_read:
        bundle.add("not-read.txt", "\n".join(not_read) + "\n")
    bundle.add("README.txt", summary(state, diagnosis, [*bundle.files], not_read))
    return bundle


def _pod_logs(stack: Connection, bundle: Bundle, state: State) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what each log of an unready pod is, and a function that adds it."""
    for pod in [pod for pod in state.objects("pods") if not is_true(pod, "Ready")][:PODS]:
        name = str(metadata(pod).get("name"))

        def add(name: str = name) -> None:
            flags = ("--all-containers", "--prefix", f"--tail={LINES}", f"--limit-bytes={2 * LOG_BYTES}")
            bundle.add_log(f"pods/{file_name(name)}.log", stack.kubectl.run("logs", f"pod/{name}", *flags).split("\n"))

        yield f"log of pod {name[:LONGEST_NAME]}", add


def _job_logs(stack: Connection, bundle: Bundle, state: State) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what each log of the newest jobs is, and a function that adds it."""
    newest = sorted(jobs_of(state), key=lambda job: number(job.get("start_time")) or 0, reverse=True)
    for details in [each for each in newest if each.get("submission_id")][:JOBS]:
        job_id = str(details["submission_id"])

        def add(details: Any = details, job_id: str = job_id) -> None:
            text, whole = stack.api.end_of_log(Job.of(details))
            add_job_log(bundle, job_id, text)
            if not whole:
                bundle.cut[f"log of job {job_id[:LONGEST_NAME]}"] = "its end is too long: these lines precede it"

        yield f"log of job {job_id[:LONGEST_NAME]}", add


def add_job_log(bundle: Bundle, job_id: str, text: str) -> None:
    """Add a job's last lines, those of NCCL in a separate file, and the ranks' NCCL logs that it carries."""
    name = file_name(job_id)
    lines: list[str] = []
    nccl: list[str] = []
    ranks: dict[int, Event] = {}
    for line in text.removesuffix("\n").rsplit("\n", END_LINES):
        event = parse(line) if MARK in line else None
        if event is None or event["kind"] != KIND:
            (nccl if NCCL in line else lines).append(line)
        elif (rank := rank_of(event)) is not None and len(ranks) < RANKS:
            ranks.setdefault(rank, event)
        else:
            bundle.cut[f"nccl/{name}"] = f"logs of more than {RANKS} ranks, or without a rank, were left out"
    bundle.add_log(f"jobs/{name}.log", lines)
    if nccl:
        bundle.add_log(f"nccl/{name}/log.txt", nccl)
    for rank, event in sorted(ranks.items()):
        with suppress(ValueError):
            bundle.add_log(f"nccl/{name}/rank-{rank:03d}.log", unpacked(event).split("\n"), RANK_BYTES)


def _cut(line: str) -> str:
    """Return the beginning of a long line, without a word that may be the first half of a secret."""
    beginning = line[:LONGEST_RAW_LINE]
    return beginning.rpartition(" ")[0] or beginning


def _shown(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} … (more characters)"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def settings(file: Path) -> Any:
    """Return a stack file's settings without the values that Pulumi has encrypted."""
    config = read_config(file)
    return {
        "config": {name: value for name, value in config.items() if not (isinstance(value, dict) and "secure" in value)}
    }


def summary(state: State, diagnosis: Diagnosis, names: list[str], missing: list[str]) -> str:
    """Return the text of README.txt: the problems first, then a description of the files."""
    outputs, probes = state.outputs, state.probes
    passed, skipped, absent = map(len, (diagnosis.passed, diagnosis.skipped, diagnosis.absent))
    taken = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(state.time))
    lines = [
        f"rdma-ray inspect: {outputs.ray.cluster} ({outputs.target}), {taken}",
        f"machine {outputs.machine or 'none'}, ray.mode {outputs.ray.mode}",
        f"Ray {outputs.ray.version}, on the client {state.client or 'none'}",
        f"{len(probes)} Ray nodes probed, {len(state.objects('nodes'))} nodes of Kubernetes",
        "Secrets are removed. Still, read the files before you send them.",
        "",
        *(report(diagnosis) or ["No check found a problem."]),
        "",
        f"Checks: {passed} passed, {skipped} not run, {absent} not applicable",
        *(f"not read: {text}" for text in missing[:20]),
        "",
        "doctor.json    findings (rdma-ray/doctor/1)",
        "state.json     outputs, Kubernetes objects and events, Ray's state, probes (rdma-ray/state/1)",
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
