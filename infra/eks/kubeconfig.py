"""How clients reach an EKS control plane: by a token of the AWS CLI. Pure."""

from __future__ import annotations

from infra.kubernetes import kubeconfig as any_cloud


def kubeconfig(cluster: str, region: str, endpoint: str, ca: str) -> str:
    """A kubeconfig as JSON, which is YAML.

    endpoint: the API server's URL. ca: the cluster's certificate authority, base64. `aws eks get-token` speaks
    v1beta1 (AWS CLI 2; EKS docs create-kubeconfig, from memory, 2026-11).
    """
    ask = {
        "command": "aws",
        "args": ["eks", "get-token", "--cluster-name", cluster, "--region", region],
        "installHint": "install the AWS CLI, version 2, and sign in: aws sts get-caller-identity",
    }
    return any_cloud.kubeconfig(cluster, endpoint, ca, ask)
