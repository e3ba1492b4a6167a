"""What lets an API server vouch for its users to an API of somebody else's, such as Kueue's: a client certificate.

https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/ (read 2026-11). The API server puts the
authority into the ConfigMap extension-apiserver-authentication, from which those servers take it.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAME = "front-proxy-client"
_DAYS = 7


def flags(folder: Path) -> list[str]:
    """Write an authority and the API server's certificate into `folder`; returns the API server's flags."""
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _called("front-proxy-ca")
    place = {name: folder / f"front-proxy-{name}" for name in ("ca.crt", "client.crt", "client.key")}
    for path in place.values():
        path.touch(mode=0o600)
    place["ca.crt"].write_bytes(_signed(issuer, authority.public_key(), issuer, authority, ca=True))
    place["client.crt"].write_bytes(_signed(_called(_NAME), own.public_key(), issuer, authority, ca=False))
    place["client.key"].write_bytes(
        own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return [
        f"--requestheader-client-ca-file={place['ca.crt']}",
        f"--requestheader-allowed-names={_NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={place['client.crt']}",
        f"--proxy-client-key-file={place['client.key']}",
    ]


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, by: ec.EllipticCurvePrivateKey, *, ca: bool
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    # A clock may go back a little.
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if not ca:
        usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
