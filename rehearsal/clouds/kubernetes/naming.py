"""Rules of names, labels and annotations, and of the object's namespace."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rehearsal.clouds.kind import Call, Json, Refusal
from rehearsal.clouds.kubernetes.connection import OWNER, here
from rehearsal.clouds.kubernetes.fields import invalid
from rehearsal.clouds.kubernetes.identity import NAMESPACE, api, name, namespace
from rehearsal.clouds.kubernetes.pods import templates

NAMES = "Kubernetes docs, Object Names and IDs; wording of apimachinery validation unverified, 2026-11"
LABELS = "Kubernetes docs, Labels and Selectors, Annotations; wording unverified, 2026-11"
NAMESPACES = "Kubernetes API server, NamespaceLifecycle admission; wording unverified, 2026-11"
PRESENT = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", "gmp-system", "gmp-public"})
"""The namespaces of a new GKE cluster: GKE docs, unverified, 2026-11."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_ANNOTATIONS_BYTES = 256 * 1024
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)


def name_missing(call: Call) -> Refusal | None:
    """A name must be set; other objects cannot refer to one that the provider generates."""
    if call.verb == "delete" or name(call.inputs):
        return None
    return Refusal(
        "422 Invalid",
        "metadata.name: Required value: the provider would make up a name from the resource's own and random letters; "
        "the objects of a stack have fixed names",
        "pulumi-kubernetes docs, auto-naming; rdma-ray's choice, 2026-11",
    )


def name_malformed(call: Call) -> Refusal | None:
    """Most names are DNS subdomains; a Namespace is a label, a Service a label that begins with a letter."""
    if call.verb != "create":
        return None
    kind, its = api(call.type), name(call.inputs)
    if kind.group == "rbac.authorization.k8s.io":
        return None
    if (kind.group, kind.kind) == ("", "Service"):
        fits, words = (
            len(its) <= 63 and _SERVICE.fullmatch(its),
            "a DNS-1035 label must consist of lower case alphanumeric ",
        )
        words += "characters or '-', start with an alphabetic character, and end with an alphanumeric character"
    elif (kind.group, kind.kind) == ("", "Namespace"):
        fits, words = len(its) <= 63 and _LABEL.fullmatch(its), "a lowercase RFC 1123 label must consist of lower case "
        words += "alphanumeric characters or '-', and must start and end with an alphanumeric character"
    else:
        fits, words = len(its) <= 253 and _SUBDOMAIN.fullmatch(its), _SUBDOMAIN_WORDS
    return None if fits else invalid(call, f'metadata.name: Invalid value: "{its}": {words}', NAMES)


def label_malformed(call: Call) -> Refusal | None:
    """Keys of labels are qualified names; values have at most 63 characters."""
    if call.verb == "delete":
        return None
    for path, metadata in _metadata(call):
        for key, value in (metadata.get("labels") or {}).items():
            if not _qualified(key):
                return invalid(
                    call,
                    f'{path}.labels: Invalid value: "{key}": name part must consist of alphanumeric '
                    "characters, '-', '_' or '.'",
                    LABELS,
                )
            if len(str(value)) > 63:
                return invalid(call, f'{path}.labels: Invalid value: "{value}": must be no more than 63 bytes', LABELS)
            if value and not _QUALIFIED.fullmatch(str(value)):
                return invalid(
                    call,
                    f'{path}.labels: Invalid value: "{value}": a valid label must be an empty string '
                    "or consist of alphanumeric characters, '-', '_' or '.'",
                    LABELS,
                )
    return None


def annotation_malformed(call: Call) -> Refusal | None:
    """Keys of annotations are qualified names; all of them together have at most 256 KiB."""
    if call.verb == "delete":
        return None
    for path, metadata in _metadata(call):
        annotations = metadata.get("annotations") or {}
        for key in annotations:
            if not _qualified(key):
                return invalid(
                    call,
                    f'{path}.annotations: Invalid value: "{key}": name part must consist of '
                    "alphanumeric characters, '-', '_' or '.'",
                    LABELS,
                )
        size = sum(len(str(key).encode()) + len(str(value).encode()) for key, value in annotations.items())
        if size > _ANNOTATIONS_BYTES:
            return invalid(
                call, f"{path}.annotations: Too long: may not be more than {_ANNOTATIONS_BYTES} bytes", LABELS
            )
    return None


def namespace_missing(call: Call) -> Refusal | None:
    """The namespace of an object exists."""
    wanted = namespace(call.inputs, call.config)
    if call.verb != "create" or not api(call.type).namespaced or exists(call, wanted):
        return None
    return Refusal("404 NotFound", f'namespaces "{wanted}" not found', NAMESPACES)


def namespace_kept(call: Call) -> Refusal | None:
    """The namespaces of the cluster itself cannot be deleted."""
    its = call.id
    if call.verb != "delete" or call.type != NAMESPACE or its not in ("default", "kube-system", "kube-public"):
        return None
    return Refusal("403 Forbidden", f'namespaces "{its}" is forbidden: this namespace may not be deleted', NAMESPACES)


def second_cluster(call: Call) -> Refusal | None:
    """A rehearsal has one cluster at a time: ids on the wire do not include the cluster."""
    own, _ = here(call)
    if call.verb != "create":
        return None
    for type_, id_, live in call.state.all():
        if type_.startswith("kubernetes:") and live.get(OWNER) not in (None, own):
            return Refusal(
                "rehearsal",
                f"{api(type_).kind} {id_} lives in {live[OWNER]}, and this object would live in {own}: "
                "a rehearsal has one Kubernetes cluster",
                "rdma-ray: rehearsal/clouds/kubernetes, 2026-11",
            )
    return None


def exists(call: Call, wanted: str) -> bool:
    """Return whether a namespace exists."""
    return wanted in PRESENT or call.state.get(NAMESPACE, wanted) is not None


def _metadata(call: Call) -> Iterator[tuple[str, Json]]:
    yield "metadata", call.inputs.get("metadata") or {}
    for template in templates(call.type, call.inputs):
        yield f"{template.path}.metadata", template.metadata


def _qualified(key: str) -> bool:
    prefix, slash, own = str(key).rpartition("/")
    return bool(
        len(own) <= 63
        and _QUALIFIED.fullmatch(own)
        and (not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix.lower())))
    )


RULES = (
    second_cluster,
    name_missing,
    name_malformed,
    label_malformed,
    annotation_malformed,
    namespace_missing,
    namespace_kept,
)
