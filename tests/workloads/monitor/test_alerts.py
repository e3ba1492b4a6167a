"""The alert rules in Prometheus' own tester: each fires for its planted cause and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.monitoring.alerts import APPLICATION_XIDS, alerts, groups
from tests.prometheus import promtool
from workloads.hardware import gpu

# As text: `0x120`, 120 times zero, is a number for YAML.
CASES = yaml.load(Path(__file__).with_name("alert_cases.yaml").read_text(), Loader=yaml.BaseLoader)
PRICE = 10.60
ALERTS = {alert.name: alert for alert in alerts("ray", PRICE)}


def _written(folder: Path, dollars: float | None = PRICE) -> Path:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups("ray", dollars)}))
    return path


def _expected(case: dict[str, Any]) -> dict[str, Any]:
    alert = ALERTS[case["alert"]]
    return {
        "exp_labels": {**case["labels"], "severity": alert.severity},
        "exp_annotations": {"summary": case["summary"], "description": f"{alert.meaning} {alert.action}"},
    }


def _tested(folder: Path, change: dict[str, str], firing: dict[str, list[dict[str, Any]]]) -> str:
    """Run promtool on the healthy node with a change; return what differs.

    Args:
        firing: What fires at each time. Every alert is asked for at each of them.
    """
    series = {**CASES["healthy"], **change}
    tests = folder / "tests.yaml"
    asked = [
        {
            "eval_time": time,
            "alertname": name,
            "exp_alerts": [_expected(case) for case in cases if case["alert"] == name],
        }
        for time, cases in firing.items()
        for name in ALERTS
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": asked,
    }
    tests.write_text(
        yaml.safe_dump({"rule_files": [_written(folder).name], "evaluation_interval": "1m", "tests": [case]})
    )
    done = promtool("test", "rules", tests)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("dollars", [None, PRICE])
def test_promtool_accepts_the_rules(tmp_path: Path, dollars: float | None) -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", _written(tmp_path, dollars))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_fires_on_a_healthy_node(tmp_path: Path) -> None:
    assert _tested(tmp_path, {}, {f"{minutes}m": [] for minutes in range(0, 120, 5)}) == ""


@pytest.mark.parametrize("case", CASES["alerts"], ids=lambda case: case["alert"])
def test_alert_fires_for_its_cause_and_no_other_does(tmp_path: Path, case: dict[str, Any]) -> None:
    assert _tested(tmp_path, case["change"], {case["not_yet"]: [], case["fires"]: [case]}) == ""


@pytest.mark.parametrize("change", CASES["quiet"], ids=lambda change: next(iter(change)))
def test_what_is_no_fault_fires_no_alert(tmp_path: Path, change: dict[str, str]) -> None:
    assert _tested(tmp_path, change, {f"{minutes}m": [] for minutes in range(0, 120, 5)}) == ""


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    case = CASES["alerts"][0]
    assert "RdmaRayGpuXid" in _tested(tmp_path, case["change"], {case["fires"]: []})


def test_every_alert_has_a_case_and_names_what_it_is_about() -> None:
    assert [case["alert"] for case in CASES["alerts"]] == list(ALERTS)
    for alert in ALERTS.values():
        assert alert.action.endswith((".", ")."))
        assert "`rdma-ray" in alert.action or "docs/" in alert.action or "node" in alert.action


def test_without_a_price_idle_gpus_are_counted() -> None:
    idle = {alert.name: alert for alert in alerts("ray", None)}["RdmaRayGpusIdle"]
    assert "dollars" not in idle.expr + idle.summary
    assert all("record" not in rule for group in groups("ray", None) for rule in group["rules"])


def test_xid_errors_of_applications_are_those_of_top() -> None:
    assert set(APPLICATION_XIDS) == gpu.APPLICATION_XIDS
