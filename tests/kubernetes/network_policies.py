"""Evaluation of the NetworkPolicies of an API server, by the documented rules; nothing enforces them here.

Replaces a network plugin's evaluation (Kubernetes docs, concepts/services-networking/network-policies, read
2026-11-21), for ingress. The labels are real: those of pods by the controllers, those of namespaces by the API server.
"""

from __future__ import annotations

from tools.kubernetes.api import Api, Json


def admits(api: Api, target: Json, port: int, source: Json) -> bool:
    """Return whether `source`, an existing or planned pod, may reach a TCP port of the pod `target`."""
    namespace = target["metadata"]["namespace"]
    policies = [
        policy["spec"]
        for policy in api.list("networking.k8s.io/v1", "NetworkPolicy", namespace)
        if "Ingress" in policy["spec"]["policyTypes"] and selects(policy["spec"]["podSelector"], target)
    ]
    if not policies:
        return True
    return any(
        _port(rule, port) and _peers(api, rule, source, namespace)
        for policy in policies
        for rule in policy.get("ingress", [])
    )


def selects(selector: Json, body: Json) -> bool:
    """Return whether a label selector matches an object."""
    assert set(selector) <= {"matchLabels"}, "this reading knows no expressions"
    labels = body["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _port(rule: Json, port: int) -> bool:
    return "ports" not in rule or any(each["port"] == port and each["protocol"] == "TCP" for each in rule["ports"])


def _peers(api: Api, rule: Json, source: Json, namespace: str) -> bool:
    if "from" not in rule:
        return True
    home = api.get("v1", "Namespace", source["metadata"]["namespace"])
    assert home is not None
    return any(
        (
            selects(peer["namespaceSelector"], home)
            if "namespaceSelector" in peer
            else home["metadata"]["name"] == namespace
        )
        and selects(peer.get("podSelector", {}), source)
        for peer in rule["from"]
    )
