"""Secrets between a client and a driver, and who tries to read, replace or withhold them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from workloads import sealed
from workloads.exits import WorkloadError
from workloads.results.events import parse
from workloads.sealed import Key

VALUES = {"HF_TOKEN": "hf_pl4nted", "ÄÖ": "ü\n\0"}
LOW_ORDER = ("00" * 32, "01" + "00" * 31)


def test_only_the_driver_reads_what_the_client_sealed_and_only_as_the_client_s() -> None:
    client, driver, other = Key(), Key(), Key()
    box = client.seal(VALUES, driver.public)
    assert driver.opened(box, client.public) == VALUES
    assert b"pl4nted" not in box
    for reader, sender in ((other, client), (driver, other), (client, driver)):
        with pytest.raises(ValueError, match="not sealed by this client"):
            reader.opened(box, sender.public)
    for at in range(len(box)):
        with pytest.raises(ValueError, match="not sealed by this client"):
            driver.opened(box[:at] + bytes([box[at] ^ 1]) + box[at + 1 :], client.public)


@pytest.mark.parametrize("public", [*LOW_ORDER, "", "zz", "ab", "0" * 63, "ff" * 33])
def test_a_key_that_is_none_is_refused(public: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Key().seal(VALUES, public)


class Store:
    """Ray's key-value store. `answer` plays the client, once the driver's key is known."""

    def __init__(self, answer: Any = lambda _store: None) -> None:
        self.content: dict[bytes, bytes] = {}
        self.answer = answer

    def internal_kv_get(self, key: bytes, _: None) -> bytes | None:
        self.answer(self)
        return self.content.get(key)

    def internal_kv_del(self, key: bytes, _prefix: bool, _: None) -> int:
        return int(self.content.pop(key, None) is not None)

    def internal_kv_keys(self, prefix: bytes, _: None) -> list[bytes]:
        return [key for key in self.content if key.startswith(prefix)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store()
    monkeypatch.setattr("ray._raylet.GcsClient", lambda _address: found)
    monkeypatch.setitem(os.environ, "RAY_ADDRESS", "127.0.0.1:1")
    return found


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [event for event in map(parse, capsys.readouterr().out.splitlines()) if event is not None]


def test_the_driver_takes_its_secrets_and_leaves_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    client, attacker = Key(), Key()
    place = f"gcs://{sealed.package(client.public)}".encode()
    store.content[b"gcs://rdma-ray-secrets-run-1"] = b'{"of": "an older version"}'
    store.content[b"gcs://_ray_pkg_1.zip"] = b"code"
    steps = iter([attacker, None, client])

    def answer(now: Store) -> None:
        for event in events(capsys):
            said.append(event)
        sender = next(steps)
        if sender is not None:
            driver = next(event["key"] for event in said if event["kind"] == sealed.KIND)
            now.content[place] = sender.seal({"HF_TOKEN": sender.public}, driver)

    said: list[dict[str, Any]] = []
    store.answer = answer
    assert sealed.receive(client.public) == {"HF_TOKEN": client.public}
    assert store.content == {b"gcs://_ray_pkg_1.zip": b"code"}
    notes = [event["text"] for event in said if event["kind"] == "note"]
    assert notes == ["secrets refused: the cluster's package for this job is not sealed by this client for this job"]


@pytest.mark.parametrize("junk", [b"", b"x", os.urandom(100), json.dumps(VALUES).encode()])
def test_without_the_client_the_driver_ends_with_one_line(store: Store, junk: bytes) -> None:
    client = Key()
    store.content[f"gcs://{sealed.package(client.public)}".encode()] = junk
    with pytest.raises(WorkloadError, match="did not arrive within 0 s: the client ended") as error:
        sealed.receive(client.public, 0.3)
    assert "\n" not in str(error.value)
    assert store.content == {}


def test_an_image_without_cryptography_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.asymmetric.x25519", None)
    with pytest.raises(WorkloadError, match="needs the package cryptography: add it to the image or with --pip"):
        Key()
