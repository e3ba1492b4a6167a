"""Kubeconfigs of GKE: no secret, and complete for both endpoints."""

from __future__ import annotations

import json

from infra.gke.cluster import kubeconfig


def test_kubeconfig_has_no_secret() -> None:
    text = kubeconfig("a3u", "10.0.0.1", "Q0E=")
    for word in ("token", "password", "client-key"):
        assert word not in text
    (user,) = json.loads(text)["users"]
    assert user["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"


def test_only_the_endpoint_by_address_needs_the_certificate_authority() -> None:
    by_address = json.loads(kubeconfig("a3u", "10.0.0.1", "Q0E="))
    by_name = json.loads(kubeconfig("a3u", "gke-1.us-central1.gke.goog", None))
    assert by_address["clusters"][0]["cluster"] == {
        "server": "https://10.0.0.1",
        "certificate-authority-data": "Q0E=",
    }
    assert by_name["clusters"][0]["cluster"] == {"server": "https://gke-1.us-central1.gke.goog"}


def test_context_names_cluster_and_user() -> None:
    config = json.loads(kubeconfig("a3u", "10.0.0.1", None))
    (context,) = (entry for entry in config["contexts"] if entry["name"] == config["current-context"])
    assert context["context"]["cluster"] == config["clusters"][0]["name"]
    assert context["context"]["user"] == config["users"][0]["name"]
