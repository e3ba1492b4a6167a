"""How clients reach the control plane: a kubeconfig without a secret in it.

Pure. The client asks `gke-gcloud-auth-plugin` for a token each time, so none ends up in a file or in the state.
"""

from __future__ import annotations

import json


def kubeconfig(cluster: str, endpoint: str, ca: str | None) -> str:
    """A kubeconfig as JSON, which is YAML.

    endpoint: an address or a DNS name, without scheme. ca: the cluster's certificate authority, base64; None for the
    DNS endpoint, whose certificate every system trusts (GKE docs about-dns-endpoint; from memory, 2026-11).
    """
    server = {"server": f"https://{endpoint}"}
    if ca is not None:
        server["certificate-authority-data"] = ca
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": server}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "users": [
                {
                    "name": cluster,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "gke-gcloud-auth-plugin",
                            "installHint": "gcloud components install gke-gcloud-auth-plugin",
                            "provideClusterInfo": True,
                            "interactiveMode": "IfAvailable",
                        }
                    },
                }
            ],
        }
    )
