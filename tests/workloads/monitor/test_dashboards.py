"""The dashboards: every query has data in a real Prometheus that reads a real Ray, the exporter and doubles of others.

The doubles are texts in `exporters/`: dcgm-exporter, Kueue and Ray's autoscaler, with names and labels from their
sources (`infra.monitoring.dashboards`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from infra.kubernetes.metrics_pod import Options, server
from infra.local.loopback import free_ports
from infra.monitoring import grafana
from infra.monitoring.alerts import groups
from infra.monitoring.dashboards import DASHBOARDS
from tests.clone import wait_until
from tests.prometheus import Prometheus, needed, running
from tests.workloads.nccl.test_evidence_counters import MLX5, written_nic

pytestmark = pytest.mark.ray

EXPORTERS = Path(__file__).with_name("exporters")
QUERIES = [
    pytest.param(query.expr, id=f"{board.uid}: {panel.title}: {query.legend}")
    for board in DASHBOARDS
    for panel in board.panels
    for query in panel.queries
]
RAY = """
import sys, time
import ray

# Numbers, not devices.
ray.init(num_cpus=4, num_gpus=8, include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=sys.argv[1],
         _metrics_export_port=int(sys.argv[2]))

@ray.remote(num_cpus=1, num_gpus=4)
class Holder:
    def ready(self): pass

@ray.remote(num_cpus=1)
def wait(): time.sleep(600)

holder, task = Holder.remote(), wait.remote()
group = ray.util.placement_group([{"CPU": 1}])
ray.get([holder.ready.remote(), group.ready()])
print("runs", flush=True)
sys.stdin.read()
"""


@contextmanager
def _ray(folder: Path, port: int) -> Iterator[None]:
    """Run Ray with eight GPUs, an actor with four of them, a task and a placement group."""
    # The paths of Ray's sockets have at most 107 characters.
    with (folder / "ray.log").open("wb") as log, TemporaryDirectory(dir="/tmp") as short:
        child = subprocess.Popen(
            [sys.executable, "-c", RAY, short, str(port)],
            env={**os.environ, "RAY_AUTH_MODE": "disabled"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            assert child.stdout.readline() == b"runs\n", (folder / "ray.log").read_text()
            yield
        finally:
            child.stdin.close()
            child.wait(60)


@contextmanager
def _served(at: ThreadingHTTPServer) -> Iterator[str]:
    threading.Thread(target=at.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{at.server_port}"
    finally:
        at.shutdown()
        at.server_close()


def _double(text: str) -> ThreadingHTTPServer:
    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Exporter)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with the rules of a stack, and everything healthy for it to read."""
    needed()
    folder = tmp_path_factory.mktemp("prometheus")
    sysfs = folder / "infiniband"
    for name in ("mlx5_0", "mlx5_1"):
        # Without the errors of the file, which every NIC has before its first packet.
        port = written_nic(sysfs, name, {**dict.fromkeys(MLX5, 0), "counters/port_xmit_data": 10**9})
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{**group, "interval": "1s"} for group in groups("ray", 10.6)]}))
    ray_port, own_port = free_ports(2)
    pods = {"namespace": "ray", "ray_io_cluster": "demo-ray"}
    targets = {f"127.0.0.1:{ray_port}": pods}
    with ExitStack() as stack:
        stack.enter_context(_ray(folder, ray_port))
        options = Options("node-1", gpus=8, max_run_s=604_800, root=sysfs)
        targets[stack.enter_context(_served(server(options, 0)))] = pods
        for file in sorted(EXPORTERS.glob("*.prom")):
            labels = pods if file.stem == "autoscaler" else {"namespace": f"{file.stem}-system"}
            targets[stack.enter_context(_served(_double(file.read_text())))] = labels
        running_one = stack.enter_context(running(folder, own_port, targets, [rules]))
        wait_until(lambda: len(running_one.query("up == 1")) == len(targets), lambda: running_one.query("up"), 60)
        yield running_one


def _filled(expr: str) -> str:
    """Return an expression with all values of each variable, as Grafana replaces them."""
    return re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", "10s"))


@pytest.mark.parametrize("expr", QUERIES)
def test_every_query_has_data(prometheus: Prometheus, expr: str) -> None:
    # A rate needs two readings, and Ray's metrics come after some seconds.
    found = wait_until(lambda: prometheus.query(_filled(expr)), expr, 60)
    assert all(float(series["value"][1]) >= 0 for series in found), found


def test_numbers_are_those_of_the_sources(prometheus: Prometheus) -> None:
    def number(title: str) -> float:
        [expr] = [
            query.expr
            for board in DASHBOARDS
            for panel in board.panels
            if panel.title == title
            for query in panel.queries
        ]
        [series] = wait_until(lambda: prometheus.query(_filled(expr)), expr, 60)
        return float(series["value"][1])

    assert number("GPUs") == 8
    assert number("Cost per hour") == pytest.approx(8 * 10.6)
    wait_until(lambda: number("Cost of idle GPUs per hour") == pytest.approx(4 * 10.6), timeout_s=60)
    assert number("Links up") == 2
    assert number("Links down") == 0


@pytest.mark.parametrize("variable", ["namespace", "cluster", "node"])
def test_variables_have_values(prometheus: Prometheus, variable: str) -> None:
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", grafana.VARIABLES[variable][1]).groups()  # type: ignore[union-attr]
    found = wait_until(lambda: prometheus.get(f"label/{label}/values", **{"match[]": metric}), metric, 60)
    assert found == {"namespace": ["ray"], "cluster": ["demo-ray"], "node": ["node-1"]}[variable]


def test_rules_are_healthy_and_nothing_fires(prometheus: Prometheus) -> None:
    def healthy() -> bool:
        return all(rule["health"] == "ok" for group in prometheus.get("rules")["groups"] for rule in group["rules"])

    def active() -> list[tuple[str, str]]:
        return [(alert["labels"]["alertname"], alert["state"]) for alert in prometheus.get("alerts")["alerts"]]

    wait_until(healthy, timeout_s=60)
    # Four GPUs are idle: the alert waits for half an hour. Without them it would see no GPU at all.
    wait_until(lambda: active() == [("RdmaRayGpusIdle", "pending")], active, 60)
