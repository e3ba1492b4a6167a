"""Secrets of a run, on their way from the client to the job's driver: only the driver can read what Ray stores.

The request has the client's public key. The driver writes its own to the job's log and waits. The client seals the
values to it and stores them with Ray's upload of packages, `PUT /api/packages/gcs/NAME`, from which the driver takes
them. Both private keys exist in one process each. Nobody else can make a package that the driver accepts.

Ray deletes the package some minutes after its `GET`, whatever became of client and driver (RAY_RUNTIME_ENV_TEMPORARY_
REFERENCE_EXPIRATION_S, by default 600; ray: _private/runtime_env/packaging.py, pin_runtime_env_uri, 2.60, tried
2026-11). Imports Ray and cryptography on use: every image with ray[default] has the latter, by google-auth.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

from workloads.exits import WorkloadError
from workloads.results.events import emit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KIND = "secrets-key"
"""Event of the driver with its public key."""
WAIT_S = 120.0
"""Seconds that the driver waits for the client, which reads the job's log all the time until then."""
POLL_S = 0.1
_LEFT = b"gcs://rdma-ray-secrets-"
"""Packages of versions before 2026-11-25, which kept unsealed values until a driver took them."""


class Key:
    """Key pair of one side. `public` is 32 bytes in hexadecimal digits."""

    def __init__(self) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
        except ImportError:
            raise WorkloadError("--secret needs the package cryptography: add it to the image or with --pip") from None
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def seal(self, values: dict[str, str], other: str) -> bytes:
        """Return values that only the owner of the public key `other` can read, and only as this key's."""
        return self._cipher(other, sender=self.public).encrypt(bytes(12), json.dumps(values).encode(), None)

    def opened(self, sealed: bytes, other: str) -> dict[str, str]:
        """Return the values that the owner of the public key `other` sealed to this key. ValueError for other bytes."""
        from cryptography.exceptions import InvalidTag

        try:
            document = json.loads(self._cipher(other, sender=other).decrypt(bytes(12), sealed, None))
        except InvalidTag:
            raise ValueError("not sealed by this client for this job") from None
        return {str(name): str(value) for name, value in document.items()}

    def _cipher(self, other: str, sender: str) -> ChaCha20Poly1305:
        """Return the cipher of both keys. It encrypts one message, so that its nonce may be constant."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        shared = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
        names = f"rdma-ray secrets of {sender} by {' '.join(sorted((self.public, other)))}"
        return ChaCha20Poly1305(HKDF(SHA256(), 32, None, names.encode()).derive(shared))


def package(client: str) -> str:
    """Return the name of the package with the secrets that the owner of a public key has sealed."""
    return f"rdma-ray-sealed-{hashlib.sha256(client.encode()).hexdigest()[:32]}"


def receive(client: str, wait_s: float = WAIT_S) -> dict[str, str]:
    """Return the secrets of this job, and delete them from the cluster. WorkloadError if they do not come.

    Args:
        client: Public key in the job's request.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types

    key, store, name = Key(), GcsClient(os.environ["RAY_ADDRESS"]), f"gcs://{package(client)}".encode()
    for left in store.internal_kv_keys(_LEFT, None):
        store.internal_kv_del(left, False, None)
    emit(KIND, key=key.public)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if (sealed := store.internal_kv_get(name, None)) is not None:
            store.internal_kv_del(name, False, None)
            try:
                return key.opened(sealed, client)
            except ValueError as error:
                emit("note", text=f"secrets refused: the cluster's package for this job is {error}")
        time.sleep(POLL_S)
    raise WorkloadError(
        f"the secrets of this job did not arrive within {wait_s:.0f} s: the client ended after it submitted the job."
        " Run it again"
    )
