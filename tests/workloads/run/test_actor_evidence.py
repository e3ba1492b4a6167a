"""Evidence of the actors of a Ray driver, on real Ray nodes; a recorded log of NCCL is what each actor writes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ray.exceptions import RayError

from tests.workloads.conftest import Cluster, write_outputs
from workloads.evidence.facts import Evidence, RankEvidence
from workloads.evidence.log_reader import parse_log
from workloads.gang import actor_evidence
from workloads.gang.actor_evidence import ActorEvidence, NodeEnd, NodeStart
from workloads.nccl.judge.expectation import network_of
from workloads.nccl.problems import detours
from workloads.run.job import read
from workloads.run.result import RunResult

LOGS = Path(__file__).parents[1] / "nccl" / "logs"
DRIVER = """
import os, ray, sys
like, log, end = sys.argv[1:4]
if like == "plain":
    ray.init()
elif like == "nemo-rl":
    ray.init(address="auto", log_to_driver=True, runtime_env={"env_vars": dict(os.environ)})
else:
    wanted = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN"}
    ray.init(runtime_env={"env_vars": {name: value for name, value in wanted.items() if name not in os.environ}})

@ray.remote(num_cpus=1)
class Actor:
    def write(self, text):
        pattern = os.environ.get("NCCL_DEBUG_FILE")
        if pattern:
            name = pattern.replace("%h", os.uname().nodename).replace("%p", str(os.getpid()))
            open(name, "w").write(text)
        return os.environ.get("NCCL_DEBUG"), ray.util.get_node_ip_address()

    def die(self):
        os.kill(os.getpid(), 9)

actors = [Actor.options(scheduling_strategy="SPREAD").remote() for _ in range(4)]
print("actors", sorted(set(ray.get([each.write.remote(open(log).read()) for each in actors]))), flush=True)
if end == "die":
    ray.get(actors[0].die.remote())
sys.exit(int(end))
"""


@pytest.fixture(scope="module")
def promised(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs as those of a stack with gIB."""
    fabric = cluster.outputs.fabric.model_copy(update={"transport": "gib"})
    outputs = cluster.outputs.model_copy(update={"fabric": fabric})
    return write_outputs(outputs, tmp_path_factory.mktemp("promised") / "outputs.json")


def run(
    cluster: Cluster, promised: Path, folder: Path, like: str, log: str, *options: str, end: str = "0"
) -> tuple[int, dict[str, Any], str]:
    """Run the driver, and return its exit code, the result and all that was shown."""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "driver.py").write_text(DRIVER)
    (folder / "code" / "nccl.log").write_text(log)
    file = folder / "result.json"
    words = ("run", "--evidence", "--json", str(file), "--working-dir", str(folder / "code"), *options)
    with cluster.start(
        *words, "--", "python", "driver.py", like, "nccl.log", end, RDMA_RAY_OUTPUTS=str(promised)
    ) as job:
        shown = "\n".join(job.communicate(timeout=300))
    print(shown, file=sys.stderr)
    assert [*cluster.logs.rglob("rdma-ray-nccl-*")] == []
    return job.returncode, json.loads(file.read_text()), shown


def log_of(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize("like", ["plain", "verl", "nemo-rl"])
def test_actors_of_each_kind_of_driver_log_on_both_nodes(
    cluster: Cluster, promised: Path, tmp_path: Path, like: str
) -> None:
    code, result, shown = run(cluster, promised, tmp_path, like, log_of("gib-two-nodes"))
    assert code == result["exit_code"] == 0
    assert "actors [('INFO', '127.0.0.3'), ('INFO', '127.0.0.4')]" in shown
    ranks = result["evidence"]["ranks"]
    assert [rank["log"]["plugin"] for rank in ranks] == ["gIB"] * 4
    assert len({rank["pid"] for rank in ranks}) == 4
    assert (result["mode"], result["findings"]) == ("driver", [])
    assert "by the logs of 4 processes, network plugin gIB" in shown


def test_sockets_are_found_where_the_stack_has_rdma(cluster: Cluster, promised: Path, tmp_path: Path) -> None:
    """The job's log has all of it: `logs` on another stack file shows the same."""
    code, result, shown = run(cluster, promised, tmp_path, "verl", log_of("tcp-fallback"), end="3")
    assert code == result["exit_code"] == 3
    assert [finding["kind"] for finding in result["findings"]] == ["socket-transport"]
    assert "NCCL used sockets (NET/Socket): no RDMA" in shown
    again = cluster.rdma_ray("logs", result["job"])
    assert again.returncode == 3
    assert "NCCL used sockets (NET/Socket): no RDMA" in again.stderr


def test_killed_actor_has_its_log_and_no_secret_is_in_it(cluster: Cluster, promised: Path, tmp_path: Path) -> None:
    secret = "planted-value-7731"
    os.environ["E2_TOKEN"] = secret
    try:
        long = "x" * 460  # so that a warning is cut within the secret
        warning = "".join(f"gpu-node-0:3500:3500 [0] NCCL WARN {each} {secret}\n" for each in ("cannot use", long))
        log = warning + log_of("gib-no-gdrdma")
        cluster.clone.environment["E2_TOKEN"] = secret
        code, result, shown = run(cluster, promised, tmp_path, "plain", log, "--secret", "E2_TOKEN", end="die")
    finally:
        del os.environ["E2_TOKEN"], cluster.clone.environment["E2_TOKEN"]
    assert code == result["exit_code"] == 1
    assert len(result["evidence"]["ranks"]) == 4
    assert "no-gdrdma" in [finding["kind"] for finding in result["findings"]]
    assert secret[:8] not in json.dumps(result) + shown
    assert "cannot use ***" in json.dumps(result)


def test_settings_of_the_user_have_priority(cluster: Cluster, promised: Path, tmp_path: Path) -> None:
    code, result, shown = run(cluster, promised, tmp_path, "plain", log_of("gib-two-nodes"), "--env", "NCCL_DEBUG=WARN")
    assert code == 0
    assert "actors [('WARN', '127.0.0.3'), ('WARN', '127.0.0.4')]" in shown
    text = "NCCL's log: NCCL_DEBUG=WARN is set; INFO shows how data travels: --env NCCL_DEBUG=INFO"
    assert text in result["evidence"]["missing"]


@pytest.mark.parametrize(
    ("log", "kinds"),
    [
        ("gib-two-nodes", []),
        ("one-host", []),
        ("tcp-fallback", ["socket-transport"]),
        ("ib-instead-of-gib", ["other-plugin"]),
        ("gib-no-gdrdma", ["no-gdrdma"]),
    ],
)
def test_detours(log: str, kinds: list[str]) -> None:
    network = network_of("gib")
    assert network is not None
    assert [found.kind for found in detours([parse_log(log_of(log))], network)] == kinds


def test_group_on_one_node_is_no_detour() -> None:
    """One process is in a group over gIB. Another one logs sockets, but its group is on one node."""
    alone = parse_log("gpu-node-0:9:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>\n"
                      "gpu-node-0:9:9 [0] NCCL INFO Using network Socket\n")  # fmt: skip
    assert "Socket" in alone.plugins
    logs = [parse_log(log_of("gib-two-nodes")), alone]
    ranks = [RankEvidence(rank=number, log=log, counters=None) for number, log in enumerate(logs)]
    found = RunResult(
        started=0, finished=1, exit_code=0, reason="", mode="driver", nodes=[], exit_codes=[], restarts=0, seconds={},
        evidence=Evidence(ranks=ranks, image=None, topology={}, missing=[]), transport="gib",
    )  # fmt: skip
    assert read(found.model_dump(mode="json", by_alias=True), "a3-ultragpu-8g").findings == []


def test_only_what_leaves_during_the_command_has_its_logs_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray lists three nodes. One is found lost while they are asked, as after a driver whose node was lost."""
    rows: list[dict[str, Any]] = [
        {"NodeID": f"{number:056x}", "NodeManagerAddress": name, "Alive": True}
        for number, name in enumerate(("stays", "lost", "leaves"))
    ]
    _, lost, leaves = rows

    def answers(calls: dict[Any, str], _: float) -> Any:
        lost["Alive"] = False
        for node in calls.values():
            start = RayError("not schedulable") if node == lost["NodeID"] else NodeStart(None, 2**40)
            yield node, start if leaves["Alive"] else NodeEnd(node)

    ray = MagicMock()
    ray._private.worker._global_node.get_logs_dir_path.return_value = str(tmp_path)
    ray.remote()().options().remote.side_effect = lambda *_: object()
    for name, value in {"ray": ray, "answers": answers, "_connected": nullcontext}.items():
        monkeypatch.setattr(actor_evidence, name, value)
    monkeypatch.setattr(actor_evidence, "all_nodes", lambda: rows)
    evidence = ActorEvidence()
    assert "NCCL_DEBUG_FILE" in evidence.begin({})
    assert evidence.missing == {}
    leaves["Alive"] = False
    found, _ = evidence.end()
    assert found.missing == [
        "NCCL's log: no process wrote one",
        "all of it: the node left before the end, and its logs with it (leaves)",
    ]
