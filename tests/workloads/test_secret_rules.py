"""Secrets that a text has by name, place or format, and what looks like one but has to stay."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest

from tests.workloads.test_secrecy import CORPUS
from workloads.secrecy import Masker, command_without_secrets, redacted


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.name)
def test_log_without_secrets_is_unchanged(file: Path) -> None:
    text = file.read_text(errors="replace")
    assert redacted(text) == text


B62 = "a1B2c3D4e5F6g7H8i9J0" * 6
FORMS = {
    "OpenAI": "sk-proj-" + B62[:48],
    "Anthropic": "sk-ant-api03-" + B62[:90],
    "npm": "npm_" + B62[:36],
    "Docker": "dckr_pat_" + B62[:27],
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + B62[:80],
    "GitHub": "ghp_" + B62[:36],
    "GitHub fine-grained": "github_pat_" + B62[:82],
    "GitLab": "glpat-" + B62[:20],
    "GitLab runner": "glrt-" + B62[:20],
    "Hugging Face": "hf_" + B62[:34],
    "Slack": "xoxb-1234567890-" + B62[:24],
    "Slack app": "xapp-1-A012-" + B62[:32],
    "AWS": "ASIA" + "Q7" * 8,
    "AWS session": "IQoJb3JpZ2luX2Vj" + B62,
    "Google": "AIza" + B62[:35],
    "Google OAuth": "GOCSPX-" + B62[:28],
    "Google refresh": "1//0" + B62[:60],
    "Vault": "hvs." + B62[:24],
    "Pulumi": "pul-" + "a1b2c3d4e5" * 4,
    "kubeconfig": "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t" + B62,
    "PEM in base64, one byte later": base64.b64encode(b"k-----BEGIN PRIVATE KEY-----" + B62.encode()).decode(),
    "JWE": "eyJhbGciOiJSU0Ei." + B62[:20] + "." + B62[:20] + "." + B62[:20],
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("template", ["found {} in it", '{{"x": "{}"}}', "x={}&y", "\\n{}\\n", "%3D{}%26"])
def test_formats_of_tokens_are_redacted(name: str, template: str) -> None:
    secret = FORMS[name]
    before, _ = template.format("|").split("|")
    text = redacted(template.format(secret))
    assert secret[8:] not in text
    assert text.startswith(before)


@pytest.mark.parametrize(
    "template",
    [
        "https://s3.amazonaws.com/b/k?X-Amz-Credential=c&X-Amz-Date=20261125T000000Z&X-Amz-Signature={}",
        "https://storage.googleapis.com/b/k?X-Goog-Algorithm=GOOG4&X-Goog-Signature={}&x=1",
        "https://x.blob.core.windows.net/c?sv=2024&se=2026-11-25&sig={}",
        '{{"url": "https://x/c?se=1\\u0026sig={}"}}',
        "AccountName=x;AccountKey={};EndpointSuffix=core.windows.net",
        "Endpoint=sb://x/;SharedAccessKey={}",
        "DRIVER=pg;Uid=me;Pwd={};",
        "curl -u me:{} https://x",
        "curl -sS --user 'me:{}' https://x",
        '["curl", "-u", "me:{}"]',
        "curl -x http://proxy --proxy-user me:{} https://x",
        "machine x.org login me password {}",
        "machine x.org\n  login me\n  password {}\n",
        "docker login -u me -p {} x.org",
        "sshpass -p {} ssh x",
        "PASS={}",
        "PASS=12345-{}",
        "DB_PASS=/{}",
        'DB_PASS: "true{}"',
        '"pwd": "{}"',
        "export DB_PASS={}",
        "MYSQL_PWD={} mysql",
        "PGPASSWORD={}",
        "PASSWD: {}",
        "ENV PASS={}",
        "ENV DB_PASSWORD {}",
        '{{"auths": {{"x.org": {{"auth": "{}"}}}}}}',
        '"{{\\"auth\\": \\"{}\\"}}"',
        '"{{\\"password\\": \\"{}\\"}}"',
        "//npm.example.com/:_auth={}",
        "//npm.example.com/:_authToken={}",
        "    client-key-data: {}",
        "    client-certificate-data: {}",
        "  token: {}",
        "Authorization: Digest username=x, response={}",
        "Cookie: a=b; session={}",
        "postgres://me:{}@db/x",
        "redirect=https%3A%2F%2Fme%3A{}%40x.org",
        '--args ["--api-key", "{}"]',
        "-----BEGIN OPENSSH PRIVATE KEY-----\\n{}\\n-----END OPENSSH PRIVATE KEY-----\\n",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}\n",
    ],
)
def test_secrets_in_their_places_are_redacted(template: str) -> None:
    secret = "q7Zx4vN8mK2pL5sT"
    assert secret not in redacted(template.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/root OLDPWD=/tmp",
        '{"PWD": "/root", "OLDPWD": "/tmp"}',
        "GID 0: fe80:0000:0000:0000:0e42:a1ff:fe4d:2ac8",
        "node_guid: 0c42:a103:004d:2ac8, sys_image_guid 0c42a103004d2ac8",
        "commit 5b3fbd2c8e7a41d09f6b1c2d3e4f5a6b7c8d9e0f",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sha512-" + base64.b64encode(bytes(range(64))).decode(),
        "containerd://4f5a6b7c8d9e0f5b3fbd2c8e7a41d09f6b1c2d3e4f5a6b7c8d9e0f4f5a6b7c8d",
        "PCI 0000:8b:00.0 -> mlx5_3:1/RoCE",
        "uuid GPU-5fd4f087-86f3-4f8e-9a1e-2a5b6c7d8e9f",
        "docker run -u 1000:1000 -p 8265:8265 rayproject/ray:2.60.0-py312-gpu",
        "python -u train.py --user ray",
        "PASS: 3 of 3; passed=3 bypass=1 pass=2 compass=north",
        "task-runner risk-free disk-pressure sk-learn",
        "https://github.com/NVIDIA/nccl/issues/1?sort=sig&page=2",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_redaction_of_redacted_text_changes_nothing() -> None:
    text = redacted("".join(f"TOKEN_{name}={form}, x\n" for name, form in FORMS.items()) + 'x={"password": "a b c"}\n')
    assert redacted(text) == text


def test_a_recorded_command_has_no_secret() -> None:
    """It is in results, on their pages and in rendered manifests."""
    words = ["run", "--secret", "HF_TOKEN", "--", "x", "--api-key", "plain", "--token=plain"]
    words += ["https://user:plain@host/", "--lr", "1"]
    found = command_without_secrets(words)
    assert "plain" not in " ".join(found)
    assert [*found[:6], *found[-2:]] == [*words[:6], "--lr", "1"]


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "=",
        '"',
        "QUJD",
        "\\",
        "%25",
        " ",
        "://",
        "token",
        "--token",
        "eyJ",
        "sk-",
        "login ",
        "-----BEGIN ",
        "LS0tLS1CRUdJTi",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (2 * 10**6 // len(piece))
    known = Masker([(piece * 60)[:60] + "wX7", "a=b\\" * 12, "!@#$%^&*()_+"])
    began = time.process_time()
    redacted(text, known)
    assert time.process_time() - began < 20
