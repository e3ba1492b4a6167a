"""Admission policies in CEL, as the real API server carries them out: they stand in for webhooks of a cloud.

Mutating policies are generally available since Kubernetes 1.36 (apiserver 0.36.1: pkg/features), so that no certificate
and no server of ours is needed.
"""

from __future__ import annotations

from typing import Any

from rehearsal.clouds.kind import Json

API = "admissionregistration.k8s.io/v1"
NEW_PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def denying(name: str, rule: Json, spec: Json, binding: Json | None = None) -> list[Json]:
    """A policy that refuses requests, and its binding; `spec` has validations, `rule` says what is looked at."""
    bound = {"policyName": name, "validationActions": ["Deny"], **(binding or {})}
    return [
        _object("ValidatingAdmissionPolicy", name, _matching(rule, spec)),
        _object("ValidatingAdmissionPolicyBinding", name, bound),
    ]


def patching(name: str, rule: Json, spec: Json, expression: str) -> list[Json]:
    """A policy that changes objects by the JSON patches that `expression` makes, and its binding."""
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    whole = _matching(rule, {**spec, "reinvocationPolicy": "Never", "mutations": [mutation]})
    return [
        _object("MutatingAdmissionPolicy", name, whole),
        _object("MutatingAdmissionPolicyBinding", name, {"policyName": name}),
    ]


def _matching(rule: Json, spec: Json) -> Json:
    return {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, **spec}


def _object(kind: str, name: str, spec: dict[str, Any]) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
