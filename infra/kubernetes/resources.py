"""Helm releases, Kubernetes objects and kubeconfigs, which every cloud creates in the same way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version as installed
from typing import Any

import pulumi
from pulumi import ResourceOptions, ResourceTransformationArgs, ResourceTransformationResult
from pulumi_kubernetes.helm.v3 import Release

from infra.catalog.pins import EXEC_CREDENTIAL_API, Chart


def helm_release(
    name: str,
    chart: Chart,
    opts: ResourceOptions,
    *,
    values: Mapping[str, Any] | None = None,
    namespace: str = "kube-system",
    release: str | None = None,
) -> Release:
    """Install a pinned chart as `release`, by default under its own name, and wait until its pods are ready."""
    return Release(
        name,
        name=release or chart.release,
        chart=chart.name,
        version=chart.version,
        repository_opts={"repo": chart.repository} if chart.repository else None,
        namespace=namespace,
        create_namespace=None if namespace == "kube-system" else True,
        # A release that does not become ready is rolled back, so the next `up` starts from a clean state.
        atomic=True,
        timeout=600,
        values=values,
        opts=opts,
    )


def mirrored(repository: str, mirror: str | None) -> str:
    """Return an image's repository in a mirror, if any: quay.io/kuberay/operator becomes MIRROR/kuberay/operator."""
    return repository if mirror is None else f"{mirror.rstrip('/')}/{repository.partition('/')[2]}"


def image_values(chart: Chart, mirror: str | None) -> dict[str, str]:
    """Return a chart's values for the image of its pods: in a mirror, if any, and with its tag if that is pinned."""
    return {"repository": mirrored(chart.image, mirror), **({"tag": chart.tag} if chart.tag else {})}


def kubernetes_object(
    name: str, body: Mapping[str, Any], opts: ResourceOptions, namespace: pulumi.Input[str] | None = None
) -> pulumi.CustomResource:
    """Create the object of a manifest, of any kind, in `namespace` unless it is cluster-scoped.

    Every field passes unchanged, so the API's schema judges them all: the SDK's CustomResource takes only `metadata`
    and `spec` of a manifest. The resource has the type of the SDK's class for the kind.
    """
    return pulumi.CustomResource(
        type_token(body),
        name,
        {**body, "metadata": {**body["metadata"], **({} if namespace is None else {"namespace": namespace})}},
        ResourceOptions.merge(ResourceOptions(version=installed("pulumi-kubernetes")), opts),
    )


def type_token(body: Mapping[str, Any]) -> str:
    """Return the type of an object's resource: "kubernetes:core/v1:Secret"."""
    group, _, version = body["apiVersion"].rpartition("/")
    return f"kubernetes:{group or 'core'}/{version}:{body['kind']}"


def kubeconfig(cluster: str, server: str, ca: str | None, command: Mapping[str, Any]) -> str:
    """Return a kubeconfig as JSON, which is YAML, without a secret.

    Args:
        cluster: Name of the cluster, context and user.
        server: URL of the API server.
        ca: The cluster's certificate authority, base64; None for a certificate that every system trusts.
        command: The cloud's command that prints a token, in the fields of client-go's exec credentials. The client
            runs it for each token, so no token is in a file or in the state.
    """
    authority = {} if ca is None else {"certificate-authority-data": ca}
    exec_credential = {"apiVersion": EXEC_CREDENTIAL_API, **command, "interactiveMode": "IfAvailable"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": server, **authority}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "users": [{"name": cluster, "user": {"exec": exec_credential}}],
        }
    )


def labeled(labels: Mapping[str, pulumi.Input[str]]) -> pulumi.ResourceTransformation:
    """Return the transformation that adds labels to every object in the cluster."""

    def label(args: ResourceTransformationArgs) -> ResourceTransformationResult | None:
        metadata = args.props.get("metadata")
        if not isinstance(metadata, dict):
            return None
        metadata = {**metadata, "labels": {**metadata.get("labels", {}), **labels}}
        return ResourceTransformationResult({**args.props, "metadata": metadata}, args.opts)

    return label
