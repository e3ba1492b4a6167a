"""A run's plan, its first failure, its restarts, and a driver on the head."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from workloads.gang import plan
from workloads.gang.agent import Agent
from workloads.gang.options import RunOptions
from workloads.gang.plan import NodeShare, guard_plan, torchrun_options
from workloads.gang.ranks import TAIL, RankFailure, failure_text
from workloads.run.result import ends
from workloads.run.session import PORT_TRIES, Session

LOG = Path(__file__).parents[1] / "nccl" / "logs" / "gib-two-nodes.log"
SHARE = NodeShare(
    mode="ranks",
    command=("python", "train.py"),
    environment={"LR": "0.1"},
    node=1,
    nodes=2,
    per_node=2,
    address="10.0.0.3",
    master="10.0.0.2",
    port=20_123,
    use_gpu=True,
    grace_s=30,
    restart=1,
)


def share(**changes: Any) -> NodeShare:
    return NodeShare(**{**vars(SHARE), **changes})


def test_each_rank_knows_its_place() -> None:
    base = {"PATH": "/bin", "OMP_NUM_THREADS": "220", "CUDA_VISIBLE_DEVICES": "4,5", "NCCL_NET": "gIB"}
    found = guard_plan(SHARE, base, [{"NCCL_DEBUG_FILE": "a"}, {"NCCL_DEBUG_FILE": "b"}])["processes"]
    assert [(one["rank"], one["arguments"]) for one in found] == [(2, SHARE.command), (3, SHARE.command)]
    first, second = (one["environment"] for one in found)
    assert {name for name in first if first[name] != second[name]} == {"RANK", "LOCAL_RANK", "NCCL_DEBUG_FILE"}
    assert second | {"PATH": ""} == {
        "PATH": "",
        "CUDA_VISIBLE_DEVICES": "4,5",
        "NCCL_NET": "gIB",
        "LR": "0.1",
        "OMP_NUM_THREADS": "1",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.2",
        "MASTER_PORT": "20123",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "RDMA_RAY_RESTART": "1",
        "NCCL_DEBUG_FILE": "b",
    }
    assert second["PATH"] == f"{Path(sys.executable).parent}:/bin"
    alone = guard_plan(share(per_node=1), base, [{}])["processes"][0]["environment"]
    assert "OMP_NUM_THREADS" not in alone


def test_torchrun_gets_the_options_that_its_version_has(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = ["--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--master-addr=10.0.0.2", "--master-port=20123"]
    for source, numactl, more in (
        (plan.torchrun_source(), "/bin/numactl", ["--shutdown-timeout=30", "--numa-binding=node"]),
        (plan.torchrun_source(), None, ["--shutdown-timeout=30"]),
        ("", "/bin/numactl", []),
    ):
        monkeypatch.setattr(plan, "torchrun_source", lambda text=source: text)
        monkeypatch.setattr("workloads.gang.plan.shutil.which", lambda _, path=numactl: path)
        assert torchrun_options(SHARE) == [*fixed, *more]


@pytest.mark.parametrize("command", ["torchrun train.py -m x", "python3 -u -m torch.distributed.run train.py -m x"])
def test_torchrun_is_that_of_the_images_interpreter(command: str) -> None:
    found = guard_plan(share(mode="torchrun", command=tuple(command.split())), {}, [{}, {}])
    [process] = found["processes"]
    assert process["arguments"][:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert process["arguments"][-3:] == ["train.py", "-m", "x"]
    assert list(found["ranks"]) == [2, 3]


def test_port_is_held_below_the_ephemeral_ones() -> None:
    first, second = Agent(), Agent()
    ports = {first.hold_port("127.0.0.1"), second.hold_port("127.0.0.1")}
    assert len(ports) == 2
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if least > 21_000:
        assert all(20_000 <= port < least for port in ports)


def test_each_rank_of_a_gpu_node_writes_a_log_of_nccl_that_becomes_evidence() -> None:
    agent = Agent()
    first, second = agent._collect(SHARE, {})
    assert (first["NCCL_DEBUG"], first["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET,GRAPH")
    assert first["NCCL_DEBUG_FILE"] != second["NCCL_DEBUG_FILE"]
    written = Path(first["NCCL_DEBUG_FILE"].replace("%h.%p", "node.1"))
    written.write_bytes(LOG.read_bytes())
    found = agent.evidence(0)
    assert found.evidence.rank == 2
    assert found.evidence.log is not None
    assert found.evidence.log.plugin == "gIB"
    assert not written.parent.exists()
    assert "NCCL wrote none" in " ".join(agent.evidence(1).missing)


def test_own_setting_of_nccls_log_stays() -> None:
    asked = share(environment={"NCCL_DEBUG": "WARN"})
    assert all("NCCL_DEBUG_FILE" not in one and "NCCL_DEBUG" not in one for one in Agent()._collect(asked, {}))


def failure(rank: int | None, time: float, text: str, **more: Any) -> RankFailure:
    return RankFailure(rank, "a", time, 1, text, **more)


def test_the_cause_is_neither_a_rank_that_blames_another_nor_torchrun() -> None:
    peer = failure(0, 1.0, "RuntimeError: Connection closed by peer [10.0.0.3]")
    cause, later = failure(3, 2.0, "ValueError: the loss is nan"), failure(2, 3.0, "KeyError: 1")
    own = failure(None, 0.5, "ChildFailedError")
    assert min([own, peer, later, cause], key=lambda one: one.order) == cause
    assert min([own, peer], key=lambda one: one.order) == peer
    lost = failure(2, 9.0, "node b left the cluster", lost=True)
    assert min([own, peer, lost], key=lambda one: one.order) == lost


def test_a_failure_shows_its_traceback_or_its_last_lines() -> None:
    chained = ["Traceback (most recent call last):", "KeyError", "", "During …", "Traceback (most recent call last):"]
    assert failure_text(deque(["step 1", *chained, "ValueError: x"])) == "\n".join([*chained, "ValueError: x"])
    assert failure_text(deque(map(str, range(100)), maxlen=TAIL)).splitlines()[0] == "80"


@dataclass
class Ended:
    """A gang that has ended."""

    stopped: bool = False


def attempts(session: Session, *failures: RankFailure | None) -> tuple[RankFailure | None, int]:
    remaining = list(failures)
    session.gang = Ended()  # type: ignore[assignment]  # what it uses of a gang
    session._attempt = lambda: remaining.pop(0)  # type: ignore[method-assign]
    return session.run(), len(remaining)


def test_restarts_are_limited_and_another_port_is_no_restart(capsys: pytest.CaptureFixture[str]) -> None:
    broken, taken = failure(1, 1.0, "ValueError"), failure(0, 1.0, "… EADDRINUSE, Address already in use")
    session = Session(RunOptions(max_restarts=2), {})
    assert attempts(session, broken, broken, None) == (None, 0)
    assert session.restarts == 2
    assert attempts(Session(RunOptions(), {}), broken, None) == (broken, 1)
    assert attempts(Session(RunOptions(), {}), *[taken] * PORT_TRIES, None) == (None, 0)
    assert attempts(Session(RunOptions(), {}), *[taken] * 9)[0] == taken
    assert capsys.readouterr().out.count('"kind":"restart"') == 2


def driver(options: RunOptions) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "workloads.run.driver", options.model_dump_json()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_driver_on_the_head_is_replaced_by_the_command() -> None:
    with driver(RunOptions(command=("sh", "-c", "echo $$ $LR; exit 5"), environment={"LR": "0.1"})) as process:
        said, _ = process.communicate(timeout=60)
    assert (said.split(), process.returncode) == ([str(process.pid), "0.1"], 5)


def test_driver_reports_what_it_cannot_run() -> None:
    with driver(RunOptions(command=("no-such-program",))) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 127
    assert "cannot run 'no-such-program' on the head: No such file or directory" in said


def test_driver_on_the_head_starts_without_ray_and_torch() -> None:
    code = "import sys, workloads.run.driver as d; print(sorted({'ray', 'torch', 'rich', 'infra'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip() == "[]"


def test_exit_codes_are_shown_with_their_ranks_the_rarest_first() -> None:
    assert ends([0, 143, 143, 7, 143, None, None]) == [
        "0 of rank 0",
        "7 of rank 3",
        "none of ranks 5-6",
        "143 of ranks 1-2, 4",
    ]


def test_agent_starts_without_torch_and_the_parsers_of_options() -> None:
    code = "import sys, workloads.gang.agent; print(sorted({'torch', 'pydantic', 'cyclopts'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
