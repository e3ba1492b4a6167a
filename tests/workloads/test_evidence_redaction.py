"""Redaction of logs, warnings and the environment."""

from __future__ import annotations

import base64
import os
import string
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.nccl.evidence.collect import Collector
from workloads.nccl.evidence.log_reader import parse_log
from workloads.nccl.evidence.raw_log import REDACTED, known_secrets, pack_file, redacted, sounds_secret

# Characters of secrets; a leading digit separates them from adjacent words.
secrets = st.text(string.ascii_letters + string.digits + "+/_-.~", min_size=12, max_size=64).map(
    lambda text: f"7{text}Z"
)
TEMPLATES = (
    "Authorization: Bearer {}",
    '{{"Authorization": "Basic {}"}}',
    "bearer {}",
    "fetching https://user:{}@registry.example/v2/",
    "proxy http://{}@10.0.0.1:3128",
    "RAY_AUTH_TOKEN={}",
    "HF_TOKEN: {}",
    "ncclNetPlugin: api_key = '{}'",
    'settings {{"password":"{}","user":"me"}}',
    "WANDB_API_KEY set by environment to {}",
    "AWS_SECRET_ACCESS_KEY => {}",
    "mysql --password {} -h db",
    "curl --api-key={} x",
    "passphrase:{}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
)


@settings(max_examples=100, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES), st.text(max_size=20), st.text(max_size=20))
def test_named_secrets_are_redacted(secret: str, template: str, before: str, after: str) -> None:
    text = f"{before} {template.format(secret)} {after}"
    assert secret not in redacted(text)


@settings(max_examples=100, deadline=None)
@given(secrets, st.text(max_size=30), st.text(max_size=30))
def test_known_secrets_are_redacted_anywhere(secret: str, before: str, after: str) -> None:
    assert secret not in redacted(before + secret + after, [secret])


@pytest.mark.parametrize(
    "secret",
    [
        "AKIA" + "Q7" * 8,
        "ghp_" + "a1" * 18,
        "glpat-" + "x9" * 10,
        "hf_" + "Ab3" * 10,
        "xoxb-" + "12345-" * 3,
        "AIza" + "Sy7-_" * 7,
        "ya29." + "a0Af" * 8,
        ".".join(
            base64.urlsafe_b64encode(part).decode().rstrip("=")
            for part in (b'{"alg":"none"}', b'{"sub":"rank"}', b"signed")
        ),
    ],
)
def test_token_formats_are_redacted(secret: str) -> None:
    assert redacted(f"found {secret} in a log") == f"found {REDACTED} in a log"


@settings(max_examples=50, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES))
def test_redaction_is_idempotent(secret: str, template: str) -> None:
    once = redacted(template.format(secret))
    assert redacted(once) == once


@pytest.mark.parametrize("name", sorted(path.name for path in (Path(__file__).parent / "logs").glob("*.log")))
def test_log_without_secrets_is_unchanged(name: str) -> None:
    text = (Path(__file__).parent / "logs" / name).read_text()
    assert redacted(text) == text


@settings(max_examples=50, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES))
def test_nccl_warnings_are_redacted(secret: str, template: str) -> None:
    log = f"node:1:1 [0] net.cc:1 NCCL WARN cannot go on: {template.format(secret)}\n"
    assert secret not in parse_log(log).model_dump_json()


@settings(max_examples=40, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES), st.sampled_from(("NCCL_AUTH_TOKEN", "FI_PROXY_PASSWORD", "NCCL_KEY")))
def test_recorded_environment_holds_no_secret(secret: str, template: str, name: str) -> None:
    environment = {
        name: secret,
        "RAY_AUTH_TOKEN": secret,
        "NCCL_NET_PLUGIN": f"/opt/{secret}/libnccl-net.so",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_CONF_FILE": template.format(secret),
        "HOME": "/nowhere",
    }
    kept = Collector(0, "nccl", first=True, environment=environment).variables()
    assert kept["NCCL_SOCKET_IFNAME"] == "eth0"
    assert secret not in str(kept)


@settings(max_examples=40, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES))
def test_raw_log_holds_no_secret(tmp_path_factory: pytest.TempPathFactory, secret: str, template: str) -> None:
    file = tmp_path_factory.mktemp("raw") / "log"
    file.write_text(
        f"node:1:1 [0] NCCL INFO {template.format('7' + 'other' * 3 + 'Z')}\nnode:1:1 [0] NCCL INFO {secret}\n"
    )
    event = pack_file(file, (secret,)).to_event(0, "node")
    text = zlib.decompress(base64.b64decode(event["data"])).decode()
    assert secret not in text
    assert "otherotherother" not in text


def test_ray_token_is_found_in_variable_and_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the-token-in-a-file\n")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("the-token-at-home")
    environment = {
        "RAY_AUTH_TOKEN": "the-token-itself",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"),
        "HOME": str(tmp_path),
        "MY_PASSWORD": "short",
    }
    assert known_secrets(environment) == ("the-token-at-home", "the-token-in-a-file", "the-token-itself")


def test_nccl_variables_are_not_secrets() -> None:
    steering = [name for name in os.environ if name.startswith(("NCCL_", "FI_"))]
    for name in [
        *steering,
        "NCCL_DEBUG",
        "NCCL_IB_HCA",
        "FI_EFA_USE_DEVICE_RDMA",
        "OFI_NCCL_PROTOCOL",
        "LD_LIBRARY_PATH",
    ]:
        assert not sounds_secret(name)
    for name in ("RAY_AUTH_TOKEN", "NCCL_KEY", "AWS_SECRET_ACCESS_KEY", "FI_PASSWORD", "GOOGLE_CREDENTIALS"):
        assert sounds_secret(name)


@pytest.mark.parametrize(
    "piece", ["a", "token", "token=", "://", "://a@", "Bearer ", "x" * 60 + "=", "--", "eyJ", "-----BEGIN "]
)
def test_redaction_time_is_bounded(piece: str) -> None:
    began = time.process_time()
    redacted(piece * (50_000 // len(piece)))
    assert time.process_time() - began < 5
