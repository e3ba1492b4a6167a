"""What the checks of a cluster have in common: the cluster, the stack, and access to answers of any form."""

from __future__ import annotations

from typing import Any

from infra.existing.kubectl import Json, Kubectl, KubectlError
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.workload_objects import every_object
from infra.settings import KubernetesSettings, Problem
from infra.settings.problems import shown
from infra.terminal import printable

NOT_SHOWN: Json = {}
"""Answer of `Found.look` about an object that the user may not read."""
ASK = "ask an administrator of the cluster"
SOURCE = "the API server of the cluster"


class Found:
    """The cluster, the stack's settings and arguments, and what several checks find.

    `objects` are those that the stack makes; `lacking` are rights that the user lacks, as resource and verb; `exists`
    is whether the stack's workload is there.
    """

    def __init__(self, cluster: Kubectl, args: RayArgs, settings: KubernetesSettings, stack: str) -> None:
        self.cluster, self.args, self.settings, self.stack = cluster, args, settings, stack
        self.namespace = settings.namespace
        self.objects = every_object(args)
        self.lacking: list[tuple[str, str]] = []
        self.exists = False

    def problem(self, message: str, fix: str, *paths: str, source: str = SOURCE) -> Problem:
        """Return a problem with settings, by their paths."""
        values = {
            "context": self.settings.context,
            "namespace": self.namespace,
            "localQueue": self.settings.local_queue,
            "storage.claim": self.settings.storage.claim,
            "installKuberay": self.settings.install_kuberay,
        }
        known = tuple(shown(values[path]) if path in values else "" for path in paths)
        return Problem(settings=paths, values=known, message=printable(message), fix=fix, source=source)

    def maybe(self, path: str) -> Json | None:
        """Return the answer to a GET; None if the user may not ask. Raises KubectlError, such as NotFound."""
        try:
            return self.cluster.read(path)
        except KubectlError as error:
            if error.reason == "Forbidden":
                return None
            raise

    def look(self, path: str) -> Json | None:
        """Return an object; NOT_SHOWN if the user may not read it, None if there is none. Raises KubectlError."""
        try:
            body = self.maybe(path)
        except KubectlError as error:
            if error.reason == "NotFound":
                return None
            raise
        return NOT_SHOWN if body is None else body

    def serves(self, api: str) -> bool:
        """Return whether the cluster serves an API group and version. Raises KubectlError."""
        return self.look(f"/apis/{api}") is not None

    def lacks(self, verb: str, group: str, resource: str) -> None:
        """Note a right that the user lacks."""
        self.lacking.append((f"{resource}.{group}" if group else resource, verb))


def part(value: Any, *names: str) -> Any:
    """Return a field of nested maps, of any type; None where there is no such field or no map."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def parts(value: Any, *names: str) -> list[Json]:
    """Return the maps of a list in nested maps; none where there is no list."""
    found = part(value, *names)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
