"""Keys, tokens, certificates and the kubeconfig of a control plane."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLIENT = "front-proxy-client"
_DAYS = 7


def service_account_key(file: Path) -> None:
    """Write the key that signs ServiceAccount tokens."""
    _write(file, _pem(ec.generate_private_key(ec.SECP256R1())))


def kubeconfig(file: Path, url: str, authority: Path, token: str) -> None:
    """Write a kubeconfig for one user with a token. `authority` signs the server's certificate."""
    cluster = {"server": url, "certificate-authority": str(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plane", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "admin"}}],
        "current-context": "plane",
    }
    _write(file, json.dumps(content, indent=1).encode())


def front_proxy_flags(folder: Path) -> list[str]:
    """Write the API server's client certificate for aggregated APIs, such as Kueue's. Returns its flags.

    https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/ (read 2026-11). The certificate is
    its own authority, which the API server publishes in the ConfigMap extension-apiserver-authentication.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CLIENT)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        # Tolerates small clock corrections.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = {suffix: folder / f"front-proxy-client.{suffix}" for suffix in ("crt", "key")}
    _write(files["crt"], certificate.public_bytes(serialization.Encoding.PEM))
    _write(files["key"], _pem(key))
    return [
        f"--requestheader-client-ca-file={files['crt']}",
        f"--requestheader-allowed-names={_CLIENT}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files['crt']}",
        f"--proxy-client-key-file={files['key']}",
    ]


def _write(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption())
