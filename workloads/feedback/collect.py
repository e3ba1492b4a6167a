"""From a stack's settings, state and benchmark to the document that is sent back, and the check that nothing leaks.

Whatever comes from the cluster is hostile: a value gets in if it has the form that the document requires, and is
otherwise unknown. `leaks` then searches the finished document for all that this machine and the stack know by name.
"""

from __future__ import annotations

import getpass
import json
import platform
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic.alias_generators import to_snake

from infra.catalog.names import NAMESPACE
from infra.catalog.pins import KUBERAY
from infra.outputs import Outputs
from infra.settings import KubernetesSettings, Settings
from infra.settings.load import CONTRACTS, SETTINGS
from workloads.doctor.diagnosis import CHECKS, Diagnosis, diagnose
from workloads.doctor.redaction import Redactor
from workloads.doctor.state import State
from workloads.feedback import document as form
from workloads.nccl.judge.verdict import verdict_of
from workloads.nccl.result import BenchResult
from workloads.results.documents import ResultPart

_SHORTEST = 4  # characters of a name that is searched for: a shorter one is part of ordinary words
_TOKEN = re.compile(r"[A-Za-z0-9._-]+")
_KINDS = {
    "an IP address": r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?i:\b(?:[0-9a-f]{1,4}:){3,})",
    "an email address": r"[^\s@]+@[^\s@]+\.\w+",
    "an ARN": r"\barn:",
    "the number of an account": r"(?<!\w)\d{12}(?!\w)",
    "a URL or path": r"://|(?:^|\s)[/~]\w",
    "the address of a device": r"\b[0-9a-f]{2,4}:[0-9a-f]{2}[:.][0-9a-f]{2}\b|\bGPU-[0-9a-f]{6}",
}
_HOST = re.compile(r"(?i)\b(?:[a-z0-9-]+\.)+(?:com|net|org|io|dev|cloud|internal|local|goog|aws)\b")
_OURS = frozenset(
    [NAMESPACE, *CONTRACTS, *(check.name for check in CHECKS)]
    + [str(word) for path in form.SENT for each in SETTINGS[path].values() for word in each.every_name]
    + re.findall(r"\w+", json.dumps(form.SentEvidence.model_json_schema(by_alias=True)))
)
"""Words of this project, which a stack or a user may be called by, too."""


def evidence_of(
    settings: Settings,
    config: Mapping[str, Any],
    versions: Mapping[str, str | None],
    *,
    state: State | None = None,
    bench: BenchResult | None = None,
    runs: list[form.EngineRun] | None = None,
) -> form.SentEvidence:
    """Return the document of a stack.

    Args:
        config: The whole map `config` of the stack file, of which the region of AWS is read.
        versions: What this machine and the API server report; None for what could not be read.
        state: State of the cluster; None if the stack is not up.
        runs: What the engine did, if that was recorded.
    """
    known = CONTRACTS[settings.target]
    values = {path: attrgetter(".".join(map(to_snake, path.split("."))))(settings) for path in known}
    kept = [path for path in values if path in form.KEPT_BACK]
    default = {
        path: known[path].info.default if (derived := known[path].derived) is None else derived.of(values)
        for path in kept
    }
    given = [path for path in kept if values[path] not in (None, "", (), default[path])]
    sent = {path: values[path] for path in values if path in form.SENT and values[path] is not None}
    region = str(config.get("aws:region") or str(values.get("location", "")).rpartition("-")[0])
    return form.SentEvidence.model_validate(
        {
            "schema": form.SCHEMA,
            "date": _day(time.time()),
            "tier": form.TIERS[settings.target],
            "target": settings.target,
            "region": region if re.fullmatch(form.REGION, region) else None,
            "versions": _versions(settings, values, versions, state, bench),
            "settings": sent,
            "set_": given,
            "not_set": [path for path in kept if path not in given],
            "runs": runs or form.NOT_RECORDED,
            "doctor": form.NOT_UP if state is None else _doctor(diagnose(state)),
            "bench": form.NOT_MEASURED if bench is None else _bench(bench, values.get("nodes.machine")),
        }
    )


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _versions(
    settings: Settings,
    values: Mapping[str, Any],
    own: Mapping[str, str | None],
    state: State | None,
    bench: BenchResult | None,
) -> dict[str, str]:
    measured = (bench.versions if bench else None) or {}
    probes = state.probes if state else []
    evidence = bench.evidence.ranks if bench and bench.evidence else []
    drivers = [*(each.driver for each in evidence), *(each.driver for each in probes)]
    of_nodes = {
        name: next((p.versions[name] for p in probes if p.versions.get(name)), None) for name in ("nccl", "torch")
    }
    installs = not isinstance(settings, KubernetesSettings) or settings.install_kuberay
    here = form.NOT_ITS_OWN if settings.target == "local" else None
    image = str(values.get("ray.image") or "")
    tag = image.partition("@")[2] or image.rpartition("/")[2].partition(":")[2]
    found = {
        **own,
        "kubernetes": own.get("kubernetes") or here or (form.NOT_UP if state is None else None),
        "kuberay": here or (KUBERAY.version if installs else form.NOT_ITS_OWN),
        "ray": measured.get("ray") or values["ray.version"],
        "image": here or tag,
        "driver": next(filter(None, drivers), None),
        **{name: measured.get(name) or of_nodes.get(name) for name in ("cuda", "nccl", "torch")},
    }
    return {name: form.plain(value, form.Version | form.Unknown) or form.NOT_READ for name, value in found.items()}


def _doctor(diagnosis: Diagnosis) -> form.DoctorSummary:
    counts = Counter((finding.check, finding.severity) for finding in diagnosis.findings)
    return form.DoctorSummary.model_validate(
        {
            "exit_code": diagnosis.exit_code,
            "findings": [
                {"check": check, "severity": severity, "count": count} for (check, severity), count in counts.items()
            ],
            "passed": diagnosis.passed,
            "skipped": [*diagnosis.skipped],
            "absent": [*diagnosis.absent],
        }
    )


def _bench(result: BenchResult, machine: str | None) -> form.BenchSummary:
    """Return what a result shows. It is judged again: a file's own verdict may be of another version, or changed."""
    verdict = verdict_of(result, machine, no_floor=result.spec.no_floor)
    models = sorted({str(member.gpu) for member in result.ranks or [] if form.plain(member.gpu, form.Gpu)})
    world = result.world
    shown: dict[str, Any] = {
        "date": _day(result.started),
        "backend": result.backend,
        "code": verdict.code,
        "outcome": verdict.outcome,
        "proves": result.proves,
        "findings": sorted({finding.kind for finding in verdict.findings if form.plain(finding.kind, form.Kind)}),
        "nodes": world.nodes if world else 0,
        "ranks_per_node": world.per_node if world else 0,
        "machines": world.machines if world else 0,
        "gpus": models[:10],
        "rows": _valid(form.SizeTime, (row.model_dump() | {"time_us": row.time_us.max} for row in result.rows)),
        "comparisons": _valid(form.JudgedShare, (each.model_dump() for each in verdict.comparisons)),
        "transport": _transport(result),
    }
    return form.BenchSummary.model_validate(shown)


def _transport(result: BenchResult) -> dict[str, Any] | None:
    evidence = result.evidence
    if evidence is None or (log := evidence.log) is None:
        return None
    alike = Counter((each.transport, each.plugin, each.gdrdma) for each in log.channels)
    connections = (
        {"transport": transport, "plugin": form.plain(plugin, form.Plugin), "gdrdma": gdrdma, "count": count}
        for (transport, plugin, gdrdma), count in alike.most_common(100)
    )
    return {
        "plugin": form.plain(log.plugin, form.Plugin),
        "plugin_version": form.plain(log.plugin_version, form.Version),
        "provider": log.provider if log.provider in ("efa", "tcp", "verbs") else None,
        "ranks_with_log": sum(rank.log is not None for rank in evidence.ranks),
        "nics": sorted(log.nic_counts.values(), reverse=True)[:1000],
        "connections": _valid(form.ConnectionCount, connections),
        "algorithms": [each for each in log.algorithms if form.plain(each, form.Algorithm)][:30],
        "warnings": len(log.warnings) + log.warnings_left_out,
        "missing": len(evidence.missing),
    }


def _valid(model: type[ResultPart], values: Iterable[Mapping[str, Any]]) -> list[ResultPart]:
    """Return those values, without their other fields, that the document can hold."""
    kept = ({name: value[name] for name in model.model_fields} for value in values)
    return [part for value in kept if (part := form.plain(value, model)) is not None]


def versions_here(project: Path, kubernetes: str | None) -> dict[str, str | None]:
    """Return the versions that this machine reports, and that of the API server."""

    def said(*command: str) -> str | None:
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60, check=False)
            return done.stdout.strip() if done.returncode == 0 else None
        return None

    def package(name: str) -> str | None:
        with suppress(PackageNotFoundError):
            return installed(name)
        return None

    changed = said("git", "status", "--porcelain", "--untracked-files=no", "--", "infra", "__main__.py")
    return {
        "project": form.CHANGED if changed else said("git", "rev-parse", "HEAD"),
        "python": platform.python_version(),
        "engine": said(str(project / "bin" / "pulumi"), "version"),
        **{name: package(name) for name in ("pulumi-gcp", "pulumi-aws", "pulumi-kubernetes")},
        "kubernetes": kubernetes,
    }


def leaks(
    document: form.SentEvidence,
    *,
    config: Mapping[str, Any],
    stack: str,
    outputs: Outputs | None = None,
    state: State | None = None,
    bench: BenchResult | None = None,
) -> list[str]:
    """Return what must not leave this machine and is in the document: where, and of which kind, never the value."""
    text = document.to_json()
    secret = outputs is not None and Redactor.of(outputs).text(text) != text
    found = ["a secret of the stack or of this machine"] if secret else []
    # Texts of a closed form that a name in the stack file may contain: a zone in a path, the tag of an image.
    said = {each for _, each in _leaves([document.settings, document.versions, document.region])}
    names = {
        kind: {each.lower() for each in of - said} - _OURS for kind, of in _names(config, stack, outputs, state, bench)
    }
    for where, leaf in ((where, leaf) for where, leaf in _leaves(json.loads(text)) if leaf not in form.SENTENCES):
        kinds = [kind for kind, pattern in _KINDS.items() if re.search(pattern, leaf)]
        kinds += ["the name of a host"] if not where.endswith(".type") and _HOST.search(leaf) else []
        words = {word.lower() for word in (*_TOKEN.findall(leaf), leaf)}
        kinds += [kind for kind, of in names.items() if of & words]
        found += [f"{kind} in {where}" for kind in kinds]
    return found


def _names(
    config: Mapping[str, Any], stack: str, outputs: Outputs | None, state: State | None, bench: BenchResult | None
) -> Iterator[tuple[str, set[str]]]:
    """Yield the names that this machine, the stack file and the cluster know, and of which kind they are."""
    here = {socket.gethostname(), socket.getfqdn(), Path.home().name}
    with suppress(OSError, KeyError):
        here.add(getpass.getuser())
    yield "a name of this machine", {part for text in here for part in _parts(text)}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        path = str(key).removeprefix("rdma-ray:")
        flat |= (
            {f"{path}.{name}": inner for name, inner in value.items()} if isinstance(value, Mapping) else {path: value}
        )
    own = [text for path, value in flat.items() if path not in form.SENT for _, text in _leaves(value)]
    yield "a name in the stack file", {part for text in (*own, stack) for part in _parts(text)}
    access: Any = None
    if outputs is not None and outputs.kubeconfig is not None:
        with suppress(yaml.YAMLError):
            access = yaml.safe_load(outputs.kubeconfig.get_secret_value())
    cluster = [text for _, text in _leaves(access)]
    cluster += [outputs.ray.cluster, outputs.context or "", outputs.namespace or ""] if outputs else []
    yield "a name of the cluster", {part for text in cluster for part in _parts(text)}
    nodes = [str(node.get("metadata", {}).get("name")) for node in state.objects("nodes")] if state else []
    nodes += [text for each in (state.probes if state else ()) for text in (each.host, each.ip, each.node_id)]
    nodes += [text for each in (bench.ranks or () if bench else ()) for text in (each.host, each.machine, each.ip)]
    yield "a name of a node", {part for text in nodes for part in _parts(text)}


def _parts(text: str) -> Iterator[str]:
    """Yield a text and the names in it, such as the project in `projects/P/zones/Z`, which are long enough."""
    yield from (each for each in {text, *re.split(r"[^A-Za-z0-9._-]+", text)} if len(each) >= _SHORTEST)


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in a JSON value with its place."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{where}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner, where)
    elif isinstance(value, str):
        yield where, value
