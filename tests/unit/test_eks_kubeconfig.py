"""The kubeconfig of an EKS cluster holds no secret, and its parts lead to each other."""

from __future__ import annotations

import json

from infra.eks.cluster import kubeconfig

TEXT = kubeconfig("eks", "us-east-1", "https://0A1B.gr7.us-east-1.eks.amazonaws.com", "Q0E=")


def test_no_secret_is_in_it() -> None:
    for word in ("password", "client-key", "AKIA", '"token"'):
        assert word not in TEXT
    (user,) = json.loads(TEXT)["users"]
    ask = user["user"]["exec"]
    assert [ask["command"], *ask["args"]] == [
        "aws",
        "eks",
        "get-token",
        "--cluster-name",
        "eks",
        "--region",
        "us-east-1",
    ]


def test_its_context_leads_to_its_cluster_and_user() -> None:
    config = json.loads(TEXT)
    (context,) = (entry for entry in config["contexts"] if entry["name"] == config["current-context"])
    (cluster,) = config["clusters"]
    assert context["context"] == {"cluster": cluster["name"], "user": config["users"][0]["name"]}
    assert cluster["cluster"] == {
        "server": "https://0A1B.gr7.us-east-1.eks.amazonaws.com",
        "certificate-authority-data": "Q0E=",
    }
