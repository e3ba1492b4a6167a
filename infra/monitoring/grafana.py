"""JSON of the dashboards for Grafana.

Source of the fields: Grafana docs, dashboard JSON model, the classic one, which Grafana 13 reads too; read 2026-11-28.
"""

from __future__ import annotations

import json
from typing import Any

from infra.monitoring.dashboards import DASHBOARDS, Dashboard, Panel

SCHEMA_VERSION = 39
"""Newer versions of Grafana migrate it (unverified, 2026-11)."""
COLUMNS = 24
"""Width of Grafana's grid."""
SIZES = {True: (6, 4), False: (12, 8)}
"""Width and height of a panel with a number, and of a graph."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = {
    "namespace": ("Namespace", "label_values(rdma_ray_node_gpus, namespace)"),
    "cluster": ("Ray cluster", "label_values(ray_resources, ray_io_cluster)"),
    "node": ("Node", "label_values(rdma_ray_node_gpus, Hostname)"),
}
"""Label and query of each variable. All of its values match series without the label, too."""


def files() -> dict[str, str]:
    """Return the JSON of each dashboard by file name."""
    return {f"{each.uid}.json": json.dumps(dashboard(each), indent=1) + "\n" for each in DASHBOARDS}


def dashboard(described: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    return {
        "uid": described.uid,
        "title": described.title,
        "tags": ["rdma-ray"],
        "editable": True,
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "title": "RDMA Ray", "tags": ["rdma-ray"], "asDropdown": True}],
        "templating": {"list": [_source(), *(_variable(name) for name in VARIABLES)]},
        "panels": _panels(described.panels),
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str) -> dict[str, Any]:
    label, query = VARIABLES[name]
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        # On each load and when the range of time changes.
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(described: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Return the panels from left to right, in rows."""
    panels: list[dict[str, Any]] = []
    x = y = tallest = 0
    for number, panel in enumerate(described, 1):
        width, height = SIZES[panel.number]
        # A graph begins a row after numbers.
        if x + width > COLUMNS or (tallest and tallest != height):
            x, y = 0, y + tallest
        panels.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": height}))
        x, tallest = x + width, height
    return panels


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    graph = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi"}}
    value = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return {
        "id": number,
        "type": "stat" if panel.number else "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": value if panel.number else graph,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": not panel.number,
                "instant": panel.number,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
