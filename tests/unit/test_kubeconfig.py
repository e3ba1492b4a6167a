"""Kubeconfigs of both clouds: no secret, and complete for every endpoint."""

from __future__ import annotations

import json

import pytest

from infra.eks.cluster import kubeconfig as on_eks
from infra.gke.cluster import kubeconfig as on_gke

SERVER = "https://0A1B.gr7.us-east-1.eks.amazonaws.com"
CONFIGS = {
    "gke-gcloud-auth-plugin": on_gke("a3u", "10.0.0.1", "Q0E="),
    "aws eks get-token --cluster-name eks --region us-east-1": on_eks("eks", "us-east-1", SERVER, "Q0E="),
}


@pytest.mark.parametrize("command", CONFIGS)
def test_kubeconfig_gets_its_token_from_a_command_and_has_no_secret(command: str) -> None:
    assert not [word for word in ("password", "client-key", "AKIA", '"token"') if word in CONFIGS[command]]
    config = json.loads(CONFIGS[command])
    (user,), (cluster,) = config["users"], config["clusters"]
    (context,) = (entry for entry in config["contexts"] if entry["name"] == config["current-context"])
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    run = user["user"]["exec"]
    assert " ".join([run["command"], *(run.get("args") or [])]) == command
    server = "https://10.0.0.1" if command.startswith("gke") else SERVER
    assert cluster["cluster"] == {"server": server, "certificate-authority-data": "Q0E="}


def test_endpoint_by_name_needs_no_certificate_authority() -> None:
    (cluster,) = json.loads(on_gke("a3u", "gke-1.us-central1.gke.goog", None))["clusters"]
    assert cluster["cluster"] == {"server": "https://gke-1.us-central1.gke.goog"}
