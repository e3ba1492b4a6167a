"""The check of a node before its worker joins (`ray.check`): what it finds, what it asks, and who reads it."""

from __future__ import annotations

import io
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from ray._private.thirdparty import pynvml

from infra.catalog.names import GPU, NODE_CHECK
from infra.kubernetes import node_check
from infra.kubernetes.api_access import EVENTS_NAMESPACE, MESSAGE, check_rights, event_rights
from infra.kubernetes.pods import ACCOUNT_FOLDER
from infra.kubernetes.ray_cluster import ray_cluster_spec
from infra.plan import ray_args
from infra.settings import ClusterSettings, parse
from tests.unit.stacks import EKS, GKE, KUBERNETES, changed
from workloads.client.head import kept_out

RDMA = changed(KUBERNETES, {"fabric": "rdma", "nodes.nics": 8, "fabricResource": "rdma/ib"})
STACKS = {"gke": GKE, "eks": EKS, "kubernetes": KUBERNETES, "rdma": RDMA}
ERROR: Any = pynvml.NVMLError


def settings_of(stack: dict[str, Any], check: str, **more: Any) -> ClusterSettings:
    settings = parse(changed(stack, {"ray.check": check, **more}))
    assert isinstance(settings, ClusterSettings)
    return settings


def worker_of(stack: dict[str, Any], check: str = "quick") -> dict[str, Any]:
    spec = ray_cluster_spec(ray_args(settings_of(stack, check), "a-ray"))
    pod: dict[str, Any] = spec["workerGroupSpecs"][0]["template"]["spec"]
    return pod


class EightGpus:
    """NVML of a node. `gpus` are the remapped rows and the uncorrected errors of each."""

    NVMLError = ERROR
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    NVML_VOLATILE_ECC = pynvml.NVML_VOLATILE_ECC

    def __init__(self) -> None:
        self.driver = "580.65.06"
        self.gpus: list[tuple[list[int], int] | int] = [([0, 0, 0, 0], 0)] * 8

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Nothing is held."""

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise ERROR(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return self.driver

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        found = self.gpus[index]
        if isinstance(found, int):
            raise ERROR(found)
        return found

    def nvmlDeviceGetRemappedRows(self, gpu: tuple[list[int], int]) -> list[int]:  # noqa: N802
        return gpu[0]

    def nvmlDeviceGetTotalEccErrors(self, gpu: tuple[list[int], int], kind: int, counter: int) -> int:  # noqa: N802
        assert (kind, counter) == (self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self.NVML_VOLATILE_ECC)
        return gpu[1]


class Node:
    """A node on which the init container of a stack runs, with an API server that has other pods."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.nvml, self.refused = EightGpus(), ""
        self.others: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self.infiniband = folder / "infiniband"
        for number in range(8):
            self.nic(f"mlx5_{number}")
        (folder / "token").write_text("token\n")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)
        monkeypatch.setattr(urllib.request, "urlopen", self._answer)

    def nic(self, name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", lanes: int = 16) -> None:
        port, device = self.infiniband / name / "ports/1", self.infiniband / name / "device"
        for folder in (port, device):
            folder.mkdir(parents=True, exist_ok=True)
        texts = {port / "state": state, port / "rate": rate, device / "max_link_width": "16"}
        for file, text in {**texts, device / "current_link_width": str(lanes)}.items():
            file.write_text(f"{text}\n")

    def other(self, node: str, message: str, code: int = 0, phase: str = "Running") -> None:
        statuses = [{"name": NODE_CHECK, "state": {"terminated": {"exitCode": code, "message": message}}}]
        status = {"phase": phase, "initContainerStatuses": statuses}
        self.others.append({"spec": {"nodeName": node}, "status": status})

    def _answer(self, request: Any, **_: Any) -> Any:
        assert request.headers["Authorization"] == "Bearer token"
        what = request.full_url.removeprefix("https://[fd00::1]:443/api/v1/namespaces/")
        if self.refused and self.refused in what:
            raise urllib.error.HTTPError(what, 403, "forbidden", Message(), None)
        if request.data is None:
            assert what.endswith("/pods?labelSelector=ray.io%2Fgroup%3Dgpu-group")
            return io.StringIO(json.dumps({"items": self.others}))
        event = json.loads(request.data)
        place = event["metadata"]["namespace"], event["metadata"]["name"]
        assert what == f"{place[0]}/events"
        if place in [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in self.events]:
            raise urllib.error.HTTPError(what, 409, "exists", Message(), None)
        self.events.append(event)
        return io.StringIO("{}")

    def words(self, stack: dict[str, Any], check: str = "quick") -> tuple[list[str], list[str]]:
        """Return the container's command and arguments, with the paths of this machine."""
        [container] = [each for each in worker_of(stack, check)["initContainers"] if each["name"] == NODE_CHECK]
        here = {ACCOUNT_FOLDER: self.folder, MESSAGE: self.folder / "message", "$(NODE_NAME)": "a"}
        here |= {"$(POD_NAME)": "p", "$(POD_UID)": "u"}
        words = [*container["args"], f"--infiniband={self.infiniband}"]
        for there, replacement in here.items():
            words = [word.replace(there, str(replacement)) for word in words]
        return container["command"], words

    def check(self, stack: dict[str, Any] = RDMA, *, heal: Any = None) -> str | None:
        """Run the check; return its message, None for a node that is kept out. `heal` is called after two rounds."""
        self.monkeypatch.setattr(sys, "argv", ["x", *self.words(stack)[1]])
        rounds = iter(range(3))

        def sleep(seconds: float) -> None:
            assert seconds == node_check.AGAIN_S
            if next(rounds) and heal is None:
                raise StopIteration
            if heal is not None:
                heal()

        try:
            node_check.main(lambda: self.nvml, sleep)
        except StopIteration:
            return None
        return (self.folder / "message").read_text()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def gpu(index: int, rows: list[int] | int, errors: int = 0) -> Any:
    def plant(node: Node) -> None:
        node.nvml.gpus[index] = rows if isinstance(rows, int) else (rows, errors)

    return plant


FAULTS: dict[str, Any] = {
    "7 of 8 GPUs": lambda node: node.nvml.gpus.pop(),
    "GPU 2 does not answer: GPU is lost": gpu(2, pynvml.NVML_ERROR_GPU_IS_LOST),
    "GPU 3: a remapped row of its memory waits for a reset": gpu(3, [0, 1, 1, 0]),
    "GPU 4: a remapping of its memory's rows has failed": gpu(4, [0, 9, 0, 1]),
    "GPU 5: 2 uncorrected memory errors": gpu(5, [0, 0, 0, 0], 2),
    "the GPU driver does not answer: Driver Not Loaded": lambda node: setattr(node.nvml, "driver", ""),
    "driver 580.65.06, and 570.133.20 on 2 of 3 other nodes": lambda node: [
        node.other(name, f"driver {version}; reduction in 4.0 s")
        for name, version in {"b": "570.133.20", "c": "570.133.20", "d": "570.1"}.items()
    ],
    "7 of 8 RDMA NICs": lambda node: node.infiniband.joinpath("mlx5_7").rename(node.folder / "gone"),
    "mlx5_3 is DOWN": lambda node: node.nic("mlx5_3", state="1: DOWN"),
    "mlx5_4 runs at 200 of 400 Gbit/s": lambda node: node.nic("mlx5_4", rate="200 Gb/sec (4X HDR)"),
    "mlx5_5 has 8 of 16 PCIe lanes": lambda node: node.nic("mlx5_5", lanes=8),
}


@pytest.mark.parametrize("message", FAULTS)
def test_bad_node_keeps_its_worker_out(node: Node, message: str) -> None:
    """The reason is in one event of the pod, where the commands read it, and in one of the node, however often."""
    FAULTS[message](node)
    assert node.check(GKE) is None
    of_pod, of_node = node.events
    assert [each["message"] for each in node.events] == [message, message]
    assert of_pod["involvedObject"]["uid"] == "u"
    assert (of_node["involvedObject"]["name"], of_node["metadata"]["namespace"]) == ("a", EVENTS_NAMESPACE)
    pod: dict[str, Any] = {"metadata": {"uid": "u"}, "spec": {"nodeName": "a"}, "status": {}}
    for state, reasons in (("running", {"a": message}), ("terminated", {})):
        pod["status"] = {"initContainerStatuses": [{"name": NODE_CHECK, "state": {state: {}}}]}
        assert kept_out([pod], node.events) == reasons


def test_worker_starts_when_its_node_is_healthy(node: Node) -> None:
    node.nvml.gpus.pop()
    assert node.check(GKE, heal=lambda: node.nvml.gpus.append(([0, 0, 0, 0], 0))) == "driver 580.65.06"


def test_healthy_node_reports_its_driver(node: Node) -> None:
    """Nodes that are gone, kept out, or itself before a restart do not count, nor does a hostile message."""
    node.other("b", "driver 580.65.06")
    node.other("c", "driver 570.1", phase="Failed")
    node.other("d", "driver 570.1; 7 of 8 GPUs", code=1)
    node.other("a", "driver 570.1")
    node.other("e", "driver \x1b[31m")
    node.others.append({"spec": {}, "status": {}})
    assert node.check() == "driver 580.65.06"
    assert node.events == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda node: setattr(node, "refused", "/pods"), "driver 580.65.06; driver not compared: HTTP Error 403"),
        (lambda node: node.others.append(7), "driver 580.65.06; driver not compared: "),
        (lambda node: setattr(node, "nvml", None), "GPUs not checked: no bindings"),
    ],
)
def test_what_cannot_be_read_is_said_and_keeps_nobody_out(node: Node, spoil: Any, message: str) -> None:
    spoil(node)

    def bindings() -> Any:
        if node.nvml is None:
            raise ImportError("no bindings")
        return node.nvml

    node.monkeypatch.setattr(sys, "argv", ["x", *node.words(RDMA)[1]])
    node_check.main(bindings)
    assert (node.folder / "message").read_text().startswith(message)


def test_refused_event_leaves_the_node_out(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.nvml.gpus.pop()
    node.refused = "/events"
    assert node.check(GKE) is None
    assert "not reported: HTTP Error 403" in capsys.readouterr().out


def test_spare_ports_may_be_down(node: Node) -> None:
    """A node of a user's InfiniBand has `nics` ports in use and may have more."""
    node.nic("mlx5_8", state="1: DOWN")
    assert node.check(RDMA) is not None
    node.nic("mlx5_2", state="1: DOWN")
    assert node.check(RDMA) is None
    [event] = node.events  # no object outside its namespace on a user's cluster
    assert (event["message"], event["metadata"]["namespace"]) == ("mlx5_2 is DOWN; mlx5_8 is DOWN", "team-a")


@pytest.mark.parametrize("name", STACKS)
def test_container_has_what_the_worker_has(name: str) -> None:
    """The devices, the mounts and the variables, and the account's token, which no other container gets."""
    pod = worker_of(STACKS[name])
    [check] = [each for each in pod["initContainers"] if each["name"] == NODE_CHECK]
    worker = pod["containers"][0]
    assert check["resources"] == worker["resources"]
    assert f"--gpus={worker['resources']['limits'][GPU]}" in check["args"]
    assert check.get("securityContext", {}) == worker.get("securityContext", {})
    own = [each for each in check["volumeMounts"] if each["name"] != "kubernetes-api"]
    assert own
    assert all(mount in worker["volumeMounts"] for mount in own)
    assert "kubernetes-api" not in [each["name"] for each in worker["volumeMounts"]]
    assert (f"--node-events={EVENTS_NAMESPACE}" in check["args"]) is (name in ("gke", "eks"))
    assert [word for word in check["args"] if word.startswith("--nics")] == ([] if name == "kubernetes" else [
        f"--nics={16 if name == 'eks' else 8}"
    ])  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_rights_are_to_list_pods_and_to_write_events(name: str) -> None:
    args = ray_args(settings_of(STACKS[name], "quick"), "a-ray")
    (role, _), events = check_rights(args), event_rights(args)
    written = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}, written]
    assert [each["rules"] for each in events[:1]] == ([[written]] if name in ("gke", "eks") else [])
    off = ray_args(settings_of(STACKS[name], "off"), "a-ray")
    assert check_rights(off) == event_rights(off) == []
    assert NODE_CHECK not in str(worker_of(STACKS[name], "off"))


@pytest.mark.parametrize("wrong", [False, True])
def test_reduction_of_a_full_check_is_verified(node: Node, wrong: bool) -> None:
    """The container's own command, in a shell, on CPUs: a wrong element keeps the worker out."""
    command, words = node.words(changed(KUBERNETES, {"nodes.gpus": 0}), "full")
    script = command[-1]
    if wrong:
        script = script.replace("dist.all_reduce(values)", "dist.all_reduce(values); values[7] += rank")
        assert script != command[-1]
    node.monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    process = subprocess.Popen([*command[:-1], script, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if wrong:
            assert said == "reduction: rank 1: 1 of 4194304 elements are wrong in step 0\n"
            assert process.stdout.readline().startswith("not reported: ")
            assert process.poll() is None
            process.terminate()  # it waits for its node: its pod's end must not take the whole grace period
            assert process.wait(20) == 128 + signal.SIGTERM
            assert not (node.folder / "message").exists()
        else:
            assert process.wait(20) == 0
            assert said.rstrip() == (node.folder / "message").read_text()
            assert 2 < float(said.split()[2]) < 100  # mostly the import of torch; docs/health.md has the figure
    finally:
        process.kill()
        process.wait()
