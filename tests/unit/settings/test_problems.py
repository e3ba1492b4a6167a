"""What wrong stack files report, whole and word for word, as reviewed in golden/problems.txt.

UPDATE_GOLDENS=1 writes the file again; read the difference before it is committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.catalog.pins import RAY
from infra.settings import from_stack_file, parse
from infra.settings.problems import SettingsError
from tests.unit.settings.cases import CASES
from tests.unit.stacks import EKS, GKE, LOCAL, changed

GOLDEN = Path(__file__).with_name("golden") / "problems.txt"

NUMBERS = "nodes.min nodes.max nodes.maxRunHours ray.minWorkers ray.maxWorkers ray.idleMinutes"
TEXTS = "location nodes.reservation ray.entrypoint ray.image storage.bucket storage.mountPath"
CHOICES = "nodes.machine nodes.capacity nodes.fallback fabric queue ray.mode"
FLAGS = "computeClass nodes.compact access.publicEndpoint protect hardening"
ON_EKS = {
    "nodes.blockEnds": "tomorrow",
    "storage.capacityGib": "big",
    "storage.efa": "yes",
    "access.administrators": "ops",
    "access.egress": "nats",
    "access.imageMirror": 7,
    "network.secondZone": ["us-east-1b"],
    "network.interfaces": "bandwidth-optimized",
}
WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(NUMBERS.split(), ("many", 2.5, 10**6, -1, True)),
    **dict.fromkeys(TEXTS.split(), (7, ["a", "b"], " a", "")),
    **dict.fromkeys(CHOICES.split(), ("something", ["a"], "Spot", "Kueue", "a3-ultra-8g")),
    **dict.fromkeys(FLAGS.split(), ("yes", 1, "True")),
    "ray.version": (2.60, "2.60", [RAY]),
    "access.authorizedNetworks": ("10.0.0.0/8", ["10.0.0.1/8"], [7], ["10.0.0.0/33"], ["here"]),
    "network.baseRange": (10, "10.64.0.0", "10.64.0.1/14", "10.0.0.0/40"),
}
"""Values that no target reads, by setting."""

UNKNOWN = {"tarqet": "gke", "nodes.max_run_hours": 3, "machine": "x", "ray.bucket": "b", "storage.zzz": "b", "zzz": {}}
ELSEWHERE = {
    **dict.fromkeys(NUMBERS.split(), 3),
    "nodes.machine": "p5.48xlarge",
    "nodes.capacity": "spot",
    "nodes.fallback": "spot",
    "fabric": "efa",
    "location": "here",
    "queue": "kueue",
    "ray.mode": "job",
    "computeClass": True,
    "nodes.compact": True,
    "nodes.count": 2,
    "nodes.cpus": 2,
    "hardening": True,
    "access.publicEndpoint": True,
    "access.authorizedNetworks": ["10.0.0.0/8"],
    "network.baseRange": "10.0.0.0/8",
    "storage.bucket": "b",
    "storage.mountPath": "/b",
    "ray.image": f"ray:{RAY}",
    "ray.entrypoint": "true",
    "nodes.blockEnds": "2026-12-03T11:30:00Z",
    "storage.capacityGib": 1200,
    "storage.efa": True,
    "access.administrators": ["arn"],
    "access.egress": "endpoints",
    "access.imageMirror": "m",
    "network.secondZone": "us-east-1b",
    "network.interfaces": "ip-optimised",
}
OF_ONE_CLOUD = [path for path in ELSEWHERE if path in ON_EKS or path in ("nodes.count", "nodes.cpus")]
OF_GKE = ("computeClass", "nodes.compact", "nodes.fallback", "nodes.maxRunHours", "nodes.count", "nodes.cpus")
README = {
    "location": None,
    "loction": "us-central1-b",
    "nodes.max": "many",
    "nodes.maxRunHours": 200,
    "ray.image": f"example/ray:{RAY}-gpu",
    "access.publicEndpoint": True,
}
FILES = {
    "no YAML": "config:\n  a: [",
    "no map": "- a",
    "empty": "",
    "no config": "x: 1",
    "encrypted": "config:\n  rdma-ray:target: gke\n  rdma-ray:location: {secure: v1:a}\n  rdma-ray:nodes: {secure: x}",
}


def wrong_stacks() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """A name, a valid stack, what changes it, and further arguments of `parse`."""
    for case in CASES:
        yield case.about, case.stack, case.bad, {}
    for path, values in WRONG.items():
        for value in values:
            yield "wrong value", GKE, {path: value}, {}
    for path, value in ON_EKS.items():
        yield "wrong value", EKS, {path: value}, {}
    for path in ("nodes.count", "nodes.cpus"):
        yield "wrong value", LOCAL, {path: 0}, {}
    for path, value in UNKNOWN.items():
        yield "unknown key", GKE, {path: value}, {}
    yield "settings of the clouds", LOCAL, ELSEWHERE, {}
    yield "settings of others", GKE, {path: ELSEWHERE[path] for path in OF_ONE_CLOUD}, {}
    yield "settings of others", EKS, {path: ELSEWHERE[path] for path in OF_GKE}, {}
    yield (
        "sections that are no objects",
        GKE,
        {"nodes": ["a"], "ray": "{broken", "storage": "a-bucket", "access": 7},
        {},
    )
    yield "nothing but a target", {"target": "gke"}, {}, {}
    yield "nothing but a target", {"target": "eks"}, {}, {}
    yield "no target", {}, {"nodes.max": "many", "nodes.machin": "x", "queue": "kueue"}, {}
    yield "wrong target", GKE, {"target": "GKE", "nodes.max": 0}, {}
    yield "a token in clear text", LOCAL, {"ray.token": "correct-horse"}, {}
    yield "a token with a blank", LOCAL, {"ray.token": "correct horse"}, {"secret_keys": frozenset({"ray.token"})}
    yield "a token that is no text", LOCAL, {"ray.token": 7}, {}
    yield "a token on a cloud", GKE, {"ray.token": "correct-horse"}, {"secret_keys": frozenset({"ray.token"})}
    yield "a misspelt token", LOCAL, {"ray.tokn": "correct-horse"}, {}
    yield "encrypted and wrong", GKE, {"ray.version": "x"}, {"secret_keys": frozenset({"ray"})}
    yield "a broken setting", GKE, {"nodes.max": "x", "nodes.min": 900, "nodes.capacity": "spot"}, {}
    yield "a broken fallback", GKE, {"nodes.fallback": "reservaton", "nodes.reservation": "ours"}, {}
    yield "README", GKE, README, {}
    for stack, name in ((GKE, "My_stack"), (GKE, "a" * 41), (EKS, "a" * 60)):
        yield "a stack's name", stack, {}, {"stack": name}


def rendered(tmp_path: Path) -> Iterator[str]:
    """What each of them reports, under a line that shows the change."""
    for name, stack, changes, arguments in wrong_stacks():
        try:
            parse(changed(stack, changes), **arguments)
            text = "(valid)"
        except SettingsError as error:
            text = str(error)
        change = json.dumps(changes, ensure_ascii=False)
        yield f"=== {name}: {stack.get('target', '')} {change}\n{text}\n"
    for name, text in FILES.items():
        path = tmp_path / "Pulumi.dev.yaml"
        path.write_text(text)
        try:
            from_stack_file(path)
        except SettingsError as error:
            yield f"=== file, {name}: {text!r}\n{error}\n"


def test_problems_are_as_reviewed(tmp_path: Path) -> None:
    text = "\n".join(rendered(tmp_path))
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
