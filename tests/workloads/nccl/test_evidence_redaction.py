"""Redaction of logs, warnings and the environment."""

from __future__ import annotations

import base64
import string
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.evidence.collect import Collector
from workloads.evidence.raw_log import pack_file
from workloads.secrecy import Masker, known_secrets, redacted

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


@settings(max_examples=40, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES), st.sampled_from(("NCCL_AUTH_TOKEN", "FI_PROXY_PASSWORD", "NCCL_KEY")))
def test_recorded_environment_holds_no_secret(secret: str, template: str, name: str) -> None:
    steering = {"NCCL_SOCKET_IFNAME": "eth0", "FI_EFA_USE_DEVICE_RDMA": "1", "LD_LIBRARY_PATH": "/usr/local/gib/lib64"}
    environment = {
        name: secret,
        "RAY_AUTH_TOKEN": secret,
        "NCCL_NET_PLUGIN": f"/opt/{secret}/libnccl-net.so",
        **steering,
        "NCCL_CONF_FILE": template.format(secret),
        "HOME": "/nowhere",
    }
    kept = Collector(0, "nccl", first=True, environment=environment).variables()
    assert kept.items() >= steering.items()
    assert secret not in str(kept)


@settings(max_examples=40, deadline=None)
@given(secrets, st.sampled_from(TEMPLATES))
def test_raw_log_holds_no_secret(tmp_path_factory: pytest.TempPathFactory, secret: str, template: str) -> None:
    file = tmp_path_factory.mktemp("raw") / "log"
    file.write_text(
        f"node:1:1 [0] NCCL INFO {template.format('7' + 'other' * 3 + 'Z')}\nnode:1:1 [0] NCCL INFO {secret}\n"
    )
    event = pack_file(file, Masker([secret])).to_event(0, "node")
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
        "GOOGLE_CREDENTIALS": "the-credentials",
    }
    found = ("the-credentials", "the-token-at-home", "the-token-in-a-file", "the-token-itself")
    assert known_secrets(environment) == found
