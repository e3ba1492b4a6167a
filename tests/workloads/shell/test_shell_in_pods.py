"""`rdma-ray shell` and `rdma-ray forward` on Kubernetes, with a kubectl that runs commands on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from infra.catalog.names import JOB_INDEX, JOB_NAME, NODE_TYPE, RAY_CLUSTER
from tests.clone import wait_until
from tests.hostile import ESCAPES
from tests.terminal import Terminal
from tests.workloads.client.fake_kubectl import Fake
from tests.workloads.client.test_forward import FORWARDED
from tests.workloads.conftest import ROOT
from workloads.cli import main
from workloads.client.connection import Connection
from workloads.exits import Exit
from workloads.options import StackOptions
from workloads.shell.reach import Reach

RDMA_RAY = [sys.executable, "-m", "workloads.cli"]


def pod(name: str, ip: str, node: str, **changed: Any) -> dict[str, Any]:
    labels = {RAY_CLUSTER: "a3u", NODE_TYPE: "head" if "head" in name else "worker"}
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-11-28T00:00:00Z", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": f"ray-{labels[NODE_TYPE]}"}, {"name": "autoscaler"}]},
        "status": {"phase": "Running", "podIP": ip},
    } | changed


PENDING = {
    "phase": "Pending",
    "podIP": "10.0.0.9",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}],
}
PODS = [
    pod("a3u-head", "10.0.0.1", "machine-0"),
    pod("a3u-gpu-0", "10.0.0.2", "machine-1"),
    pod("a3u-gpu-1", "10.0.0.3", "machine-2"),
    pod("a3u-cpu", "10.0.0.4", "machine-2"),
    pod("a3u-gpu-9", "10.0.0.9", "machine-9", status=PENDING),
    pod("a3u-gpu-old", "10.0.0.8", "machine-8", status={"phase": "Failed"}),
]


def report(*ranks: int, job: str = "run-1", world: str = "4", listening: tuple[str, ...] = ()) -> str:
    rows = [{"job": job, "rank": rank, "world": world, "pid": 100 + rank} for rank in ranks]
    return json.dumps({"node": "", "ranks": rows, "listening": listening})


NOTHING = report()


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    (tmp_path / "outputs.json").write_text(json.dumps(FORWARDED))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(tmp_path / "outputs.json"))
    fake = Fake(tmp_path, monkeypatch)
    fake.has({"pods": {"kind": "List", "items": PODS}})
    fake.shows(dict.fromkeys(("a3u-head", "a3u-gpu-0", "a3u-gpu-1", "a3u-cpu"), NOTHING))
    return fake


def shell(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RDMA_RAY, "shell", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ((), "a3u-head"),
        (("head",), "a3u-head"),
        (("10.0.0.2",), "a3u-gpu-0"),
        (("a3u-gpu-1",), "a3u-gpu-1"),
        (("machine-1",), "a3u-gpu-0"),
    ],
)
def test_a_command_runs_in_rays_container(kubectl: Fake, where: tuple[str, ...], name: str) -> None:
    """stdin is passed through, there is no terminal, and the exit code is the command's."""
    done = shell(*where, "--", "sh", "-c", "cat; exit 7", input="typed")
    assert (done.returncode, done.stdout) == (7, "typed"), done.stderr
    [(_, line)] = kubectl.calls("exec")
    kind = "head" if "head" in name else "worker"
    assert line.endswith(f" exec -i {name} --container=ray-{kind}")
    assert not Path(line.split("--kubeconfig=")[1].split()[0]).exists()


def test_a_shell_is_bash_or_else_sh(kubectl: Fake, tmp_path: Path) -> None:
    assert shell(input="echo $BASH_VERSION\n").stdout.count(".") >= 2
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "kubectl"):
        (programs / name).symlink_to(f"/bin/{name}" if name == "sh" else kubectl.folder / name)
    done = shell(input="echo in ${BASH_VERSION:-sh}\nexit 3\n", env=os.environ | {"PATH": str(programs)})
    assert (done.returncode, done.stdout) == (3, "in sh\n"), done.stderr


def test_a_rank_is_asked_of_every_pod_that_runs(kubectl: Fake) -> None:
    kubectl.shows({"a3u-head": NOTHING, "a3u-gpu-0": report(0, 1), "a3u-gpu-1": report(2, 3), "a3u-cpu": NOTHING})
    done = shell("rank:3", "--", "true")
    # The program finds no such process on this machine.
    assert (done.returncode, done.stderr) == (1, "rank 3 of job run-1 has ended\n")
    *asked, (_, line) = kubectl.calls("exec")
    assert len(asked) == 4
    assert line.endswith(" exec -i a3u-gpu-1 --container=ray-worker")


@pytest.mark.parametrize(
    ("words", "reports", "message"),
    [
        (["10.0.0.7"], {}, "no node is called '10.0.0.7'"),
        (["10.0.0.9"], {}, "nothing can run in a3u-gpu-9, which is Pending: 0/3 nodes"),
        (["10.0.0.8"], {}, "no node is called '10.0.0.8'"),
        (["machine-2"], {}, "several nodes are called 'machine-2'"),
        (["10.0.0.2", "ls"], {}, "'10.0.0.2 ls' is more than one node: write the command after `--`"),
        (["head", "--job", "run-1"], {}, "--job run-1: head is not a rank"),
        (["rank:0"], {}, "no rank runs: `rdma-ray list` shows the jobs"),
        (["rank:4"], {"a3u-gpu-0": report(0)}, "job run-1 has no rank 4: it has ranks 0 to 3"),
        (["3"], {"a3u-gpu-0": report(0)}, "rank 3 of job run-1 does not run: it has ended, or not started"),
        (["0"], {"a3u-gpu-0": report(0), "a3u-gpu-1": report(0, job="run-2")},
         "several jobs have ranks, run-1, run-2: choose one with --job ID"),
        (["0"], {"a3u-gpu-0": "Traceback"}, "not asked: a3u-gpu-0: the answer is not a report"),
        (["0"], {"a3u-gpu-0": report(0, job=ESCAPES), "a3u-gpu-1": report(0)}, "several jobs have ranks, "),
    ],
)  # fmt: skip
def test_what_has_no_shell_is_explained(
    kubectl: Fake, capsys: pytest.CaptureFixture[str], words: list[str], reports: dict[str, str], message: str
) -> None:
    kubectl.shows(dict.fromkeys(("a3u-head", "a3u-gpu-0", "a3u-gpu-1", "a3u-cpu"), NOTHING) | reports)
    assert main(["shell", *words]) == Exit.ERROR
    said = capsys.readouterr().err
    assert message in said
    assert "\x1b" not in said


def test_a_pod_that_cannot_be_asked_is_named(kubectl: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the program that it was sent."""
    kubectl.shows({"a3u-head": NOTHING, "a3u-gpu-1": NOTHING, "a3u-cpu": NOTHING})
    assert main(["shell", "rank:0"]) == Exit.ERROR
    said = capsys.readouterr().err
    assert "not asked: a3u-gpu-0: kubectl exec a3u-gpu-0 --container=ray-worker: error: unable to upgrade" in said
    assert "import" not in said


@pytest.mark.parametrize("name", ["-x", "--kubeconfig=/tmp/x", "a;b", "A", "a b", "", "a" * 254, "a\n", 3])
def test_only_names_of_pods_and_containers_reach_kubectl(
    kubectl: Fake, capsys: pytest.CaptureFixture[str], name: object
) -> None:
    for planted in (
        pod("a3u-head", "10.0.0.1", "m") | {"metadata": PODS[0]["metadata"] | {"name": name}},
        pod("a3u-head", "10.0.0.1", "m", spec={"containers": [{"name": name}]}),
    ):
        kubectl.has({"pods": {"kind": "List", "items": [planted]}})
        assert main(["shell"]) == Exit.ERROR
        assert "an object of the cluster is not as expected" in capsys.readouterr().err
    assert kubectl.calls("exec") == []


def test_the_program_fits_a_url() -> None:
    """That of an `exec`: proxies refuse longer ones."""
    words = Reach.program("rank", "", "run-20261128-000000-abcdef", "123", "sh", "-c", "py-spy dump --pid $RANK_PID")
    assert len(urlencode([("command", word) for word in words])) < 6_000


def test_the_head_of_an_indexed_job_and_a_missing_head(kubectl: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = FORWARDED | {"ray": FORWARDED["ray"] | {"mode": "indexed-job"}}
    (kubectl.folder / "outputs.json").write_text(json.dumps(outputs))
    found = [pod(f"a3u-{index}-x", f"10.0.0.{index + 1}", f"m{index}") for index in range(2)]
    for index, each in enumerate(found):
        each["metadata"]["labels"] = {JOB_NAME: "a3u", JOB_INDEX: str(index)}
        each["spec"]["containers"] = [{"name": "ray-node"}]
    kubectl.has({"pods": {"kind": "List", "items": found}})
    assert shell("--", "true").returncode == 0
    assert kubectl.calls("get")[-1][1].endswith(f"get pods --selector={JOB_NAME}=a3u --output=json")
    assert kubectl.calls("exec")[-1][1].endswith(" exec -i a3u-0-x --container=ray-node")
    kubectl.has({})
    assert main(["shell"]) == Exit.ERROR
    assert "there is no head yet" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_a_closed_terminal_leaves_no_kubeconfig_and_no_kubectl(kubectl: Fake, number: signal.Signals) -> None:
    command = "trap '' HUP; echo begins; sleep 600; :"
    terminal = Terminal([*RDMA_RAY, "shell", "--", "sh", "-c", command], ROOT)
    terminal.expect("begins")
    [(_, line)] = kubectl.calls("exec")
    assert line.endswith(" exec -it a3u-head --container=ray-head")
    kubeconfig = Path(line.split("--kubeconfig=")[1].split()[0])
    assert kubeconfig.parent.stat().st_mode & 0o777 == 0o700
    process = psutil.Process(kubectl.calls("exec")[0][0])
    if number == signal.SIGKILL:
        os.kill(terminal.pid, number)
    terminal.close()
    wait_until(lambda: not process.is_running() and not kubeconfig.parent.exists(), timeout_s=30)


def test_a_port_of_a_pod_is_forwarded_until_ctrl_c(kubectl: Fake) -> None:
    """kubectl starts again on the same port."""
    kubectl.shows({"a3u-gpu-0": report(0, listening=("127.0.0.1",)), "a3u-gpu-1": NOTHING, "a3u-head": NOTHING})
    command = [*RDMA_RAY, "forward", "6006", "rank:0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        port = address.removeprefix("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=60) as answer:
            first = int(json.load(answer)["ray_version"])
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(kubectl.calls("port-forward")) == 2, timeout_s=30)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.OK, said
    (_, one), (again, two) = kubectl.calls("port-forward")
    assert one.endswith(" --address=127.0.0.1 --pod-running-timeout=1s pod/a3u-gpu-0 :6006")
    assert two == one.replace(" :6006", f" {port}:6006")
    wait_until(lambda: not psutil.pid_exists(again), timeout_s=30)


@pytest.mark.parametrize(
    ("listening", "message"),
    [
        ((), "nothing listens at port 6006 of a3u-head: start it there first"),
        (("10.0.0.1",), "listens at 10.0.0.1 only"),
        (("nonsense",), "the answer is not a report"),
    ],
)
def test_a_port_without_a_listener_is_named(
    kubectl: Fake, capsys: pytest.CaptureFixture[str], listening: tuple[str, ...], message: str
) -> None:
    kubectl.shows({"a3u-head": report(listening=listening)})
    assert main(["forward", "6006"]) == Exit.ERROR
    assert message in capsys.readouterr().err


def test_ports_are_checked_first(kubectl: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in ((["0"], "PORT 0: write a port from 1"), (["1", "--local", "65536"], "--local 65536: write")):
        assert main(["forward", *words]) == Exit.ERROR
        assert message in capsys.readouterr().err
    kubectl.shows({"a3u-head": report(listening=("::ffff:127.0.0.1",))})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["forward", "6006", "--local", str(port)]) == Exit.ERROR
    assert f"--local {port}: Address already in use on 127.0.0.1" in capsys.readouterr().err
    assert kubectl.calls("port-forward") == []


def test_the_guard_keeps_the_folder_of_a_command_that_goes_on(kubectl: Fake) -> None:
    with Connection(StackOptions(outputs=str(kubectl.folder / "outputs.json"))) as stack:
        with stack.kubectl.guarded("exec", "a3u-head", "--", "sleep", "600") as process:
            pass
        assert process.returncode == -signal.SIGKILL
        time.sleep(0.2)
        assert stack.kubectl.folder.exists()
