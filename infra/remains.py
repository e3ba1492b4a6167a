"""What stays in the account after a stack is destroyed, what it costs, and the command that removes it.

Only what follows from the stack file: no API is called. docs/gke.md and docs/eks.md have the sources, and what may
stay besides, such as a load balancer of a workload.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from infra.catalog.aws import KEY_WINDOW_DAYS, zone_region
from infra.eks.names import log_group
from infra.settings import EksSettings, GkeSettings, KubernetesSettings, Settings


@dataclass(frozen=True)
class Remainder:
    """A thing that stays, what it costs until it is removed, and how to remove it or to see whether it is there."""

    what: str
    cost: str
    command: str

    def __str__(self) -> str:
        return f"- {self.what}. {self.cost}.\n  {self.command}"


def remains(settings: Settings, stack: str) -> list[Remainder]:
    """Return what stays of a destroyed stack, with what was never a part of it but costs money because of it."""
    if isinstance(settings, GkeSettings):
        return [*_on_gke(settings)]
    if isinstance(settings, EksSettings):
        return [*_on_eks(settings, stack)]
    return [*_on_kubernetes(settings)] if isinstance(settings, KubernetesSettings) else []


def _on_gke(settings: GkeSettings) -> Iterator[Remainder]:
    bucket, nodes = settings.storage.bucket, settings.nodes
    if bucket is not None:
        yield Remainder(
            f"Bucket {bucket} and its content, which the stack did not make",
            "Storage by the GB and month, also of deleted files for their soft-delete time",
            f"gcloud storage rm --recursive gs://{bucket}",
        )
    if nodes.reservation is not None:
        name = nodes.reservation.rpartition("/reservations/")[2].partition("/")[0]
        yield Remainder(
            f"Reservation {name}",
            "Its machines are billed without nodes, too",
            f"gcloud compute reservations list --filter=name={name}",
        )
    yield from _in_their_cluster(settings)
    if settings.fabric_row.managed:
        yield Remainder(
            "Networks that GKE made for the pool may stay",
            "They are free, and count against the quota of networks",
            "gcloud compute networks list",
        )


def _on_eks(settings: EksSettings, stack: str) -> Iterator[Remainder]:
    bucket, nodes = settings.storage.bucket, settings.nodes
    found = zone_region(settings.location)
    region = f" --region {found}" if found else ""
    if bucket is not None:
        yield Remainder(
            f"Bucket {bucket} and its content, which the stack did not make",
            "Storage by the GB and month",
            f"aws s3 rb --force s3://{bucket}",
        )
    if nodes.reservation is not None:
        block = nodes.capacity == "capacity-block"
        yield Remainder(
            f"{'Capacity Block' if block else 'Reservation'} {nodes.reservation}",
            "It is paid in advance, and ends on its date" if block else "Its machines are billed without nodes, too",
            f"aws ec2 describe-capacity-reservations{region}",
        )
    yield from _in_their_cluster(settings)
    if not settings.own_cluster:
        return
    yield Remainder(
        f"The KMS key of the cluster's Secrets, which KMS deletes after {KEY_WINDOW_DAYS} days",
        "It is free in that time (unverified)",
        f"aws kms list-keys{region}",
    )
    group = log_group(stack)
    yield Remainder(
        f"Log group {group}, if EKS wrote last lines after its deletion; the next `up` would fail on its name",
        "Logs are billed by the GB, without expiry",
        f"aws logs delete-log-group{region} --log-group-name {group}",
    )


def _in_their_cluster(settings: GkeSettings | EksSettings) -> Iterator[Remainder]:
    if not settings.own_cluster:
        yield Remainder(
            f"Cluster {settings.cluster.existing}, which the stack did not make; KubeRay's CRDs, which Helm leaves",
            "The cluster is billed as before; CRDs are free",
            "kubectl get crd --output name",
        )


def _on_kubernetes(settings: KubernetesSettings) -> Iterator[Remainder]:
    if settings.storage.claim is not None:
        yield Remainder(
            f"PersistentVolumeClaim {settings.storage.claim} and its files, which the stack did not make",
            "Its storage is billed",
            shlex.join(
                [
                    "kubectl",
                    f"--context={settings.context}",
                    f"--namespace={settings.namespace}",
                    "get",
                    "pvc",
                    settings.storage.claim,
                ]
            ),
        )
