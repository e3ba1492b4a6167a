"""A GKE or EKS cluster that the user has, in which a stack makes nodes and Ray: what its API server shows beforehand.

An object of a stack's own name that is there has the labels of the stack that made it. One of this stack's name is
another state's unless its owner is this state's, which the engine knows only later (`refuse_other_owners`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi import ResourceOptions

from infra.catalog.names import OWNER_LABEL, STACK_LABEL
from infra.existing.kubectl import Json, Kubectl, KubectlError
from infra.existing.kuberay import Choice, kuberay_problems
from infra.existing.objects import resource_of
from infra.existing.questions import ASK, NOT_SHOWN, Questions, made_by, part, together
from infra.kubernetes.admission import limit_policy, pod_policy
from infra.kubernetes.api_access import node_rights
from infra.kubernetes.monitoring_objects import rules
from infra.kubernetes.pods import CLUSTER_SCOPED, RayArgs
from infra.kubernetes.resources import labeled
from infra.settings import Problem
from infra.settings.cloud import CloudSettings
from infra.terminal import printable

EXISTING, PROVIDES = "cluster.existing", "cluster.provides"
CREATED = (
    ("", "namespaces"),
    ("apps", "daemonsets"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
)
"""Kinds for whose creation an administrator's rights are needed: API group and resource."""
KUBERAY_CHOICE = Choice(
    path=PROVIDES,
    use_theirs="add kuberay to cluster.provides",
    install="remove kuberay from cluster.provides",
    leftovers=False,
)
SIGN_IN = "sign in to the cloud, and check that this machine reaches the control plane: kubectl version"


@dataclass(frozen=True, kw_only=True)
class TheirCluster:
    """A cluster that the user has, and the owners of what is in it of the stack's own name, by words for each."""

    name: str
    kubeconfig: str
    owners: Mapping[str, str]


def marked(stack: str, owner: pulumi.Input[str]) -> ResourceOptions:
    """Return the options that label every object in a user's cluster with the stack and its owner."""
    return ResourceOptions(transformations=[labeled({STACK_LABEL: stack, OWNER_LABEL: owner})])


def outside_namespace(args: RayArgs) -> list[str]:
    """Return the API paths of the namespace of a stack's workload and of its objects that are in no namespace."""
    limits = limit_policy() if args.settings.nodes.max_hours else []
    bodies: list[Mapping[str, Any]] = [*pod_policy(args.pod), *limits, *node_rights(args)]
    bodies += [each for each in (*args.pod.objects, *rules(args)) if each["kind"] in CLUSTER_SCOPED]
    paths = [f"/apis/{each['apiVersion']}/{resource_of(each['kind'])}/{each['metadata']['name']}" for each in bodies]
    return [f"/api/v1/namespaces/{args.settings.namespace}", *paths]


class Inside:
    """What the API server of a user's cluster shows: `problems`, and the owner of each object of this stack's name.

    Args:
        kubeconfig: As JSON; without a secret.
        ours: API paths of the stack's objects, outside its own namespace, which is one of them.
        more: Further checks, of a cloud's clusters.
    """

    def __init__(
        self,
        kubeconfig: str,
        settings: CloudSettings,
        stack: str,
        ours: Sequence[str],
        more: Callable[[Questions], Iterable[Problem]] = lambda _asked: (),
    ) -> None:
        self.problems: list[Problem] = []
        self.owners: dict[str, str] = {}
        values = {EXISTING: settings.cluster.existing, PROVIDES: ", ".join(settings.cluster.provides) or "none"}
        with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
            file = Path(folder) / "kubeconfig"
            file.write_text(kubeconfig, encoding="utf-8")
            self.asked = Questions(
                Kubectl(kubeconfig=str(file)), stack, settings.namespace, values, place=EXISTING, where=EXISTING
            )
            try:
                self.problems += [*self._found(settings, ours), *more(self.asked)]
            except KubectlError as error:
                self.problems.append(self.asked.problem(f"The cluster does not answer: {error}.", SIGN_IN, EXISTING))

    def _found(self, settings: CloudSettings, ours: Sequence[str]) -> Iterator[Problem]:
        asked = self.asked
        asked.cluster.read("/version")
        may = together(lambda one: asked.cluster.allowed("create", *one, ""), CREATED)
        if lacking := [kind for (_, kind), allowed in zip(CREATED, may, strict=True) if not allowed]:
            yield asked.problem(
                f"You are no administrator of the cluster: you may not create {', '.join(lacking)}.",
                f"{ASK} for the role cluster-admin, or roles/container.admin on gke",
                EXISTING,
            )
            return
        for path, body in zip(ours, together(asked.look, ours), strict=True):
            if body is None or body is NOT_SHOWN:
                continue
            if (maker := part(body, "metadata", "labels", STACK_LABEL)) != asked.stack:
                yield asked.problem(
                    f"There is {_words(body, path)}, {made_by(maker)}, and this stack would overwrite it.",
                    "use another cluster, or delete it if nobody needs it",
                    EXISTING,
                )
            else:
                self.owners[_words(body, path)] = str(part(body, "metadata", "labels", OWNER_LABEL))
        if settings.ray.mode != "indexed-job":
            yield from kuberay_problems(asked, KUBERAY_CHOICE, install=settings.installs("kuberay"))


def _words(body: Json, path: str) -> str:
    """Return an object's kind and name, of which the path is ours."""
    kind = str(part(body, "kind") or path.split("/")[-2])
    return printable(f"a {kind[:63]} {path.rpartition('/')[2]}")


def refuse_other_owners(owner: pulumi.Output[str], owners: Mapping[str, str]) -> pulumi.Output[str]:
    """Return the owner, on which all resources depend; fail if something of this stack's name has another one.

    Before the first `up` the owner is not known, so that nothing can be this state's.

    Args:
        owners: Owners of what is there, by words for it.
    """

    def checked(known: object) -> str:
        others = [what for what, its in owners.items() if its != known]
        if others:
            raise pulumi.RunError(
                f"{EXISTING}: there is {', '.join(others)}, of a stack of this name with another state. Bring it down "
                "from there, or choose another name for this stack: pulumi stack init NAME --copy-config-from STACK"
            )
        return known  # type: ignore[return-value]

    return owner.apply(checked, run_with_unknowns=True)
