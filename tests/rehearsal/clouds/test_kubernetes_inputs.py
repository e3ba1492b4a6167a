"""How the simulated provider compares the inputs of an object: what replaces it, and what it never settles."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.kubernetes import connection, identity
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.engine.kind import first_refusal
from rehearsal.engine.protocol import compared
from rehearsal.engine.state import View
from rehearsal.engine.values import UNKNOWN, applied
from tests.rehearsal.clouds.test_kubernetes import CONFIG, GKE, MODE, named
from tests.rehearsal.configurations import accepted, changed, deployed, kind, request
from tests.rehearsal.protocol import served


@pytest.mark.parametrize(
    ("type_", "path", "replaces"),
    [
        ("apps/v1:StatefulSet", "spec.serviceName", True),
        ("apps/v1:StatefulSet", "spec.volumeClaimTemplates.0.spec", True),
        ("apps/v1:StatefulSet", "spec.replicas", False),
        ("core/v1:Pod", "spec.containers.0.image", True),
        ("core/v1:Pod", "spec.initContainers.0.env.0.value", True),
        ("core/v1:Pod", "spec.nodeName", True),
        ("core/v1:Pod", "spec.tolerations", False),
        ("core/v1:ResourceQuota", "spec.scopes", True),
        ("core/v1:ResourceQuota", "spec.hard.pods", False),
        ("core/v1:PersistentVolume", "spec.azureFile.shareName", True),
        ("core/v1:PersistentVolume", "spec.capacity.storage", False),
        ("core/v1:PersistentVolumeClaim", "spec.resources.requests.storage", False),
        ("rbac.authorization.k8s.io/v1:RoleBinding", "roleRef.name", True),
        ("rbac.authorization.k8s.io/v1:ClusterRoleBinding", "roleRef.name", True),
        ("rbac.authorization.k8s.io/v1:RoleBinding", "subjects.0.name", False),
        ("storage.k8s.io/v1:StorageClass", "provisioner", True),
        ("storage.k8s.io/v1:StorageClass", "parameters.type", True),
        ("storage.k8s.io/v1:StorageClass", "allowVolumeExpansion", False),
    ],
)
def test_changes_replace_as_the_provider_states(type_: str, path: str, *, replaces: bool) -> None:
    def having(value: object) -> Any:
        found: Any = value
        for part in reversed(path.split(".")):
            found = [found] if part.isdigit() else {part: found}
        return found

    found = compared(having("a"), having("b"), kind(f"kubernetes:{type_}").replace_on)
    assert bool(found.replaces) is replaces


def test_plain_text_of_a_secret_becomes_its_data(tmp_path: Path) -> None:
    with served(CLOUD, tmp_path / "clouds.sqlite", CONFIG) as client:
        with client.state.transaction() as view:
            view.put(connection.CLUSTER, "c1", GKE)
        asked = named("token", "default", stringData={"token": "a secret"}, data={"more": "Yg=="})
        id_, live = client.create(identity.SECRET, asked)
        stored = {"token": base64.b64encode(b"a secret").decode(), "more": "Yg=="}
        assert (live["data"], live.get("stringData")) == (stored, None)
        read, _ = client.read(identity.SECRET, id_, asked) or ({}, {})
        assert read == named("token", "default", data=stored)
        assert not client.diff(identity.SECRET, read, asked, id_=id_).diffs
        other = {**asked, "stringData": {"token": "another"}}
        assert client.diff(identity.SECRET, read, other, id_=id_).replaces == ["data"]
        unknown = {**asked, "stringData": {"token": UNKNOWN}}
        assert client.diff(identity.SECRET, read, unknown, id_=id_).replaces


@pytest.mark.parametrize(("type_", "differs"), [(identity.NETWORK, True), (identity.CONFIG_MAP, False)])
def test_empty_metadata_of_custom_objects_is_a_difference_for_ever(
    tmp_path: Path, type_: str, *, differs: bool
) -> None:
    with served(CLOUD, tmp_path / "clouds.sqlite", CONFIG) as client:
        with client.state.transaction() as view:
            view.put(connection.CLUSTER, "c1", GKE)
            view.put(identity.PARAM_SET, "a", MODE)
        asked = named("a", data={"b": "c"}) if type_ == identity.CONFIG_MAP else named("a", spec={"type": "Device"})
        asked["metadata"]["labels"] = {}
        id_, _ = client.create(type_, asked)
        for _ in range(2):
            read, _ = client.read(type_, id_, asked) or ({}, {})
            assert bool(client.diff(type_, read, asked, id_=id_).diffs) is differs
            client.update(type_, id_, read, asked)


def test_claim_of_a_growing_class_grows(empty: View) -> None:
    """The neighbor of the refused changes (tests/rehearsal/refused): the same claim, in the other direction."""
    (growing,) = (one for one in accepted() if one.name == "claim-of-growing-class")
    *_, (type_, inputs, live) = deployed(growing, empty)
    larger = changed(inputs, {"spec.resources.requests.storage": "1Ti"})
    asked = request(empty, type_, larger, {}, "update")
    assert first_refusal(kind(type_), dataclasses.replace(asked, now=applied(live, inputs, larger))) is None
