"""Components of the user's EKS cluster: what the stack's nodes need, and what would fight with the stack's own.

They are recognized by the images of their containers, which also finds those that are no add-on: EKS installs the CNI
and DNS without an add-on in a cluster that is created without add-ons (EKS docs, eks-add-ons, read 2026-11-28).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from infra.catalog.aws import INSTANCE_TYPE_LABEL
from infra.catalog.names import GPU
from infra.catalog.pins import CLUSTER_AUTOSCALER, DCGM_EXPORTER, EKS_RELEASES, NVIDIA_PLUGIN, Chart
from infra.eks.addons import CHART_NAMESPACE, their_release
from infra.eks.names import GPU_NODES
from infra.eks.node_groups import gpu_labels
from infra.existing.cloud import EXISTING, PROVIDES
from infra.existing.kubectl import Json
from infra.existing.kuberay import few
from infra.existing.questions import ASK, Questions, containers, part, parts, place_of
from infra.settings import EksSettings, Problem

CNI, OLDEST_CNI = "amazon-k8s-cni", (1, 18, 5)
"""Image of vpc-cni, and its first release with efa-only interfaces (EKS docs node-efa; its #3047).
Those of the other add-ons have the add-on's name (EKS docs, add-ons and their images; unverified, 2026-11)."""
AUTOSCALER = "cluster-autoscaler"
EFA_IMAGES = {"efa": "aws-efa-k8s-device-plugin", "efa-dranet": "dranet"}
"""Images of what offers EFA to pods, by fabric. A node may have one of them only (EKS docs node-efa, read 2026-11)."""
NOT_PLUGINS = ("gpu-feature-discovery", "mps-control-daemon")
"""Other programs of the NVIDIA plugin's image (NVIDIA/k8s-device-plugin: its chart, 0.20)."""
OWN_NODES = ", ".join(f"{key}={value}" for key, value in GPU_NODES.items())
_REQUIRED = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def component_problems(asked: Questions, settings: EksSettings) -> Iterator[Problem]:
    """Yield what the cluster lacks, has in an old version, or has besides the stack's own. Raises KubectlError."""
    daemons, deployments = (
        parts(asked.maybe(f"/apis/apps/v1/{kind}"), "items") for kind in ("daemonsets", "deployments")
    )
    yield from _needed(asked, settings, [*daemons, *deployments])
    plugins = [each for each in daemons if not {str(part(one, "name")) for one in containers(each)} & {*NOT_PLUGINS}]
    nvidia = [each for each in _with(plugins, "k8s-device-plugin") if not _with([each], EFA_IMAGES["efa"])]
    yield from _choice(asked, settings, "nvidia-device-plugin", nvidia, NVIDIA_PLUGIN, "would each allocate the GPUs")
    if settings.monitoring != "none":
        exporters, twice = _with(daemons, DCGM_EXPORTER.name), "would each report the GPUs"
        yield from _choice(asked, settings, DCGM_EXPORTER.name, exporters, DCGM_EXPORTER, twice)
    if chart := settings.fabric_row.chart:
        own, clash = EFA_IMAGES[settings.fabric], "would each allocate the EFA devices"
        [other] = {*EFA_IMAGES.values()} - {own}
        yield from _choice(asked, settings, "efa-device-plugin", _with(daemons, own), chart, clash)
        if others := [each for each in _with(daemons, other) if _runs_on(each, settings)]:
            yield asked.problem(
                f"The DaemonSet {few(map(place_of, others))} also offers EFA on the stack's nodes: the two {clash}.",
                f"set fabric to the one that it is for, or let it leave out nodes with {OWN_NODES}",
                "fabric",
            )
    yield from _scaler(asked, settings, deployments)


def _needed(asked: Questions, settings: EksSettings, workloads: list[Json]) -> Iterator[Problem]:
    """Yield add-ons that are missing or too old."""
    version, of = settings.cluster.version, f"--cluster-name {settings.cluster.existing} --addon-name"
    why = {"vpc-cni": "pods get no address", "coredns": "workers do not find Ray's head"}
    if settings.installs(AUTOSCALER):
        why["eks-pod-identity-agent"] = "the autoscaler gets no rights"
    elif settings.ray.policies:
        why["eks-pod-identity-agent"] = "Ray's pods get no rights"
    if settings.storage.bucket is not None:
        why["aws-fsx-csi-driver"] = "no pod mounts the shared folder"
    for addon, effect in why.items():
        if not _with(workloads, CNI if addon == "vpc-cni" else addon):
            yield asked.problem(
                f"The cluster has no {addon}: {effect}.", f"aws eks create-addon {of} {addon}", EXISTING
            )
    for image in (each for workload in _with(workloads, CNI) for each in _images(workload)):
        found = re.fullmatch(rf"{CNI}:v(\d{{1,4}})\.(\d{{1,4}})\.(\d{{1,4}})\b.*", image)
        if found and tuple(map(int, found.groups())) < OLDEST_CNI:
            yield asked.problem(
                f"vpc-cni is {'.'.join(found.groups())}, but interfaces for EFA alone, as the GPU nodes have, need "
                f"{'.'.join(map(str, OLDEST_CNI))} or later.",
                f"aws eks update-addon {of} vpc-cni --addon-version {EKS_RELEASES[version]['vpc-cni']}",
                EXISTING,
                source="EKS docs node-efa; aws/amazon-vpc-cni-k8s: releases; read 2026-11",
            )


def _choice(
    asked: Questions, settings: EksSettings, component: str, found: list[Json], chart: Chart, clash: str
) -> Iterator[Problem]:
    """Yield that a DaemonSet would be there twice, or is not there, on the stack's GPU nodes."""
    theirs = [each for each in found if not _is_ours(each, asked.stack, chart)]
    there = [each for each in theirs if _runs_on(each, settings)]
    if settings.installs(component) and there:
        yield asked.problem(
            f"The DaemonSet {few(map(place_of, there))} would run on the stack's GPU nodes, too, and the two {clash}.",
            f"add {component} to cluster.provides, or let it leave out nodes with {OWN_NODES}",
            PROVIDES,
        )
    elif not settings.installs(component) and not there:
        others = f" on nodes with {OWN_NODES} and the taint {GPU}" if theirs else ""
        yield asked.problem(
            f"No DaemonSet of the cluster has the {component}{others}.",
            f"remove {component} from cluster.provides, or {ASK} to run it on such nodes",
            PROVIDES,
        )


def _scaler(asked: Questions, settings: EksSettings, deployments: list[Json]) -> Iterator[Problem]:
    found = _with(deployments, AUTOSCALER)
    theirs = [each for each in found if not _is_ours(each, asked.stack, CLUSTER_AUTOSCALER)]
    if settings.installs(AUTOSCALER) and theirs:
        yield asked.problem(
            f"The Deployment {few(map(place_of, theirs))} is an autoscaler, which finds the stack's node groups by the "
            "tags of the cluster, and two would size the same groups.",
            f"add {AUTOSCALER} to cluster.provides",
            PROVIDES,
            source="kubernetes/autoscaler: cloudprovider/aws README, auto-discovery; read 2026-11",
        )
    elif not settings.installs(AUTOSCALER) and not theirs:
        fix = f"remove {AUTOSCALER} from cluster.provides"
        yield asked.problem("No Deployment of the cluster is the autoscaler: no GPU node would start.", fix, PROVIDES)


def _is_ours(body: Json, stack: str, chart: Chart) -> bool:
    """Return whether the stack's release of a chart made an object: Helm writes that into the object."""
    notes = part(body, "metadata", "annotations")
    keys = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
    return [part(notes, each) for each in keys] == [their_release(stack, chart), CHART_NAMESPACE]


def _runs_on(daemon: Json, settings: EksSettings) -> bool:
    """Return whether a DaemonSet's pods would run on the stack's GPU nodes.

    A label that is not known now may be on the nodes, too, since operators add labels.
    """
    labels = {**GPU_NODES, INSTANCE_TYPE_LABEL: settings.machine.name, **gpu_labels(settings.machine)}
    spec = part(daemon, "spec", "template", "spec")
    if not any(part(each, "key") in (None, "", GPU) for each in parts(spec, "tolerations")):
        return False
    wanted = part(spec, "nodeSelector")
    if isinstance(wanted, dict) and any(labels.get(key, value) != value for key, value in wanted.items()):
        return False
    terms = [parts(each, "matchExpressions") for each in parts(spec, *_REQUIRED)]
    return not terms or any(all(_fits(each, labels) for each in term) for term in terms)


def _fits(expression: Json, labels: Mapping[str, str]) -> bool:
    """Return whether nodes with these labels meet a requirement, as far as is known."""
    label, operator, values = (part(expression, each) for each in ("key", "operator", "values"))
    value = labels.get(str(label))
    if value is None or not isinstance(values, list):
        return value is None or operator != "DoesNotExist"
    return (value in values) is (operator == "In")


def _with(workloads: Iterable[Json], image: str) -> list[Json]:
    """Return the workloads of which a container's image has this in the last part of its name."""
    return [each for each in workloads if any(image in name.partition(":")[0] for name in _images(each))]


def _images(workload: Json) -> list[str]:
    """Return the last parts of the names of a workload's images: NAME:TAG, without a digest."""
    images = [str(part(each, "image")).partition("@")[0] for each in containers(workload)]
    return [each.rpartition("/")[2] for each in images]
