"""How clients reach a GKE control plane: by a token of `gke-gcloud-auth-plugin`. Pure."""

from __future__ import annotations

from infra.kubernetes import kubeconfig as any_cloud


def kubeconfig(cluster: str, endpoint: str, ca: str | None) -> str:
    """A kubeconfig as JSON, which is YAML.

    endpoint: an address or a DNS name, without scheme. ca: the cluster's certificate authority, base64; None for the
    DNS endpoint, whose certificate every system trusts (GKE docs about-dns-endpoint; from memory, 2026-11).
    """
    ask = {
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "provideClusterInfo": True,
    }
    return any_cloud.kubeconfig(cluster, f"https://{endpoint}", ca, ask)
