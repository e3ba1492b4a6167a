"""The exporter of a worker pod: what it reads of the kernel's files, as `top` reads them, and what it answers."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from infra.kubernetes import metrics_pod
from infra.kubernetes.metrics_pod import Options, exposition, server
from infra.local.loopback import free_ports
from infra.monitoring.dashboards import CONGESTION_COUNTERS, ERROR_COUNTERS, NO_ERRORS
from tests.workloads.nccl.test_evidence_counters import EFA, MLX5, written_nic
from workloads.hardware import nic

SAMPLE = re.compile(r'^(\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (-?[\d.e+]+)$')


def _values(options: Options) -> dict[str, str]:
    """Return the value of each series; every other line must be a comment."""
    lines = exposition(options).splitlines()
    found = [match for line in lines if not line.startswith("#") for match in [SAMPLE.match(line)]]
    assert None not in found
    return {f"{match[1]}{{{match[2]}}}": match[3] for match in found if match}


def test_roce_counts_units_of_four_bytes_and_names_the_other_counters(tmp_path: Path) -> None:
    port = written_nic(tmp_path, "mlx5_0", MLX5)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "counters/symbol_error").write_text("N/A (no PMA)\n")
    labels = 'Hostname="node-1",nic="mlx5_0"'
    counters = {name.partition("/")[2]: value for name, value in MLX5.items() if "_data" not in name}
    assert _values(Options("node-1", gpus=8, root=tmp_path)) == {
        'rdma_ray_node_gpus{Hostname="node-1"}': "8",
        f"rdma_ray_nic_up{{{labels}}}": "1",
        f"rdma_ray_nic_line_rate_bytes_per_second{{{labels}}}": "50000000000",
        f"rdma_ray_nic_sent_bytes_total{{{labels}}}": "4000",
        f"rdma_ray_nic_received_bytes_total{{{labels}}}": "8000",
        **{f'rdma_ray_nic_counter_total{{{labels},counter="{name}"}}': str(count) for name, count in counters.items()},
    }


def test_efa_counts_bytes_has_no_folder_counters_and_the_stack_knows_its_line_rate(tmp_path: Path) -> None:
    port = written_nic(tmp_path, "rdmap16s27", EFA)
    (port / "state").write_text("1: DOWN\n")
    (port / "rate").write_text("100 Gb/sec (4X EDR)\n")
    found = _values(Options("node-1", gbps=200, root=tmp_path))
    labels = 'Hostname="node-1",nic="rdmap16s27"'
    assert found[f"rdma_ray_nic_sent_bytes_total{{{labels}}}"] == "10000"
    assert found[f"rdma_ray_nic_line_rate_bytes_per_second{{{labels}}}"] == "25000000000"
    assert found[f"rdma_ray_nic_up{{{labels}}}"] == "0"


def test_ports_are_named_and_counted_as_in_top(tmp_path: Path) -> None:
    for device, values in (("mlx5_0", MLX5), ("mlx5_1", MLX5), ("rdmap16s27", EFA)):
        written_nic(tmp_path, device, values)
    written_nic(tmp_path, "mlx5_1", MLX5, port=2)
    sent = {key: value for key, value in _values(Options("n", root=tmp_path)).items() if "_sent_" in key}
    reading = nic.read_counters(tmp_path)
    assert reading is not None
    zero = {name: dict.fromkeys(values, 0) for name, values in reading.items()}
    assert sent == {
        f'rdma_ray_nic_sent_bytes_total{{Hostname="n",nic="{one.nic}"}}': str(one.sent)
        for one in nic.difference(zero, reading)[0]
    }
    assert (metrics_pod.SENT, metrics_pod.RECEIVED) == (nic.SENT, nic.RECEIVED)


def test_end_of_a_node_counts_from_its_start(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3\nintr 5\nbtime 1795892400\nprocesses 9\n")
    options = Options("node-1", max_run_s=86_400, root=tmp_path / "none", stat=stat)
    assert _values(options)['rdma_ray_node_end_timestamp_seconds{Hostname="node-1"}'] == "1795978800"
    # Of this machine: the kernel's file is what the program takes it for.
    started = Options("node-1", max_run_s=1, root=tmp_path)
    assert 0 < float(_values(started)['rdma_ray_node_end_timestamp_seconds{Hostname="node-1"}']) < time.time()
    assert "_end_" not in exposition(Options("node-1", root=tmp_path))


def test_unreadable_and_hostile_files_are_left_out(tmp_path: Path) -> None:
    port = written_nic(tmp_path, 'mlx"5\\0\n', {"counters/link_downed": 1})
    (port / "counters/port_xmit_data").write_bytes(b"\xff" * 300)
    (port / "counters/port_rcv_data").write_text("-5\n")
    (port / "counters/huge").write_text("9" * 21)
    (port / "counters/folder").mkdir()
    (port / "rate").write_text("many\n")
    assert _values(Options('n"1', root=tmp_path)) == {
        'rdma_ray_node_gpus{Hostname="n\\"1"}': "0",
        'rdma_ray_nic_counter_total{Hostname="n\\"1",nic="mlx\\"5\\\\0\\n",counter="link_downed"}': "1",
    }


def test_patterns_of_the_dashboards_are_the_errors_and_marks_of_top() -> None:
    known = {*nic.ERRORS, *nic.CONGESTION, *nic.DETAILS, *nic.SENT, *nic.RECEIVED, "lifespan", "send_wrs", "rx_pkts"}
    flushed = {"req_cqe_flush_error", "resp_cqe_flush_error"}
    errors = {name for name in known | flushed if re.fullmatch(ERROR_COUNTERS, name)}
    assert {name for name in errors if not re.fullmatch(NO_ERRORS, name)} == nic.ERRORS
    assert {name for name in known if re.fullmatch(CONGESTION_COUNTERS, name)} == nic.CONGESTION


def test_server_answers_metrics_and_nothing_else(tmp_path: Path) -> None:
    serving = server(Options("node-1", root=tmp_path), 0)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    try:
        with urlopen(f"http://127.0.0.1:{serving.server_port}/metrics", timeout=10) as answer:
            assert answer.read().decode() == exposition(Options("node-1", root=tmp_path))
            assert answer.headers["Content-Type"] == metrics_pod.CONTENT_TYPE
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{serving.server_port}/etc/passwd", timeout=10)
    finally:
        serving.shutdown()
        serving.server_close()


def test_program_runs_as_text_with_python_alone(tmp_path: Path) -> None:
    """As the pod runs it: `python3 -c TEXT ARGUMENTS`, in an image without this project."""
    (port,) = free_ports(1)
    text = Path(metrics_pod.__file__).read_text()
    command = [sys.executable, "-I", "-S", "-c", text, f"--port={port}", "--node=node-7", "--gpus=8", "--gbps=400"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    assert b'rdma_ray_node_gpus{Hostname="node-7"} 8\n' in answer.read()
                return
            except OSError:
                assert child.poll() is None, child.stderr and child.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        child.terminate()
        child.wait(10)
