"""The port-forward of a command: followed when it restarts, ended with the command, and explained when it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.catalog.names import DASHBOARD_PORT, SERVE_PORT
from tests.clone import wait_until
from tests.workloads.client.fake_kubectl import Fake
from tests.workloads.conftest import ROOT
from tests.workloads.stack_outputs import GKE
from workloads.cli import main
from workloads.client.api import JobsApi, UnreachableError
from workloads.client.commands_connect import PAUSE_S
from workloads.client.connection import Connection
from workloads.client.forward import Forward
from workloads.exits import Exit, WorkloadError
from workloads.options import StackOptions

FORWARDED = GKE | {"ray": GKE["ray"] | {"jobs": f"http://127.0.0.1:{DASHBOARD_PORT}"}, "queue": "gpu"}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    (tmp_path / "outputs.json").write_text(json.dumps(FORWARDED))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(tmp_path / "outputs.json"))
    return Fake(tmp_path, monkeypatch)


def connection(kubectl: Fake, **ray: str) -> Connection:
    file = kubectl.folder / "outputs.json"
    file.write_text(json.dumps(FORWARDED | {"ray": FORWARDED["ray"] | ray}))
    return Connection(StackOptions(outputs=str(file)))


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a3u-head", "creationTimestamp": "1"}, "status": {"phase": phase} | status}


def test_requests_follow_a_kubectl_that_ended(kubectl: Fake) -> None:
    with connection(kubectl) as stack:
        pids = []
        for _ in range(3):
            pids.append(int(stack.api.version()))
            os.kill(pids[-1], signal.SIGKILL)
        assert len({*pids}) == 3
        last = int(stack.api.version())
        folder = stack.kubectl.folder
        assert (folder.stat().st_mode & 0o777, psutil.pid_exists(last)) == (0o700, True)
    assert not psutil.pid_exists(last)
    assert not folder.exists()
    [(_, command), *_] = kubectl.calls("port-forward")
    assert command.endswith(f"--address=127.0.0.1 --pod-running-timeout=1s svc/a3u-head-svc :{DASHBOARD_PORT}")


def test_a_stuck_kubectl_is_replaced(kubectl: Fake) -> None:
    with connection(kubectl) as stack:
        stuck = int(stack.api.version())
        os.kill(stuck, signal.SIGSTOP)
        stack.api.timeout_s = 0.5
        assert int(stack.api.version()) != stuck
        assert not psutil.pid_exists(stuck)


def test_kubectl_and_kubeconfig_end_with_a_killed_command(kubectl: Fake) -> None:
    code = (
        "import time; from workloads.client.connection import Connection; from workloads.options import StackOptions\n"
        f"with Connection(StackOptions(outputs={str(kubectl.folder / 'outputs.json')!r})) as stack:\n"
        "    print(stack.api.version(), stack.kubectl.folder, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        version, folder = command.stdout.readline().split()
        pid = int(version)
        guard, _ = sorted(psutil.Process(command.pid).children(), key=lambda child: child.pid == pid)
        command.kill()
    wait_until(
        lambda: not psutil.pid_exists(pid) and not guard.is_running() and not Path(folder).exists(), timeout_s=10
    )


@pytest.mark.parametrize(
    ("objects", "error", "says"),
    [
        ({"pods": pod("Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}])},
         "error: unable to forward port because pod is not running", "the head's pod a3u-head is Pending: 0/3 nodes"),
        ({"pods": pod("Pending", containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}])},
         "error: unable to forward port because pod is not running", "a3u-head is Pending: ImagePullBackOff"),
        ({"workloads.kueue.x-k8s.io": {
            "metadata": {"ownerReferences": [{"name": "a3u"}]},
            "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "insufficient\nquota"}]},
        }}, "error: timed out", "no head yet: it waits in queue gpu: insufficient quota"),
        ({"workloads.kueue.x-k8s.io": {
            "metadata": {"ownerReferences": [{"name": "a3u"}]},
            "status": {
                "conditions": [
                    {"type": "QuotaReserved", "status": "False", "message": "The workload is deactivated"},
                    {"type": "Evicted", "status": "True", "message": "deactivated due to too many re-queuing retries"},
                ],
            },
        }}, "error: timed out", "no head yet: it is stopped in queue gpu: deactivated due to too many"),
        ({}, 'Error from server (NotFound): services "a3u-head-svc" not found', "describe raycluster a3u`"),
        ({"pods": pod("Running", conditions=[{"type": "Ready", "status": "True"}])},
         'Error from server (Forbidden): pods "a3u-head" is forbidden', "lacks this permission"),
        ({"pods": pod("Running", conditions=[{"type": "Ready", "status": "True"}])},
         "error: You must be logged in to the server (Unauthorized)", "sign in again"),
        ({"pods": pod("Running", conditions=[{"type": "Ready", "status": "True"}])},
         "Unable to connect to the server: dial tcp: i/o timeout", "access.authorizedNetworks"),
        ({}, "Error in configuration: context was not found for specified context: company", "get-contexts"),
    ],
)  # fmt: skip
def test_a_missing_head_is_explained(
    kubectl: Fake, capsys: pytest.CaptureFixture[str], objects: dict[str, Any], error: str, says: str
) -> None:
    kubectl.has(objects)
    kubectl.fails(f"W1123 a warning\n{error}\n")
    assert main(["status"]) == Exit.ERROR
    assert says in capsys.readouterr().err


def test_a_users_cluster_is_reached_by_its_context(kubectl: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"target": "kubernetes", "kubeconfig": None, "context": "company", "namespace": "team-a"}
    (kubectl.folder / "outputs.json").write_text(json.dumps(FORWARDED | own))
    with Connection(StackOptions(outputs=str(kubectl.folder / "outputs.json"))) as stack:
        stack.api.version()
        assert list(stack.kubectl.folder.glob("kubeconfig*")) == []
    [(_, line)] = kubectl.calls("port-forward")
    assert line.startswith("--context=company --namespace=team-a port-forward")
    assert main(["kubeconfig", str(kubectl.folder / "config")]) == Exit.ERROR
    assert "context company" in capsys.readouterr().err


def test_the_head_of_a_rayjob_has_the_name_of_its_cluster(kubectl: Fake) -> None:
    job = {"metadata": {"name": "a3u"}, "status": {"jobDeploymentStatus": "Suspended"}}
    kubectl.has({"rayjobs.ray.io": job})
    with connection(kubectl, mode="job") as stack, pytest.raises(WorkloadError, match="RayJob a3u is Suspended; see"):
        stack.api.version()
    kubectl.has({"rayjobs.ray.io": job | {"status": {"rayClusterName": "a3u-x2b4c"}}})
    with connection(kubectl, mode="job") as stack:
        stack.api.version()
    assert " svc/a3u-x2b4c-head-svc " in kubectl.calls("port-forward")[-1][1]


def test_the_head_of_a_service_is_that_of_its_running_cluster(kubectl: Fake) -> None:
    """Before the first one serves, it is that of the next."""
    service: dict[str, Any] = {"metadata": {"name": "a3u"}, "status": {"activeServiceStatus": {}}}
    kubectl.has({"rayservices.ray.io": service})
    with connection(kubectl, mode="service") as stack, pytest.raises(WorkloadError, match="RayService a3u is new; see"):
        stack.api.version()
    service["status"]["pendingServiceStatus"] = {"rayClusterName": "a3u-bbbbb"}
    for active in ({}, {"rayClusterName": "a3u-aaaaa"}):
        service["status"]["activeServiceStatus"] = active
        kubectl.has({"rayservices.ray.io": service})
        with connection(kubectl, mode="service") as stack:
            stack.api.version()
        name = active.get("rayClusterName", "a3u-bbbbb")
        assert f" svc/{name}-head-svc " in kubectl.calls("port-forward")[-1][1]


def test_serve_prints_a_request_without_the_token(
    kubectl: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, sleep = [], time.sleep

    def interrupted(seconds: float) -> None:
        if seconds != PAUSE_S:
            sleep(seconds)
            return
        said = capsys.readouterr().err
        file = Path(said.split("@")[1].split()[0])
        sent.append((said, file.read_text(), file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777))
        raise KeyboardInterrupt

    service = {"mode": "service", "serve": f"http://127.0.0.1:{SERVE_PORT}"}
    connection(kubectl, **service, token="of Ray", serveToken="hidden")
    monkeypatch.setattr(time, "sleep", interrupted)
    assert main(["serve"]) == Exit.OK
    [(said, header, file, folder)] = sent
    assert (header, file, folder) == ("Authorization: Bearer hidden\n", 0o600, 0o700)
    assert "hidden" not in said
    assert f" svc/a3u-serve-svc :{SERVE_PORT}" in kubectl.calls("port-forward")[-1][1]
    connection(kubectl, **service, token="of Ray")
    assert main(["serve", "--show-token"]) == Exit.ERROR
    refused = capsys.readouterr()
    assert "`make up` gives it a token for requests" in refused.err
    assert "of Ray" not in refused.out + refused.err
    connection(kubectl)
    assert main(["serve"]) == Exit.ERROR
    assert "the stack's ray.mode is cluster" in capsys.readouterr().err


def test_a_missing_kubectl_is_named(kubectl: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(kubectl.folder / "nothing"))
    with connection(kubectl) as stack, pytest.raises(WorkloadError, match="no kubectl on PATH"):
        stack.api.version()


class Listener(HTTPServer):
    """Server of somebody else, which keeps what it gets. It redirects to `target`."""

    def __init__(self, target: str = "") -> None:
        requests: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(str(self.headers))
                self.send_response(307)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                self.end_headers()

        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.address = requests, f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def test_the_token_passes_no_redirect_and_no_proxy(kubectl: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with Listener() as other, Listener(f"{other.address}/") as redirecting, Listener() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.address)
        with (
            connection(kubectl, jobs=redirecting.address) as stack,
            pytest.raises(WorkloadError, match=f"redirects to {other.address}/: not followed"),
        ):
            stack.api.version()
        assert (len(redirecting.requests), other.requests, proxy.requests) == (1, [], [])
    assert not (kubectl.folder / "calls").exists(), "an address of the user's is used as is"


class Ended(Forward):
    """kubectl that ended after it printed an address, which another process has taken."""

    def __init__(self, address: str) -> None:
        self.taken = address

    def address(self) -> str:
        return self.taken

    def runs(self, address: str) -> bool:
        return address != self.taken

    def drop(self, address: str) -> None:
        pass


def test_the_token_goes_to_no_process_that_took_the_port(kubectl: Fake) -> None:
    with Listener() as other, connection(kubectl) as stack:
        api = JobsApi.of(stack.outputs, Ended(other.address))
        with pytest.raises(UnreachableError, match="kubectl port-forward has ended"):
            api.once("/api/version")
        assert other.requests == []


def test_a_token_that_no_header_can_have_is_not_printed(kubectl: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    with connection(kubectl, jobs="http://127.0.0.1:1", token="secret\nrest"):
        assert main(["status"]) == Exit.ERROR
    assert "secret" not in (said := capsys.readouterr().err)
    assert "does not answer" in said or "an HTTP header cannot" in said


def test_dashboard_stays_at_its_address_until_ctrl_c(kubectl: Fake) -> None:
    command = [sys.executable, "-m", "workloads.cli", "dashboard"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().removeprefix("http://127.0.0.1:"))
        [(pid, _)] = kubectl.calls("port-forward")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(kubectl.calls("port-forward")) == 2, timeout_s=10)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert process.returncode == Exit.OK
    assert "--show-token" in said
    assert GKE["ray"]["token"] not in said
    (_, first), (again, second) = kubectl.calls("port-forward")
    assert second == first.replace(f" :{DASHBOARD_PORT}", f" {port}:{DASHBOARD_PORT}")
    wait_until(lambda: not psutil.pid_exists(again), timeout_s=10)


def test_kubeconfig_is_for_the_user_alone(kubectl: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    file = kubectl.folder / "a folder" / "config"
    assert main(["kubeconfig", str(file)]) == Exit.OK
    assert capsys.readouterr().out == f"export KUBECONFIG='{file}'\n"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (GKE["kubeconfig"], 0o600)
    file.write_text("other clusters")
    file.chmod(0o644)
    assert main(["kubeconfig", str(file)]) == Exit.ERROR
    assert "--force" in capsys.readouterr().err
    assert main(["kubeconfig", str(file), "--force"]) == Exit.OK
    assert (file.read_text(), file.stat().st_mode & 0o777) == (GKE["kubeconfig"], 0o600)
