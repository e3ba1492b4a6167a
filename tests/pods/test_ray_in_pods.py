"""The gke stack's RayCluster with real Ray in real pods.

Real: API server, controllers, scheduler, kubelet, containerd, kube-proxy, CoreDNS, kubectl, KubeRay, Ray with its
autoscaler. Stand-ins: GPUs are numbers of the node without devices; gIB and the driver are a folder with a script;
the image is made of this environment; CPUs, memory and the idle time are scaled, as the run prints. The operator runs
beside the cluster and not in a pod.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.pods.jobs import ASK, GANG, PATIENT, running
from tests.pods.scene import Scene
from tests.pods.stack_on import NAMESPACE, StackOn, Timeline

WRONG = "wrong" * 9
IDLE_S = 180.0


def answer(port: int, token: str | None) -> int:
    """The status with which the dashboard answers a request for its version."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/version", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def empty(gke: StackOn) -> None:
    """Wait until the head stands alone."""
    gke.api.until("the head to be ready", gke.head, 180)
    gke.api.until("the idle workers to go", lambda: not gke.workers() or None, IDLE_S)


def test_a_gang_raises_the_workers_from_zero_and_they_go_again(gke: StackOn) -> None:
    """`ray job submit` through `kubectl port-forward` asks for a strict-spread group; Ray's own autoscaler v2 raises
    two workers through KubeRay, each on its own node, and takes them away when they are idle."""
    timeline = Timeline()
    gke.api.until("the head to be ready", gke.head, 180)
    timeline.done("head ready")
    assert gke.workers() == []
    with gke.forwarded() as port:
        printed = gke.ray(port, "job", "submit", "--", *running(GANG))
    timeline.done("job ended")
    [line] = [line for line in printed.splitlines() if line.startswith("ADDRESSES")]
    workers = {pod["status"]["podIP"]: pod["spec"]["nodeName"] for pod in gke.workers()}
    assert set(workers) == set(line.split("ADDRESSES")[1].split())
    assert set(workers.values()) == {gke.scene.nodes["gpu-0"], gke.scene.nodes["gpu-1"]}
    gke.api.until("the idle workers to go", lambda: not gke.workers() or None, IDLE_S)
    timeline.done("no worker any more")


def test_who_has_no_token_gets_no_answer(gke: StackOn) -> None:
    """From outside, by port-forward, and from another pod of the namespace, by the Service's name: 401 without the
    stack's token, or with another one. (The network policy would keep the pod out; nothing enforces it here.)"""
    empty(gke)
    with gke.forwarded() as port:
        assert answer(port, gke.token) == 200
        assert answer(port, None) == 401
        assert answer(port, WRONG) in (401, 403)
        assert gke.try_ray(port, "job", "list", token=WRONG).returncode != 0
    url = f"http://{gke.name}-head-svc.{NAMESPACE}.svc.cluster.local:8265/api/version"
    for name, token, expected in (("right", gke.token, {"200"}), ("wrong", WRONG, {"401", "403"})):
        pod = gke.run_pod(f"ask-{name}", [*running(ASK), url, token])
        [line] = [line for line in gke.log(pod).splitlines() if line.startswith("ANSWER")]
        assert line.split()[1] in expected


def test_a_user_sees_log_and_exit_code(gke: StackOn) -> None:
    """`ray job submit`, `ray job status` and `ray job logs` through the port-forward: a job that fails says so, by its
    status, its exit code in the message, and the exit status of the command that followed it."""
    empty(gke)
    with gke.forwarded() as port:
        code = "import sys; print('LAST WORDS'); sys.exit(7)"
        failed = gke.try_ray(port, "job", "submit", "--submission-id", "failing", "--", *running(code))
        assert failed.returncode != 0
        assert "LAST WORDS" in failed.stdout
        status = gke.ray(port, "job", "status", "failing")
        assert "Job 'failing' failed" in status
        assert "exit code 7" in status
        assert "LAST WORDS" in gke.ray(port, "job", "logs", "failing")
        good = gke.ray(port, "job", "submit", "--submission-id", "good", "--", *running("print('FINE')"))
        assert "FINE" in good


def test_the_benchmark_verifies_every_element_over_the_pods(gke: StackOn, tmp_path: Path) -> None:
    """`rdma-ray bench nccl` from a cluster without workers: it waits for the nodes that the autoscaler raises, measures
    with gloo between the pods, and every element is right."""
    empty(gke)
    timeline = Timeline()
    with gke.forwarded() as port:
        file = gke.outputs(port, tmp_path / "outputs.json")
        result = tmp_path / "result.json"
        command = [
            sys.executable,
            "-m",
            "workloads.cli",
            "bench",
            "nccl",
            "--outputs",
            str(file),
            "--json",
            str(result),
        ]
        command += ["--nodes", "2", "--per-node", "1", "--op", "all_reduce", "--end", "64K", "--iterations", "5"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    timeline.done("benchmark ended")
    found = json.loads(result.read_text())
    assert found["backend"] == "gloo"
    assert {pod["status"]["podIP"] for pod in gke.workers()} == {rank["ip"] for rank in found["ranks"]}
    assert found["rows"]
    assert all(row["wrong"] == 0 for row in found["rows"])


def test_a_restart_of_the_operator_leaves_a_job_alone(gke: StackOn, scene: Scene) -> None:
    """The operator's program is ended and started again while a job runs, as a rolling update of its Deployment does:
    no pod is made anew, and the job ends well."""
    if (plane := scene.plane) is None:
        pytest.skip("not run: the operator is the cluster's own")
    empty(gke)
    with gke.forwarded() as port:
        gke.submit(port, "through-restart", PATIENT, {"PATIENCE_S": "25"})
        gke.until_logged(port, "through-restart", "BEGUN")
        before = gke.identities()
        plane.stop_kuberay()
        plane.start_kuberay()
        assert gke.until_over(port, "through-restart") == "succeeded"
        # The worker may be idle, and gone, by now.
        assert gke.identities() <= before
        assert gke.ray(port, "job", "logs", "through-restart").count("BEGUN") == 1


def test_a_lost_worker_is_replaced_and_its_task_tried_again(gke: StackOn) -> None:
    """The worker's pod is deleted without grace while its task runs; the autoscaler raises another one, and the job
    ends well with the second try."""
    empty(gke)
    with gke.forwarded() as port:
        gke.submit(port, "loses-worker", PATIENT, {"PATIENCE_S": "20"})
        gke.until_logged(port, "loses-worker", "BEGUN")
        [lost] = gke.workers()
        gke.kill(lost)
        assert gke.until_over(port, "loses-worker", within_s=240) == "succeeded"
        assert {pod["metadata"]["name"] for pod in gke.workers()} != {lost["metadata"]["name"]}
        assert gke.ray(port, "job", "logs", "loses-worker").count("BEGUN") >= 2


def test_after_the_loss_of_the_head_the_cluster_serves_again(gke: StackOn) -> None:
    """The head's pod is deleted without grace: jobs and their state are gone, as nothing keeps them; the operator makes
    another head, with the same token, and a new job runs."""
    empty(gke)
    head = gke.head()
    assert head is not None
    gke.kill(head)
    name = head["metadata"]["name"]

    def another() -> bool | None:
        now = gke.head()
        return True if now is not None and now["metadata"]["uid"] != head["metadata"]["uid"] else None

    gke.api.until(f"another head than {name} to be ready", another, 240)
    with gke.forwarded() as port:
        assert answer(port, gke.token) == 200
        assert "FINE" in gke.ray(port, "job", "submit", "--", *running("print('FINE')"))
