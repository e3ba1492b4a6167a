"""The API client with the real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

NAMESPACE = "client"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield plane.api
    plane.api.delete("v1", "Namespace", NAMESPACE)


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


def test_an_object_from_apply_to_delete(api: Api) -> None:
    assert api.get("v1", "ConfigMap", "life", NAMESPACE) is None
    api.apply(config_map("life", a="1"), dry_run=True)
    assert api.get("v1", "ConfigMap", "life", NAMESPACE) is None
    api.apply(config_map("life", a="1"))
    # A field of another manager is a conflict without force.
    with pytest.raises(ApiError) as refused:
        api.apply(config_map("life", a="2"), manager="other")
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    api.apply(config_map("life", a="2"), manager="other", force=True)
    api.patch("v1", "ConfigMap", "life", NAMESPACE, {"data": {"b": "3"}})
    found = api.get("v1", "ConfigMap", "life", NAMESPACE)
    assert found is not None
    assert found["data"] == {"a": "2", "b": "3"}
    assert "life" in [body["metadata"]["name"] for body in api.list("v1", "ConfigMap", NAMESPACE)]
    api.delete("v1", "ConfigMap", "life", NAMESPACE)
    api.delete("v1", "ConfigMap", "life", NAMESPACE)
    assert api.get("v1", "ConfigMap", "life", NAMESPACE) is None


def test_unknown_field_is_refused_by_apply_and_create(api: Api) -> None:
    for send in (api.apply, api.create):
        with pytest.raises(ApiError, match="dta"):
            send(config_map("typo") | {"dta": {}})


def test_unserved_kind_is_reported(api: Api) -> None:
    with pytest.raises(ApiError, match='no matches for kind "Flavour" in version "v1"') as refused:
        api.list("v1", "Flavour")
    assert refused.value.status == 404


def test_discovery_finds_core_and_custom_kinds(api: Api) -> None:
    kinds = {(kind.api_version, kind.kind): kind for kind in api.kinds()}
    assert kinds["v1", "Pod"].namespaced
    assert not kinds["v1", "Node"].namespaced
    assert kinds[RAY_API, "RayCluster"].plural == "rayclusters"
    assert "watch" in kinds[KUEUE_API, "ClusterQueue"].verbs


def test_timeout_reports_last_status(api: Api) -> None:
    def look() -> None:
        raise NotYet("two of three")

    with pytest.raises(TimeoutError, match=r"three nodes: not within 0.3 s; last seen: two of three"):
        api.until("three nodes", look, 0.3)
