"""The gke stack's RayCluster with real Ray in real pods.

Real: API server, controllers, scheduler, kubelet, containerd, kube-proxy, CoreDNS, kubectl, KubeRay, Ray with its
autoscaler. Simulated: GPUs are counts of the node without devices; gIB and the driver are a folder with a script; the
bucket is a folder of this machine; the image is built from this environment; CPUs, memory and the idle time are scaled,
as the run prints. The operator runs in a pod, with its chart's account and roles; its image contains only the program.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from infra.catalog.names import DASHBOARD_PORT, NAMESPACE
from infra.kubernetes.pods import NOTICE_S
from infra.kubernetes.ray_cluster import STOP_S
from tests.kubernetes.queries import is_ready
from tests.pods.deployed_stack import RAY, RDMA_RAY, DeployedStack, answer, following, user
from tests.pods.jobs import ASK, COUNTING, GANG, HELD, NOTIFIED, TRIES, WAITING, running
from tests.pods.pod_cluster import PodCluster, leads, operator
from tests.terminal import Terminal
from tools.kubernetes import kubectl
from tools.kubernetes.api import Json
from workloads.train.timeline import PHASES

WRONG = "wrong" * 9
HEAD_S, IDLE_S = 300.0, 240.0
"""Deadlines in seconds, for a machine with ten times the load."""


def head_of(gke: DeployedStack) -> Json:
    """Return the head's pod, once it is ready."""
    return gke.api.until("the head to be ready", gke.head, HEAD_S)


def empty(gke: DeployedStack) -> None:
    """Wait until only the head is left."""
    head_of(gke)
    gke.api.until("the idle workers to go", lambda: not gke.workers() or None, IDLE_S)


def test_benchmark_scales_workers_from_zero_and_back(gke: DeployedStack, tmp_path: Path) -> None:
    """`rdma-ray bench nccl` through its own port-forward requests a strict-spread group; Ray's own autoscaler v2 scales
    up two workers through KubeRay, each on its own node; it measures with gloo between these pods, and every element is
    correct; idle workers are removed."""
    empty(gke)
    file, result = gke.outputs(tmp_path / "outputs.json"), tmp_path / "result.json"
    few = ["--nodes", "2", "--per-node", "1", "--op", "all_reduce", "--end", "64K", "--iterations", "5"]
    gke.rdma_ray(file, "bench", "nccl", "--json", str(result), *few)
    found = json.loads(result.read_text())
    assert found["backend"] == "gloo"
    assert gke.nodes_at({rank["ip"] for rank in found["ranks"]}) == gke.gpu_nodes()
    assert found["rows"]
    assert all(row["wrong"] == 0 for row in found["rows"])
    gke.api.until("the idle workers to go", lambda: not gke.workers() or None, IDLE_S)


def test_ranks_have_variables_secrets_and_volumes_of_the_stack(gke: DeployedStack, tmp_path: Path) -> None:
    """`rdma-ray run` on two nodes: each rank has what ray.env, ray.secrets and ray.volumes name, and may write to the
    volume."""
    head_of(gke)
    volume = "open(f'/datasets/{os.environ[\"RANK\"]}', 'w').close(); print('SIZE', open('/datasets/size').read()); "
    code = (
        "import os; print('SEEN', os.environ['GREETING'], len(os.environ['HF_TOKEN']), "
        "len(open('/secrets/files/key.json').read())); " + (volume if gke.pod_cluster.sees else "")
    )
    file = gke.outputs(tmp_path / "outputs.json")
    (tmp_path / "empty").mkdir()
    options = ["--all", "--nodes", "2", "--per-node", "1", "--working-dir", str(tmp_path / "empty")]
    said = gke.rdma_ray(file, "run", *options, "--", "python", "-c", code)
    assert said.count("SEEN hello 10 10") == 2, said
    assert "secret-" not in said
    assert said.count("SIZE three") == (2 if gke.pod_cluster.sees else 0), said


def test_shell_and_forward_in_pods(gke: DeployedStack, tmp_path: Path) -> None:
    """By kubectl through API server and kubelet: a command in the head and in a rank's pod with its exit code, a shell
    on a terminal there, and a port that listens on the loopback of that pod."""
    head = head_of(gke)
    file = gke.outputs(tmp_path / "outputs.json")
    name = gke.rdma_ray(file, "shell", "--", "hostname")
    assert name.strip() == head["metadata"]["name"]
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "served").touch()
    serve = ["python", "-m", "http.server", "--bind", "127.0.0.1", "28611"]
    gang = ["--nodes", "2", "--per-node", "1", "--working-dir", str(tmp_path / "page"), "--detach"]
    job = gke.rdma_ray(file, "run", "--request-id", "page", *gang, "--", *serve).strip().splitlines()[-1]
    ask = [str(RDMA_RAY), "shell", "rank:1", "--", "sh", "-c"]

    def inside(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*ask, code], env=user(file), capture_output=True, text=True, timeout=120)

    gke.api.until("rank 1 to run", lambda: inside("exit 7").returncode == 7 or None, 600)
    said = inside("echo $RANK of $WORLD_SIZE; ls; hostname; tr '\\0' ' ' </proc/$RANK_PID/cmdline")
    rank, listed, where, command = said.stdout.splitlines()
    assert (rank, listed, command.split()[:3]) == ("1 of 2", "served", ["python", "-m", "http.server"])
    assert where in {pod["metadata"]["name"] for pod in gke.workers()}
    terminal = Terminal([str(RDMA_RAY), "shell", where], tmp_path, user(file))
    terminal.type("echo I am on $(hostname); exit 5\n")
    terminal.expect(f"I am on {where}")
    assert terminal.code() == 5
    with subprocess.Popen(
        [str(RDMA_RAY), "forward", "28611", "rank:1"], env=user(file), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        with urllib.request.urlopen(process.stdout.readline().strip(), timeout=60) as page:
            assert b"served" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    gke.rdma_ray(file, "stop", job)


def test_request_without_token_is_unauthorized(gke: DeployedStack) -> None:
    """From outside, by port-forward, and from another pod of the namespace, by the Service's name: 401 without the
    stack's token, or with another one. (The network policy would block the pod; nothing enforces it here.)"""
    head_of(gke)
    with gke.forwarded() as port:
        assert answer(port, gke.token) == 200
        assert answer(port, None) == 401
        assert answer(port, WRONG) in (401, 403)
        assert gke.ray(port, "job", "list", token=WRONG).returncode != 0
    url = f"http://{gke.name}-head-svc.{NAMESPACE}.svc.cluster.local:8265/api/version"
    log = gke.run([*running(ASK), url, gke.token, "", WRONG])
    right, none, wrong = [line.split()[1] for line in log.splitlines() if line.startswith("ANSWER")]
    assert (right, none) == ("200", "401")
    assert wrong in ("401", "403")


def test_a_user_sees_log_and_exit_code(gke: DeployedStack, tmp_path: Path) -> None:
    """`ray job submit` through the port-forward shows the log while the job runs; Ctrl-C ends the command and not the
    job; `rdma-ray logs` follows it from the first line and exits with the job's own exit code; `ray job status` and
    `ray job submit` report a failed job, too."""
    head = head_of(gke)
    with gke.forwarded() as port:
        jobs, file = gke.jobs(port), gke.outputs(tmp_path / "outputs.json")
        submit = [str(RAY), "job", "submit", "--submission-id", "waiting", "--", *running(WAITING)]
        log = tmp_path / "submit.log"
        with following(submit, gke.environment(port), log) as first:
            gke.api.until("its first words", lambda: "FIRST WORDS" in log.read_text(), 180)
            assert jobs.job("waiting").status == "RUNNING"
            first.send_signal(signal.SIGINT)
            assert first.wait(60) != 0
        assert jobs.job("waiting").status == "RUNNING"
        with following([str(RDMA_RAY), "logs", "waiting"], user(file), log) as second:
            gke.api.until("its first words again", lambda: "FIRST WORDS" in log.read_text(), 180)
            assert "LAST WORDS" not in log.read_text()
            gke.execute(head, "touch", "/tmp/end")
            assert second.wait(180) == 7
            assert "LAST WORDS" in log.read_text()
        status = gke.ray(port, "job", "status", "waiting").stdout
        assert "Job 'waiting' failed" in status
        assert "exit code 7" in status
        failed = gke.ray(port, "job", "submit", "--", *running("import sys; print('AT ONCE'); sys.exit(3)"))
        assert failed.returncode != 0
        assert "AT ONCE" in failed.stdout


def test_log_is_whole_when_the_port_forward_drops(gke: DeployedStack, tmp_path: Path) -> None:
    """`rdma-ray logs` with nothing but the stack's outputs; its kubectl is killed ten times while the job prints."""
    head = head_of(gke)
    with gke.forwarded() as port:
        gke.submit(port, "counting", COUNTING, {})
        gke.until_logged(port, "counting", "LINE")
    log, killed = tmp_path / "log", set[int]()
    with following([str(RDMA_RAY), "logs", "counting"], user(gke.outputs(tmp_path / "outputs.json")), log) as follower:

        def kill() -> bool:
            assert follower.poll() is None, log.read_text()[-500:]
            for child in psutil.Process(follower.pid).children(recursive=True):
                if child.pid not in killed and serves(child):
                    child.kill()
                    killed.add(child.pid)
            return len(killed) == 10

        gke.api.until("ten drops", kill, 240)
        gke.execute(head, "touch", "/tmp/counted")
        assert follower.wait(120) == 7
    *lines, last = re.findall(r"^(?:LINE|LAST) (\d+)$", log.read_text(), re.MULTILINE)
    assert lines == [str(number) for number in range(int(last) + 1)]


def serves(process: psutil.Process) -> bool:
    """Return whether it is a port-forward of `rdma-ray` with a connection; one that ends earlier is an error."""
    with contextlib.suppress(psutil.Error, FileNotFoundError):
        for word in process.cmdline()[1:] if process.name() == "kubectl" else ():
            if word.startswith("--kubeconfig="):
                said = Path(word.partition("=")[2]).with_name(f"port-forward-{DASHBOARD_PORT}.log")
                return "Handling connection" in said.read_text()
    return False


def test_training_reports_time_to_first_step(gke: DeployedStack, tmp_path: Path) -> None:
    """The steps of docs/gke.md after `up`: `rdma-ray status` and `rdma-ray train digits`, from zero workers and for one
    epoch; and those of docs/training.md: `kubectl get` and `rdma-ray train report`, which splits the time to the first
    step by Kubernetes' records. A folder replaces the bucket."""
    gke.pod_cluster.shares()
    empty(gke)
    file = gke.outputs(tmp_path / "outputs.json", storage={"path": "/bucket"})
    assert "2.60" in gke.rdma_ray(file, "status")
    result = tmp_path / "result.json"
    short = ["--workers", "2", "--epochs", "1", "--min-accuracy", "0.3"]
    gke.rdma_ray(file, "train", "digits", "--json", str(result), *short)
    # A short training may end before the kubelet asks whether its pods are ready.
    gke.api.until("the workers to be ready", lambda: all(map(is_ready, gke.workers())), 60)
    report = ["train", "report", str(result), "--out", str(tmp_path)]
    for kind, *which in (("pods", "-l", "ray.io/node-type=worker"), ("events",), ("nodes",)):
        command = gke.kubectl("get", kind, *which, "-o", "json")
        (tmp_path / f"{kind}.json").write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
        report += ["--objects", str(tmp_path / f"{kind}.json")]
    print(gke.rdma_ray(file, *report))
    timeline = json.loads(result.read_text())["timeline"]
    assert timeline["unknown"] == {}
    assert [phase["name"] for phase in timeline["phases"]] == list(PHASES)
    sources = {phase["name"]: phase["source"] for phase in timeline["phases"]}
    workers = {pod["metadata"]["name"] for pod in gke.workers()}
    assert sources["pod ready"].split()[1] in workers
    assert sources["image pulled"].split()[1] in workers


def test_lost_worker_is_replaced_and_task_retried(gke: DeployedStack) -> None:
    """The worker's pod is deleted without a grace period while its task runs; the autoscaler scales up another one if
    none is free, and the job succeeds on the second try, on another pod."""
    head_of(gke)
    with gke.forwarded() as port:
        gke.submit(port, "loses-worker", TRIES, {"RAY_DEDUP_LOGS": "0"})
        log = gke.until_logged(port, "loses-worker", "TRY 1")
        address = tried(log)[0]
        [lost] = [pod for pod in gke.workers() if pod["status"].get("podIP") == address]
        gke.kill(lost)
        log = gke.until_succeeded(port, "loses-worker")
    assert "ENDED 2" in log
    now = {pod["status"].get("podIP"): pod["metadata"]["uid"] for pod in gke.workers()}
    assert now[tried(log)[1]] != lost["metadata"]["uid"]


def test_deleted_worker_gets_time_for_a_checkpoint(gke: DeployedStack) -> None:
    """A worker's pod is deleted, as when its node shuts down: `ray start` gets SIGTERM, the job sees the deadline, its
    actor works on, and the pod ends soon after the job instead of at the deadline."""
    head_of(gke)
    with gke.forwarded() as port:
        gke.submit(port, "notified", NOTIFIED, {})
        [address] = re.findall(r"BEGUN (\S+)", gke.until_logged(port, "notified", "BEGUN"))
        [busy] = [pod for pod in gke.workers() if pod["status"].get("podIP") == address]
        gke.api.delete("v1", "Pod", busy["metadata"]["name"], NAMESPACE)
        log = gke.until_succeeded(port, "notified", within_s=120)
    [left] = re.findall(r"SECONDS (\d+)", log)
    assert NOTICE_S - STOP_S - 15 < int(left) <= NOTICE_S - STOP_S  # the default of Ray is 30 s
    assert "WRITTEN" in log
    began = time.monotonic()
    gke.api.until("the worker's pod to end", lambda: busy["metadata"]["uid"] not in gke.identities(), 120)
    print(f"after the job, the worker's pod ended within {time.monotonic() - began:.1f} s")


def tried(log: str) -> list[str]:
    """Return the addresses at which the task of TRIES was tried, in order."""
    return re.findall(r"TRY \d+ (\S+)", log)


def test_operator_restart_keeps_job(gke: DeployedStack, pod_cluster: PodCluster) -> None:
    """A rolling restart of the operator's Deployment, as `kubectl rollout restart` starts it, while an actor holds a
    whole GPU node: a new operator pod becomes the leader, no Ray pod is recreated, and the actor is the same as before.
    """
    if (found := operator(pod_cluster.api)) is None:
        pytest.skip("not run: no Deployment of KubeRay's operator is to be seen in this cluster")
    head = head_of(gke)
    with gke.forwarded() as port:
        gke.submit(port, "through-restart", HELD, {})
        gke.until_logged(port, "through-restart", "BEGUN")
        before = gke.identities()
        old = {pod["metadata"]["name"] for pod in kubectl.pods(pod_cluster.api, *found)}
        subprocess.run(
            gke.kubectl("rollout", "restart", f"--namespace={found[0]}", f"deployment/{found[1]}"), check=True
        )
        kubectl.rollout_done(pod_cluster.api, *found, within_s=180)
        [new] = {pod["metadata"]["name"] for pod in kubectl.pods(pod_cluster.api, *found)} - old
        pod_cluster.api.until("the new operator to lead", lambda: leads(pod_cluster.api, found[0], new), 120)
        gke.execute(head, "touch", "/tmp/continue")
        gke.until_succeeded(port, "through-restart", within_s=240)
        # The idle worker may be removed by now.
        assert gke.identities() <= before


def test_cluster_recovers_from_lost_head(gke: DeployedStack) -> None:
    """The head's pod is deleted without a grace period while a job runs on a worker: jobs and their state are lost,
    since nothing stores them; the operator creates another head, with the same token, and a gang gets its nodes from
    it."""
    head = head_of(gke)
    with gke.forwarded() as port:
        gke.submit(port, "loses-head", TRIES, {"RAY_DEDUP_LOGS": "0"})
        gke.until_logged(port, "loses-head", "TRY 1")
    gke.kill(head)
    gke.until_another_head(head, HEAD_S)
    with gke.forwarded() as port:
        assert answer(port, gke.token) == 200
        assert gke.jobs(port).jobs() == []
        gke.submit(port, "after", GANG, {})
        gke.until_succeeded(port, "after")
