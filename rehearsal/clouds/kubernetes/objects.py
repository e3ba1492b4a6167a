"""Rules of built-in kinds: Secrets, claims, services, policies, roles; and immutable fields."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Refusal, value_at
from rehearsal.clouds.kubernetes.fields import invalid
from rehearsal.clouds.kubernetes.identity import api
from rehearsal.clouds.values import UNKNOWN

CORE = "Kubernetes: pkg/apis/core/validation; wording unverified, 2026-11"
NETWORKING = "Kubernetes: pkg/apis/networking/validation; wording unverified, 2026-11"
POLICY = "Kubernetes: pkg/apis/policy/validation; wording unverified, 2026-11"
RBAC = "Kubernetes: pkg/apis/rbac/validation; wording unverified, 2026-11"
FIXED = "Kubernetes: validation of updates in pkg/apis; wording unverified, 2026-11"

_FIXED = {
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName"),
    "Job": ("spec.template", "spec.selector", "spec.completionMode"),
    "StorageClass": ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    "PriorityClass": ("value",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "Secret": ("type",),
    "ResourceClaimTemplate": ("spec",),
    "ResourceClaim": ("spec",),
    "PersistentVolume": ("spec.csi", "spec.nfs", "spec.hostPath"),
}
"""Immutable fields. Kubernetes API reference, unverified, 2026-11."""


def fixed_field_changed(call: Call) -> Refusal | None:
    """Some fields are immutable; the provider replaces the object for some of them."""
    if call.verb != "update" or "x-k8s" in api(call.type).group:
        return None
    for path in _FIXED.get(api(call.type).kind, ()):
        before, now = value_at(call.live, path), value_at(call.now, path)
        if before != now and not (path == "type" and now is None):
            return invalid(call, f"{path}: Invalid value: field is immutable", FIXED)
    return None


def immutable_content_changed(call: Call) -> Refusal | None:
    """An immutable Secret or ConfigMap keeps its content."""
    if call.verb != "update" or api(call.type).kind not in ("Secret", "ConfigMap") or not call.live.get("immutable"):
        return None
    for key in ("data", "stringData", "binaryData", "immutable"):
        if call.live.get(key) != call.now.get(key):
            return invalid(call, f"{key}: Forbidden: field is immutable when `immutable` is set", CORE)
    return None


def claim_changed(call: Call) -> Refusal | None:
    """Of a PersistentVolumeClaim only the size can change."""
    if call.verb != "update" or call.type != "kubernetes:core/v1:PersistentVolumeClaim":
        return None
    before, now = call.live.get("spec") or {}, call.now.get("spec") or {}
    free = ("resources", "volumeAttributesClassName")
    if any(before.get(key) != now.get(key) for key in before.keys() | now.keys() if key not in free):
        words = "spec: Forbidden: spec is immutable after creation except resources.requests and "
        return invalid(call, f"{words}volumeAttributesClassName for bound claims", CORE)
    return None


def secret_not_encoded(call: Call) -> Refusal | None:
    """A Secret's data is base64; plain text belongs in stringData."""
    if call.verb == "delete" or call.type != "kubernetes:core/v1:Secret":
        return None
    for key, value in (call.inputs.get("data") or {}).items():
        try:
            base64.b64decode("" if value == UNKNOWN else str(value), validate=True)
        except (binascii.Error, ValueError):
            # The value itself is a secret, so the message does not contain it.
            return Refusal(
                "400 BadRequest",
                f'Secret in version "v1" cannot be handled as a Secret: data[{key}]: illegal base64 data',
                CORE,
            )
    return None


def policy_peer_mixed(call: Call) -> Refusal | None:
    """A peer of a NetworkPolicy is an IP block or a selector, not both and not neither."""
    for path, peer in _peers(call):
        if not peer:
            return invalid(call, f"{path}: Required value: must specify a peer", NETWORKING)
        if "ipBlock" in peer and len(peer) > 1:
            return invalid(call, f"{path}: Forbidden: may not specify both ipBlock and another peer", NETWORKING)
    return None


def policy_range_malformed(call: Call) -> Refusal | None:
    """IP blocks have no host bits, and exceptions are inside of them."""
    for path, peer in _peers(call):
        block = peer.get("ipBlock") or {}
        range_ = block.get("cidr")
        if not block or range_ == UNKNOWN:
            continue
        whole = _network(range_)
        if whole is None:
            words = f'{path}.ipBlock.cidr: Invalid value: "{range_}": must be a valid CIDR value, '
            return invalid(call, f"{words}(e.g. 10.9.8.0/24 or 2001:db8::/64)", NETWORKING)
        for index, except_ in enumerate(block.get("except") or ()):
            inner = _network(except_)
            ends = () if inner is None else (inner.network_address, inner.broadcast_address)
            if not ends or inner == whole or any(end not in whole for end in ends):
                words = f'{path}.ipBlock.except[{index}]: Invalid value: "{except_}": must be a strict subset of `cidr`'
                return invalid(call, words, NETWORKING)
    return None


def policy_type_unknown(call: Call) -> Refusal | None:
    """The types of a NetworkPolicy are Ingress, Egress or both."""
    if call.verb == "delete" or call.type != "kubernetes:networking.k8s.io/v1:NetworkPolicy":
        return None
    for type_ in value_at(call.inputs, "spec.policyTypes") or ():
        if type_ not in ("Ingress", "Egress"):
            words = f'spec.policyTypes: Unsupported value: "{type_}": supported values: "Ingress", "Egress"'
            return invalid(call, words, NETWORKING)
    return None


def budget_says_both(call: Call) -> Refusal | None:
    """A PodDisruptionBudget sets minAvailable or maxUnavailable."""
    spec = call.inputs.get("spec") or {}
    if call.verb == "delete" or call.type != "kubernetes:policy/v1:PodDisruptionBudget":
        return None
    if "minAvailable" not in spec or "maxUnavailable" not in spec:
        return None
    return invalid(call, "spec: Invalid value: minAvailable and maxUnavailable cannot be both set", POLICY)


def service_ports_unnamed(call: Call) -> Refusal | None:
    """A Service has ports, and each has a name if there are several."""
    if call.verb == "delete" or call.type != "kubernetes:core/v1:Service":
        return None
    spec = call.inputs.get("spec") or {}
    ports = spec.get("ports") or []
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        return invalid(call, "spec.ports: Required value", CORE)
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            return invalid(call, f"spec.ports[{index}].name: Required value", CORE)
        number = port.get("port")
        if isinstance(number, int) and not 1 <= number <= 65535:
            words = f"spec.ports[{index}].port: Invalid value: {number}: must be between 1 and 65535, inclusive"
            return invalid(call, words, CORE)
    return None


def binding_without_role(call: Call) -> Refusal | None:
    """A binding refers to a Role or a ClusterRole, and its subjects have namespaces."""
    kind = api(call.type)
    if call.verb == "delete" or kind.kind not in ("RoleBinding", "ClusterRoleBinding"):
        return None
    role = value_at(call.inputs, "roleRef.kind")
    allowed = ("Role", "ClusterRole") if kind.kind == "RoleBinding" else ("ClusterRole",)
    if role not in allowed:
        offered = ", ".join(f'"{each}"' for each in allowed)
        return invalid(call, f'roleRef.kind: Unsupported value: "{role}": supported values: {offered}', RBAC)
    for index, subject in enumerate(call.inputs.get("subjects") or ()):
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            return invalid(call, f"subjects[{index}].namespace: Required value", RBAC)
    return None


def _peers(call: Call) -> Iterator[tuple[str, dict[str, Any]]]:
    if call.verb == "delete" or call.type != "kubernetes:networking.k8s.io/v1:NetworkPolicy":
        return
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(value_at(call.inputs, f"spec.{direction}") or ()):
            for number, peer in enumerate(rule.get(side) or ()):
                yield f"spec.{direction}[{index}].{side}[{number}]", peer


def _network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        return None


RULES = (
    fixed_field_changed,
    immutable_content_changed,
    claim_changed,
    secret_not_encoded,
    policy_peer_mixed,
    policy_range_malformed,
    policy_type_unknown,
    budget_says_both,
    service_ports_unnamed,
    binding_without_role,
)
