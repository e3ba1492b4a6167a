"""Init container of a Ray worker that keeps it off a bad node: GPUs, RDMA NICs, driver and, if asked, a reduction.

It ends when the node is healthy, and checks again until then. It never fails: the worker of a cluster with an
autoscaler has the restart policy Never, so KubeRay would replace the pod at once, again and again (seen with 1.6.2,
2026-11-28). The reasons are an event of the pod, which `rdma-ray doctor` and `status` read, and one of the node. Of a
healthy node, the termination message has the driver's version, with which later workers compare theirs. What cannot be
read is no failure, and the message says why.

Sources: NVIDIA/go-nvml, gen/nvml/nvml.h of CUDA 13.3; Linux, Documentation/ABI/stable/sysfs-class-infiniband and
testing/sysfs-bus-pci; NCCL docs, environment variables (NCCL_P2P_DISABLE, NCCL_SHM_DISABLE); read Nov 2026.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

BINDINGS = "ray._private.thirdparty.pynvml"
LONGEST = 1000
"""Characters of a message: the API server accepts 1024 bytes of an event's (kubernetes: pkg/apis/core/validation)."""
API_S, AGAIN_S = 5.0, 30.0
CONFLICT = 409
"""Status of HTTP for an object that exists."""
REDUCE_S, REDUCTION_S = 2.0, 120.0
"""Seconds of the reduction itself, and with the import of torch and the start of NCCL (this project's choice)."""
ELEMENTS = 2**22
CPU_RANKS = 2


def gpus(nvml: Any, wanted: int) -> Iterator[str]:
    """Yield what is wrong with the GPUs of this node, of which there should be `wanted`."""
    count = nvml.nvmlDeviceGetCount()
    if count < wanted:
        yield f"{count} of {wanted} GPUs"
    for index in range(count):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(gpu)
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                yield f"GPU {index} does not answer: {error}"
            continue
        if failed:
            yield f"GPU {index}: a remapping of its memory's rows has failed"
        if pending:
            yield f"GPU {index}: a remapped row of its memory waits for a reset"
        if errors:
            yield f"GPU {index}: {errors} uncorrected memory errors"


def nics(root: Path, wanted: int, *, all_up: bool, gbps: int | None) -> Iterator[str]:
    """Yield what is wrong with the RDMA NICs under `root`, of which there should be `wanted`.

    Args:
        all_up: Whether each of them is in use; otherwise `wanted` of them are.
        gbps: Gbit/s of a port by the kernel; None where that is not its line rate.
    """
    ports = sorted(root.glob("*/ports/*"))
    devices = {port.parent.parent.name for port in ports}
    if len(devices) < wanted:
        yield f"{len(devices)} of {wanted} RDMA NICs"
    states = {port: _text(port / "state").rpartition(":")[2].strip() for port in ports}  # the kernel: `4: ACTIVE`
    down = [port for port, state in states.items() if state not in ("", "ACTIVE")]
    if all_up or len(ports) - len(down) < wanted:
        yield from (f"{port.parent.parent.name} is {states[port]}" for port in down)
    for port in ports:
        rate = re.match(r"(\d+)", _text(port / "rate"))
        if gbps and rate and port not in down and int(rate[1]) < gbps:
            yield f"{port.parent.parent.name} runs at {rate[1]} of {gbps} Gbit/s"
    for name in sorted(devices):
        now, most = (_text(root / name / "device" / f"{which}_link_width") for which in ("current", "max"))
        # A virtual function has none of its own: 0.
        if now.isdecimal() and most.isdecimal() and 0 < int(now) < int(most) <= 32:
            yield f"{name} has {now} of {most} PCIe lanes"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()[:100]
    except OSError:
        return ""


def ask(account: Path, path: str, body: object = None) -> Any:
    """Return the API server's answer to a GET, or to a POST of `body`. OSError if there is none.

    Args:
        account: Folder with the account's `token` and `ca.crt`.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    token = (account / "token").read_text(encoding="utf-8").strip()
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}{path}"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    with urllib.request.urlopen(request, timeout=API_S, context=context) as answer:
        return json.load(answer)


def drivers(args: argparse.Namespace) -> dict[str, str]:
    """Return the driver's version of each other node with a live worker, by the message of its check."""
    path = f"/api/v1/namespaces/{args.namespace}/pods?labelSelector={quote(args.workers, safe='')}"
    found = {}
    for pod in ask(args.account, path)["items"]:
        on, status = pod["spec"].get("nodeName"), pod.get("status") or {}
        if on in (None, args.node) or status.get("phase") in ("Succeeded", "Failed"):
            continue
        for each in status.get("initContainerStatuses") or []:
            ended = (each.get("state") or {}).get("terminated") or {}
            version = re.match(r"driver ([\d.]{1,20})", str(ended.get("message")))
            if each.get("name") == args.container and ended.get("exitCode") == 0 and version:
                found[on] = version[1]
    return found


def other_driver(version: str, others: dict[str, str]) -> Iterator[str]:
    """Yield that most other nodes have another version of the driver."""
    if others and version not in others.values():
        [(usual, count)] = Counter(others.values()).most_common(1)
        yield f"driver {version}, and {usual} on {count} of {len(others)} other nodes"


def report(args: argparse.Namespace, message: str) -> None:
    """Write a warning about the pod, and one about its node if that is allowed, as events: once, while they are kept.

    OSError if one is refused.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    about = [("Pod", args.pod, args.uid, args.namespace)]
    # `kubectl describe node` looks for the node's name as the uid (k8s.io/kubectl: pkg/describe, NodeDescriber).
    about += [("Node", args.node, args.node, args.node_events)] if args.node_events else []
    name = f"{args.pod}.{hashlib.sha256(message.encode()).hexdigest()[:16]}"
    for kind, of, uid, namespace in about:
        named = {"namespace": namespace} if kind == "Pod" else {}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": kind, "name": of, "uid": uid, **named},
            "reason": args.reason,
            "message": message,
            "type": "Warning",
            "source": {"component": "rdma-ray", "host": args.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            ask(args.account, f"/api/v1/namespaces/{namespace}/events", event)
        except urllib.error.HTTPError as error:
            if error.code != CONFLICT:
                raise


def reduction(ranks: int, use_gpu: bool) -> str | None:
    """Return what is wrong with an all-reduce of this node's GPUs over its NICs, or of CPU processes; None if nothing.

    Without P2P and shared memory, NCCL sends between the GPUs of a node over the network.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    over_nics = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"} if use_gpu else {"GLOO_SOCKET_IFNAME": "lo"}
    common = {**os.environ, **over_nics, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    this = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    with ExitStack() as started:
        processes, files = [], []
        for rank in range(ranks):
            files.append(started.enter_context(tempfile.TemporaryFile()))
            variables = {**common, "RANK": str(rank)}
            words = [*this, "reduce", "nccl" if use_gpu else "gloo"]
            process = subprocess.Popen(words, env=variables, stdout=files[-1], stderr=subprocess.STDOUT)
            processes.append(started.enter_context(process))
            started.callback(process.kill)
        deadline = time.monotonic() + REDUCTION_S
        while (codes := [process.poll() for process in processes]) != [0] * ranks:
            # The others wait for the rank that has failed.
            failed = next((rank for rank, code in enumerate(codes) if code), None)
            if failed is not None:
                files[failed].seek(0)
                lines = files[failed].read().decode(errors="replace").strip().splitlines()
                return f"reduction: rank {failed}: {(lines or ['no output'])[-1][:200]}"
            if time.monotonic() > deadline:
                return f"reduction: no end within {REDUCTION_S:.0f} s"
            time.sleep(0.05)
    return None


def reduce(backend: str) -> None:
    """Reduce for two seconds as one rank, and check every element. SystemExit if one is wrong."""
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    dist.init_process_group(backend)
    values, began, step = torch.empty(ELEMENTS + 1, device=device), time.monotonic(), 0
    while True:
        values[:-1] = rank + step
        values[-1] = float(rank == 0 and time.monotonic() - began > REDUCE_S)  # all ranks stop in the same step
        dist.all_reduce(values)
        wrong = int((values[:-1] != world * (world - 1) // 2 + world * step).sum())
        if wrong:
            sys.exit(f"{wrong} of {ELEMENTS} elements are wrong in step {step}")
        if values[-1]:
            break
        step = (step + 1) % 1000  # sums stay exact in float32
    dist.destroy_process_group()


def check(args: argparse.Namespace, bindings: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """Return what is wrong with this node, and what was found about it or not checked."""
    wrong: list[str] = []
    found: list[str] = []
    if args.gpus:
        try:
            nvml = bindings()
        except ImportError as error:
            found.append(f"GPUs not checked: {error}")
        else:
            try:
                nvml.nvmlInit()
                version = str(nvml.nvmlSystemGetDriverVersion())
                found.append(f"driver {version}")  # the first words: `drivers` reads them
                wrong += gpus(nvml, args.gpus)
                wrong += other_driver(version, drivers(args))
                nvml.nvmlShutdown()  # a GPU that is in use cannot be reset
            except nvml.NVMLError as error:
                wrong.append(f"the GPU driver does not answer: {error}")
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                found.append(f"driver not compared: {error}")
    if args.nics:
        wrong += nics(args.infiniband, args.nics, all_up=args.all_up, gbps=args.gbps)
    if args.reduce and not wrong:
        if importlib.util.find_spec("torch") is None:
            found.append("reduction not checked: the image has no torch")
        else:
            began, problem = time.monotonic(), reduction(args.gpus or CPU_RANKS, bool(args.gpus))
            wrong += [problem] if problem else []
            found.append(f"reduction in {time.monotonic() - began:.1f} s")
    return wrong, found


def main(
    bindings: Callable[[], Any] = lambda: importlib.import_module(BINDINGS),
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Check this node until it is healthy."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--account", type=Path, required=True, help="folder with `token` and `ca.crt`")
    parser.add_argument("--message", type=Path, required=True, help="the container's termination message")
    for name in ("--namespace", "--node", "--pod", "--uid", "--container", "--reason"):
        parser.add_argument(name, required=True)
    parser.add_argument("--workers", required=True, help="label selector of the workers on such nodes")
    for name in ("--gpus", "--nics"):
        parser.add_argument(name, type=int, default=0, help="how many the node should have; 0: not checked")
    parser.add_argument("--infiniband", type=Path, default=Path("/sys/class/infiniband"))
    parser.add_argument("--gbps", type=int, help="Gbit/s of a NIC's port")
    parser.add_argument("--all-up", action="store_true", help="every NIC must be up")
    parser.add_argument("--node-events", help="namespace of events about nodes; without it, none is written")
    parser.add_argument("--reduce", action="store_true", help="also run a reduction over the NICs")
    args = parser.parse_args()
    while True:
        wrong, found = check(args, bindings)
        message = "; ".join(wrong or found or ["nothing to check"])[:LONGEST]
        print(message, flush=True)
        if not wrong:
            args.message.write_text(message, encoding="utf-8")
            return
        try:
            report(args, message)
        except OSError as error:
            print(f"not reported: {error}", flush=True)
        sleep(AGAIN_S)


if __name__ == "__main__":
    if sys.argv[1:2] == ["reduce"]:
        reduce(sys.argv[2])
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # process 1 has no default action
        main()
