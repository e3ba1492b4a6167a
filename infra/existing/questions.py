"""What the checks of a cluster have in common: the cluster, the stack, and access to answers of any form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.existing.kubectl import Json, Kubectl, KubectlError
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.workload_objects import every_object
from infra.settings import KubernetesSettings, Problem
from infra.settings.problems import shown
from infra.terminal import printable

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
NOT_SHOWN: Json = {}
"""Answer of `Found.look` about an object that the user may not read."""
ASK = "ask an administrator of the cluster"
PARALLEL = 8
SOURCE = "the API server of the cluster"


@dataclass
class Questions:
    """A cluster that the user has, and how to ask it.

    Args:
        stack: The stack, as its objects are marked (`STACK_LABEL`).
        namespace: That of Ray.
        values: Settings that a problem shows, by their paths.
        place: Path of the setting that names the cluster.
        where: Path of the setting that names the namespace, or the cluster.
    """

    cluster: Kubectl
    stack: str
    namespace: str
    values: Mapping[str, object]
    place: str
    where: str

    def problem(self, message: str, fix: str, *paths: str, source: str = SOURCE) -> Problem:
        """Return a problem with settings, by their paths."""
        known = tuple(shown(self.values[path]) if path in self.values else "" for path in paths)
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


def together(ask: Callable[[Asked], Answer], values: Iterable[Asked]) -> list[Answer]:
    """Return the answers to questions about each value, which are asked at once: each one starts a kubectl."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return [*pool.map(ask, values)]


class Found(Questions):
    """The cluster of target `kubernetes`, the stack's settings and arguments, and what several checks find.

    `objects` are those that the stack makes; `lacking` are rights that the user lacks, as resource and verb; `exists`
    is whether the stack's workload is there.
    """

    def __init__(self, cluster: Kubectl, args: RayArgs, settings: KubernetesSettings, stack: str) -> None:
        values = {
            "context": settings.context,
            "namespace": settings.namespace,
            "localQueue": settings.local_queue,
            "storage.claim": settings.storage.claim,
            "installKuberay": settings.install_kuberay,
        }
        super().__init__(cluster, stack, settings.namespace, values, place="context", where="namespace")
        self.args, self.settings = args, settings
        self.objects = every_object(args)
        self.lacking: list[tuple[str, str]] = []
        self.exists = False

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


def containers(workload: Json) -> list[Json]:
    """Return the containers of a Deployment or DaemonSet."""
    return parts(workload, "spec", "template", "spec", "containers")


def made_by(stack: object) -> str:
    """Return words for what made a thing, by the value of its label or tag with a stack, if it has one."""
    return f"of the stack {printable(str(stack)[:63])}" if stack else "which no stack made"


def place_of(body: Json) -> str:
    """Return namespace and name of an object as text."""
    return "/".join(str(part(body, "metadata", each))[:63] for each in ("namespace", "name"))
