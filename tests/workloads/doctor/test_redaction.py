"""Redaction of what a cluster says: what it learns from objects, and what detect-secrets knows."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from infra.outputs import Outputs
from tests.workloads.stack_outputs import LOCAL
from workloads.doctor.redaction import MOST_LEARNED, Redactor

LOGS = Path(__file__).resolve().parents[1] / "nccl"
CORPUS = sorted(file for folder in ("corpus/files", "logs") for file in (LOGS / folder).rglob("*.*") if file.is_file())
SECRET = "q7Zx4vN8mK2pL5sT"
KEY = "\n".join(["-----BEGIN PRIVATE KEY-----", *("aB3d" * 15 + f"{line:04d}" for line in range(4)), ""])


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "value",
    [
        {"env": [{"name": "DB_PASS", "value": SECRET}]},
        {"env": [{"name": "DB", "value": f"postgres://me:{SECRET}@db/x"}]},
        {"args": ["--db", f"postgres://me:{SECRET}@db/x"]},
        {"args": ["--token", SECRET]},
        {"url": f"https://x.blob.core.windows.net/c?se=2026&sig={SECRET}"},
        {"env": [{"name": "GOOGLE_CREDENTIALS", "value": json.dumps({"type": "x", "private_key": SECRET})}]},
        {"annotation": json.dumps({"spec": json.dumps({"password": SECRET})})},
        {"kind": "Secret", "data": {"any": base64_of(SECRET)}},
        {"kind": "Secret", "stringData": {"any": SECRET}},
        {
            "kind": "Secret",
            "data": {".dockerconfigjson": base64_of(json.dumps({"auths": {"x": {"auth": base64_of(f"me:{SECRET}")}}}))},
        },
        {"jobs": [{"entrypoint": f"python train.py --api-key {SECRET}"}]},
        {"jobs": [{"entrypoint": "python x.py '" + json.dumps({"environment": {"HF_TOKEN": SECRET}}) + "'"}]},
    ],
)
def test_secret_of_an_object_is_removed_elsewhere(value: Any) -> None:
    redactor = Redactor()
    redactor.learn({"items": [value]})
    for text in (SECRET, base64_of(f"x:{SECRET}"), json.dumps(SECRET + '"')):
        assert redactor.text(f"a log has {text} in it").startswith("a log has ")
        assert SECRET not in redactor.text(f"a log has {text} in it")
    assert base64_of(SECRET)[:16] not in redactor.text(f"a log has {base64_of(SECRET)} in it")


@pytest.mark.parametrize("as_json", [True, False])
def test_credentials_of_the_kubeconfig_are_removed(as_json: bool) -> None:
    config = f"users:\n- user:\n    token: {SECRET}\n    client-key-data: {base64_of(KEY)}\n"
    if as_json:
        config = json.dumps({"users": [{"user": {"token": SECRET, "client-key-data": base64_of(KEY)}}]})
    redactor = Redactor.of(Outputs.model_validate(LOCAL).model_copy(update={"kubeconfig": SecretStr(config)}), {})
    assert SECRET not in redactor.text(f"x {SECRET}")
    lines = KEY.splitlines()[1:]
    assert redactor.text("\n".join(f"log | {line}" for line in lines)).count("aB3d") == 0


@pytest.mark.parametrize(
    "token",
    [
        "SG." + "a1" * 11 + "." + "b2" * 21 + "c",
        "sk_live_" + "a1b2" * 6,
        "SK" + "a1b2" * 8,
        "sq0csp-" + "a1" * 21 + "b",
        "AKC" + "a1B2" * 12,
        "a1b2" * 8 + "-us12",
        "M" + "a1" * 12 + ".a1b2c3." + "d4" * 13 + "e",
        "https://hooks.slack.com/services/T0A1/B0A1/" + "a1" * 12,
    ],
)
def test_formats_of_detect_secrets_are_removed(token: str) -> None:
    assert Redactor().text(f'x "{token}" y') in ('x "***" y', 'x "https://***" y')


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.name)
def test_log_without_secrets_is_unchanged(file: Path) -> None:
    text = file.read_text(errors="replace")
    assert Redactor().text(text) == text


def test_a_cluster_cannot_make_it_learn_without_end() -> None:
    redactor = Redactor()
    redactor.learn([{"name": f"TOKEN_{at}", "value": f"value-number-{at:06d}"} for at in range(5000)])
    assert len(redactor.learned) == MOST_LEARNED


def test_nested_json_is_no_error() -> None:
    redactor = Redactor()
    redactor.learn({"token": "[" * 100_000, "x": json.loads("[" * 900 + "]" * 900)})
    assert redactor.text("fine") == "fine"


@pytest.mark.parametrize("piece", ["a", "=", '"', "QUJD", "A", "KEY", "AKC", "xoxb-1-", "_authToken", "T_KEY"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (10**6 // len(piece))
    began = time.process_time()
    Redactor().text(text)
    assert time.process_time() - began < 10
