"""Kueue, by its Helm chart: it lets a workload begin when the quota has room for all of it, and not before.

Its definitions are templates of the chart, so they go with the release, and every queue with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import yaml
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release

from infra.catalog.pins import KUEUE, KUEUE_TAG
from infra.kubernetes.queue_facts import KUEUE_NAMESPACE, KUEUE_RELEASE
from infra.kubernetes.queue_manifest import QueueShape, configuration


@dataclass(frozen=True, kw_only=True)
class KueueArgs:
    """node_selector: where the controller runs; image_repository: where its image lies, for clusters that reach a
    mirror only.

    needs: the nodes that have to be there first, the way to them, and KubeRay where there is one: Kueue's webhook for
    Ray's kinds begins to answer when it finds their definitions, and until then the API server refuses every one.
    """

    shape: QueueShape
    node_selector: dict[str, str]
    needs: Sequence[pulumi.Resource]
    image_repository: str = KUEUE.image


class Kueue(pulumi.ComponentResource):
    """The controller in a namespace of its own; `release` is what queues wait for."""

    def __init__(self, name: str, args: KueueArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:kubernetes:Kueue", name, {}, opts)
        self.release = Release(
            name,
            name=KUEUE_RELEASE,
            chart=KUEUE.name,
            version=KUEUE.version,
            namespace=KUEUE_NAMESPACE,
            create_namespace=True,
            # A release that does not come up is rolled back, so that the next `up` finds nothing half made.
            atomic=True,
            timeout=600,
            values={
                "controllerManager": {
                    "nodeSelector": args.node_selector,
                    "manager": {
                        "image": {
                            "repository": args.image_repository,
                            "tag": KUEUE_TAG,
                            # The tag is a release; Always would need the registry for every restart.
                            "pullPolicy": "IfNotPresent",
                        }
                    },
                },
                "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(configuration(args.shape))},
            },
            # The release is done when the controller answers, and it needs a node for that.
            opts=ResourceOptions(parent=self, depends_on=list(args.needs)),
        )
        self.register_outputs({"version": KUEUE.version})
