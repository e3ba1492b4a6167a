"""Container of a worker pod that serves the counters of its node's RDMA NICs to Prometheus, as text on one port.

node_exporter's infiniband collector cannot do it: it ends with an error for an EFA device, which has no folder
`counters`, and reads `hw_counters` of mlx5 and irdma only (prometheus/procfs: sysfs/class_infiniband.go, 01309d20, read
2026-11-28). This program reads what the kernel has, without rights, and needs Python's library only.

Names of counters: Linux, Documentation/ABI/stable/sysfs-class-infiniband (port_xmit_data and port_rcv_data count units
of 4 bytes); EFA, drivers/infiniband/hw/efa/efa_verbs.c; read 2026-11.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SENT = {"port_xmit_data": 4, "tx_bytes": 1}
RECEIVED = {"port_rcv_data": 4, "rx_bytes": 1}
"""Bytes per unit of the counters of data: that of every NIC, and EFA's."""
HELP = {
    "rdma_ray_node_gpus": "gauge GPUs of the node, by the stack file.",
    "rdma_ray_node_end_timestamp_seconds": "gauge Unix time at which the cloud takes the node back.",
    "rdma_ray_nic_up": "gauge Whether the link of the port is ACTIVE.",
    "rdma_ray_nic_line_rate_bytes_per_second": "gauge Line rate in each direction, of the stack file or the kernel.",
    "rdma_ray_nic_sent_bytes_total": "counter Bytes sent.",
    "rdma_ray_nic_received_bytes_total": "counter Bytes received.",
    "rdma_ray_nic_counter_total": "counter Any other counter of the kernel, by its name there.",
}
"""Type and help of each metric. Labels: Hostname (the node, as dcgm-exporter names it), nic, counter."""


class Options(NamedTuple):
    """What the stack knows about the node.

    Attributes:
        node: Name of the Kubernetes node.
        gpus: GPUs of the node.
        gbps: Line rate of each NIC, Gbit/s; 0 for the kernel's.
        max_run_s: Seconds from its start after which the cloud takes the node back; 0 if it does not.
        root: Folder of the kernel's RDMA devices.
        stat: The kernel's file with the time at which the node started.
    """

    node: str
    gpus: int = 0
    gbps: float = 0
    max_run_s: int = 0
    root: Path = Path("/sys/class/infiniband")
    stat: Path = Path("/proc/stat")


def exposition(options: Options) -> str:
    """Return all metrics in Prometheus' text format. A value that cannot be read is left out."""
    lines = []
    samples = list(_samples(options))
    for name, described in HELP.items():
        kind, _, text = described.partition(" ")
        if of_name := [sample for sample in samples if sample[0] == name]:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{labels}}} {value}" for _, labels, value in of_name]
    return "".join(f"{line}\n" for line in lines)


def _samples(options: Options) -> Iterator[tuple[str, str, str]]:
    node = _label("Hostname", options.node)
    yield "rdma_ray_node_gpus", node, str(options.gpus)
    started = re.search(r"^btime (\d{1,12})$", _text(options.stat, 100_000), re.MULTILINE | re.ASCII)
    if options.max_run_s and started:
        yield "rdma_ray_node_end_timestamp_seconds", node, str(int(started[1]) + options.max_run_s)
    for port in [port for device in _entries(options.root) for port in _entries(device / "ports")]:
        device = port.parent.parent.name
        name = device if len(_entries(port.parent)) == 1 else f"{device}:{port.name}"
        yield from _port_samples(port, f"{node},{_label('nic', name)}", options.gbps)


def _port_samples(port: Path, labels: str, gbps: float) -> Iterator[tuple[str, str, str]]:
    state, rate = _text(port / "state"), re.match(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec", _text(port / "rate"), re.ASCII)
    if state:
        # The kernel writes `4: ACTIVE`.
        yield "rdma_ray_nic_up", labels, str(int(state.rpartition(":")[2].strip() == "ACTIVE"))
    if line_rate := gbps or (float(rate[1]) if rate else 0):
        yield "rdma_ray_nic_line_rate_bytes_per_second", labels, f"{line_rate * 1.25e8:.0f}"
    files = [file for folder in ("counters", "hw_counters") for file in _entries(port / folder)]
    # A counter that the NIC does not have reads `N/A (no PMA)`.
    values = {file.name: int(text) for file in files if re.fullmatch(r"\d{1,20}", text := _text(file), re.ASCII)}
    for name, units in (("rdma_ray_nic_sent_bytes_total", SENT), ("rdma_ray_nic_received_bytes_total", RECEIVED)):
        for counter in [counter for counter in units if counter in values][:1]:
            yield name, labels, str(values[counter] * units[counter])
    for counter, value in values.items():
        if counter not in SENT and counter not in RECEIVED:
            yield "rdma_ray_nic_counter_total", f"{labels},{_label('counter', counter)}", str(value)


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # no such folder: no NIC, or one that has just disappeared


def _text(file: Path, most: int = 200) -> str:
    """Return at most so many bytes of a file; empty if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(most).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def server(options: Options, port: int) -> ThreadingHTTPServer:
    """Return the server, bound to every address of the pod. It answers GET /metrics, and nothing else."""

    class Metrics(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            body = exposition(options).encode() if self.path == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no line for each request."""

    return ThreadingHTTPServer(("", port), Metrics)


def main() -> None:
    """Serve until the pod ends."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--node", required=True, help="name of the Kubernetes node")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of the node")
    parser.add_argument("--gbps", type=float, default=0, help="line rate of a NIC, Gbit/s; 0 for the kernel's")
    parser.add_argument("--max-run-s", type=int, default=0, help="seconds after which the cloud takes the node back")
    args = parser.parse_args()
    server(Options(args.node, args.gpus, args.gbps, args.max_run_s), args.port).serve_forever()


if __name__ == "__main__":
    main()
