"""`monitoring`: what each kind adds to a stack, the fields of dcgm-exporter, and the files for Grafana."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml

from infra.catalog.names import METRICS_PORTS, NIC_METRICS_PORT
from infra.catalog.pins import POD_MONITORING_API
from infra.eks.addons import dcgm_values
from infra.existing.cloud import outside_namespace
from infra.kubernetes.monitoring_objects import GRAFANA_LABEL
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.workload_objects import every_object, ingress_policy
from infra.monitoring import grafana
from infra.monitoring.alerts import alerts
from infra.monitoring.dashboards import DASHBOARDS, DCGM_COUNTERS
from infra.plan import ray_args
from infra.settings import parse
from tests.unit.stacks import EKS, GKE, KUBERNETES, changed

ADDED = {
    "google": {"ConfigMap", "ClusterRules"},
    "operator": {"ConfigMap", "PrometheusRule", "PodMonitor"},
    "annotations": {"ConfigMap", "Service"},
}
GRAFANA = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "templating", "panels", "time"],
    "properties": {
        "uid": {"type": "string", "maxLength": 40, "pattern": "^[a-zA-Z0-9_-]+$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "refresh": {"type": "string"},
        "templating": {
            "required": ["list"],
            "properties": {
                "list": {"items": {"required": ["name", "type"], "properties": {"refresh": {"enum": [0, 1, 2]}}}}
            },
        },
        "panels": {
            "items": {
                "required": ["id", "type", "title", "gridPos", "targets", "fieldConfig"],
                "properties": {
                    "type": {"enum": ["timeseries", "stat"]},
                    "gridPos": {
                        "required": ["h", "w", "x", "y"],
                        "additionalProperties": False,
                        "properties": {"w": {"maximum": 24}, "x": {"minimum": 0, "maximum": 23}, "h": {}, "y": {}},
                    },
                    "fieldConfig": {"required": ["defaults", "overrides"]},
                    "datasource": {"required": ["type", "uid"]},
                    "targets": {"minItems": 1, "items": {"required": ["refId", "expr", "datasource"]}},
                },
            }
        },
    },
}
"""What Grafana's documentation of the JSON model requires of the fields that the dashboards have (Grafana docs,
dashboard JSON model, read 2026-11-28)."""
RAYS = json.loads(
    next(
        Path(ray.__file__).parent.glob("dashboard/modules/metrics/dashboards/default_grafana_dashboard_base.json")
    ).read_text()
)
"""A dashboard of Ray's, which Grafana imports."""


CASES = [
    (GKE, "google"),
    (EKS, "operator"),
    (EKS, "annotations"),
    (KUBERNETES, "operator"),
    (KUBERNETES, "annotations"),
]
every_kind = pytest.mark.parametrize(
    ("stack", "kind"), CASES, ids=lambda value: value if isinstance(value, str) else value["target"]
)


def _args(stack: dict[str, Any], kind: str, **more: Any) -> RayArgs:
    settings = parse(changed(stack, {"monitoring": kind, **more}))
    return ray_args(settings, "a-ray")  # type: ignore[arg-type]


def _named(args: RayArgs) -> dict[tuple[str, str], dict[str, Any]]:
    return {(body["kind"], body["metadata"]["name"]): body for body in every_object(args)}


def _pods(args: RayArgs) -> dict[str, dict[str, Any]]:
    """Return the pod templates of the workload by the name of their first container."""
    spec = _named(args)[("RayCluster", "a-ray")]["spec"]
    templates = [group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    return {template["spec"]["containers"][0]["name"]: template for template in templates}


@every_kind
def test_kind_adds_its_objects_and_an_exporter_to_the_workers_alone(stack: dict[str, Any], kind: str) -> None:
    before, after = _args(stack, "none"), _args(stack, kind)
    assert {name for name, _ in _named(after).keys() - _named(before).keys()} == ADDED[kind]
    for name, template in _pods(after).items():
        added = template["spec"].get("initContainers", [])[len(_pods(before)[name]["spec"].get("initContainers", [])) :]
        assert [container["name"] for container in added] == (["nic-metrics"] if name == "ray-worker" else [])
        for container in added:
            # A queue's quota and the whole node are the worker's.
            assert container["resources"]["requests"] == {"cpu": "0", "memory": "0"}
            assert container["restartPolicy"] == "Always"
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert f"--port={NIC_METRICS_PORT}" in container["args"]
            assert f"--gpus={after.settings.gpus_per_node}" in container["args"]
            # Gbit/s of a3-ultragpu-8g and p5en.48xlarge; the kernel's on a machine that is not known.
            assert f"--gbps={ {'gke': 400, 'eks': 200, 'kubernetes': 0}[stack['target']] }" in container["args"]
    untouched = {key: body for key, body in _named(after).items() if key in _named(before)}
    changes = {key for key, body in untouched.items() if body != _named(before)[key]}
    monitored = {("PodMonitoring", "a-ray")} if kind == "google" else set()
    assert changes == {("RayCluster", "a-ray"), ("NetworkPolicy", "a-ray-ingress"), *monitored}


@every_kind
def test_collectors_alone_reach_the_exporter(stack: dict[str, Any], kind: str) -> None:
    *_, collectors = ingress_policy(_args(stack, kind))["spec"]["ingress"]
    assert [port["port"] for port in collectors["ports"]] == [*METRICS_PORTS, NIC_METRICS_PORT]
    *_, collectors = ingress_policy(_args(stack, "none"))["spec"]["ingress"]
    assert [port["port"] for port in collectors["ports"]] == [*METRICS_PORTS]


def test_indexed_job_has_the_exporter_beside_its_container() -> None:
    job = {"ray.mode": "indexed-job", "ray.entrypoint": "torchrun train.py"}
    spec = _named(_args(GKE, "google", **job))[("Job", "a-ray")]["spec"]["template"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["ray-node"]
    assert spec["initContainers"][-1]["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"nodes.capacity": "flex-start", "nodes.maxRunHours": 24}, 86_400),
        # A node of the other pool has no such end.
        ({"nodes.capacity": "spot", "nodes.fallback": "flex-start", "computeClass": True}, 0),
        ({"nodes.capacity": "spot"}, 0),
    ],
)
def test_end_of_a_node_is_known_if_all_nodes_have_it(changes: dict[str, Any], seconds: int) -> None:
    exporter = _pods(_args(GKE, "google", **changes))["ray-worker"]["spec"]["initContainers"][-1]
    assert f"--max-run-s={seconds}" in exporter["args"]


def test_rules_have_the_price_of_the_stack_and_its_namespace() -> None:
    spec = _named(_args(GKE, "google", prices=["a3-ultragpu-8g=40"], **{"nodes.capacity": "spot"}))[
        ("ClusterRules", "a-ray")
    ]["spec"]
    [price, *_] = spec["groups"][0]["rules"]
    assert (price["expr"], price["labels"]) == ("vector(5.0000)", {"namespace": "ray"})
    [config] = [
        body for (kind, name), body in _named(_args(KUBERNETES, "annotations")).items() if name == "a-ray-alerts"
    ]
    rules = yaml.safe_load(config["data"]["alerts.yaml"])["groups"][0]["rules"]
    assert [rule for rule in rules if "record" in rule] == []
    assert any('namespace="team-a"' in rule["expr"] for rule in rules)


def test_rules_of_another_stack_in_a_users_gke_cluster_are_looked_up() -> None:
    path = f"/apis/{POD_MONITORING_API}/clusterrules/a-ray"
    assert path in outside_namespace(_args(GKE, "google"))
    assert path not in outside_namespace(_args(GKE, "none"))


def test_dashboards_are_found_by_grafana() -> None:
    config = _named(_args(KUBERNETES, "operator"))[("ConfigMap", "a-ray-dashboards")]
    assert config["metadata"]["labels"] == GRAFANA_LABEL
    assert config["data"] == grafana.files()
    assert len(json.dumps(config)) < 2**20


@pytest.mark.parametrize("name", grafana.files())
def test_dashboard_has_the_form_of_grafanas_model(name: str) -> None:
    board = json.loads(grafana.files()[name])
    jsonschema.validate(board, GRAFANA)
    assert name == f"{board['uid']}.json"
    assert board.keys() <= RAYS.keys()
    used = {
        each
        for panel in board["panels"]
        for target in panel["targets"]
        for each in re.findall(r"\$\{?(\w+)", target["expr"])
    }
    variables = {each["name"] for each in board["templating"]["list"]}
    assert used - {"__rate_interval"} <= variables
    places = [
        (cell, row)
        for panel in board["panels"]
        for place in [panel["gridPos"]]
        for cell in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(places) == len(set(places)), "panels overlap"


@pytest.mark.parametrize("operator", [True, False])
def test_dcgm_exporter_reads_every_field_that_is_used(operator: bool) -> None:
    values = dcgm_values(operator=operator)
    rows = [line.split(",", 2) for line in values["customMetrics"].splitlines()]
    texts = [query.expr for board in DASHBOARDS for panel in board.panels for query in panel.queries]
    texts += [alert.expr for alert in alerts("ray", 1)]
    used = {name for text in texts for name in re.findall(r"DCGM_\w+", text)}
    assert {name for name, _, _ in rows} == used == set(DCGM_COUNTERS)
    assert {kind.strip() for _, kind, _ in rows} == {"gauge", "counter"}
    assert all("," not in text for _, _, text in rows)
    assert values["serviceMonitor"]["enabled"] is operator
