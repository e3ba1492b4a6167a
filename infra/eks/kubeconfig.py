"""How clients reach the control plane: a kubeconfig without a secret in it.

Pure. The client asks the AWS CLI for a token each time, so none ends up in a file or in the state.
"""

from __future__ import annotations

import json


def kubeconfig(cluster: str, region: str, endpoint: str, ca: str) -> str:
    """A kubeconfig as JSON, which is YAML.

    endpoint: the API server's URL. ca: the cluster's certificate authority, base64. `aws eks get-token` speaks
    v1beta1 (AWS CLI 2; EKS docs create-kubeconfig, from memory, 2026-11).
    """
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": endpoint, "certificate-authority-data": ca}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "users": [
                {
                    "name": cluster,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "aws",
                            "args": ["eks", "get-token", "--cluster-name", cluster, "--region", region],
                            "installHint": "install the AWS CLI, version 2, and sign in: aws sts get-caller-identity",
                            "interactiveMode": "IfAvailable",
                        }
                    },
                }
            ],
        }
    )
