"""Ranks of a hunt with faults below the code that has to find them: in the transport, the device, the process.

gloo carries the data. A fault is in a file, by rank, so that a rank that is started again has it too. NCCL's log and
the kernel's files of NICs are doubles with the content of real ones.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import ray
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroupGloo

from workloads.evidence.collect import Collector, expanded
from workloads.nccl import gang as gangs
from workloads.nccl.device import Cpu
from workloads.nccl.hunt.driver import HuntGang
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.rank import HuntRank
from workloads.nccl.hunt.result import HuntResult, conclude, fields_of
from workloads.nccl.hunt.search import hunt
from workloads.nccl.hunt.transport import judged
from workloads.nccl.kinds import RankPosition
from workloads.nccl.options import Network
from workloads.results.events import emit

Fault = Literal["slow", "corrupt", "stop", "die", "throttled"]
"""Of a rank: its NIC takes SLOW_S per all_gather, or flips a bit; its process is stopped, or killed, within an
all_gather; its device takes THROTTLED_S per synchronization."""

FOLDER = "RDMA_RAY_TEST_FLEET"  # variable with the folder of the faults and the nodes' files
BACKEND = "broken"
SLOW_S, THROTTLED_S = 0.2, 0.5
NICS = 2


def nccl_log(host: str, place: RankPosition, plugin: str = "gIB", nics: int = NICS) -> str:
    """Return NCCL's log of one rank that forms one group, with a connection to each neighbor."""
    nodes, rank, world = place.world // place.per_node, place.rank, place.world
    device, direct = rank % place.per_node, "" if plugin == "Socket" else "/GDRDMA"
    names = " ".join(
        f"[{i}]eth0:10.0.0.1<0>" if plugin == "Socket" else f"[{i}]mlx5_{i}:1/RoCE"
        for i in range(1 if plugin == "Socket" else nics)
    )
    comm = f"comm 0x{world}f rank {rank} nranks {world}"
    lines = [
        "NCCL version 2.26.6+cuda12.8",
        f"NET/{plugin} : Using {names}",
        f"Using network {plugin}",
        f"ncclCommInitRank {comm} cudaDev 0 - Init START",
        *(f"NET/{plugin} : GPU Direct RDMA Enabled for HCA {i} 'mlx5_{i}'" for i in range(nics if direct else 0)),
        f"comm 0x{world}f rank {rank} nRanks {world} nNodes {nodes} localRanks {place.per_node}",
        *(
            f"Channel 00/0 : {a}[0] -> {b}[0] [{end}] via NET/{plugin}/{device}{direct}"
            for a, b, end in ((rank, (rank + 1) % world, "send"), ((rank - 1) % world, rank, "receive"))
            if nodes > 1
        ),
        f"ncclCommInitRank {comm} cudaDev 0 - Init COMPLETE",
    ]
    return "".join(f"{host}:1:1 [0] NCCL INFO {line}\n" for line in lines)


class Transport(dist.ProcessGroup):
    """gloo whose all_gather has a fault."""

    fault: Fault | None = None  # of this process in its next group

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self.gloo: Any = ProcessGroupGloo(store, rank, size, timeout)  # half of its methods are untyped

    def all_gather_single(self, received: torch.Tensor, sent: torch.Tensor, options: Any = None) -> Any:
        match Transport.fault:
            case "slow":
                time.sleep(SLOW_S)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
        work = self.gloo.all_gather_single(received, sent, options)
        if Transport.fault == "corrupt":
            work.wait()
            received.view(torch.int32)[0] ^= 1
        return work

    def barrier(self, opts: Any = None) -> Any:
        return self.gloo.barrier(opts)

    def getBackendName(self) -> str:  # noqa: N802
        return BACKEND


class Device(Cpu):
    backend = BACKEND
    throttled = False

    def synchronize(self) -> None:
        if self.throttled:
            time.sleep(THROTTLED_S)


class BrokenRank(HuntRank):
    def __init__(self, use_gpu: bool) -> None:
        super().__init__(use_gpu)
        self.device: Device = Device()
        self.folder = Path(os.environ[FOLDER])
        if BACKEND not in dist.Backend.backend_list:
            dist.Backend.register_backend(BACKEND, Transport, devices=["cpu"])

    def form(self, place: RankPosition, *where: Any) -> None:
        # A NIC carries nothing within a node.
        across = place.world > place.per_node
        Transport.fault = self.fault if across else None
        super().form(place, *where)
        with self.log.open("a") as log:
            log.write(nccl_log(self.collector.host, place, *self.network))

    def _collect(self, place: RankPosition, own_ip: str, backend: str | None = None) -> None:
        super()._collect(place, own_ip, backend or "gloo")
        found = json.loads((self.folder / "faults.json").read_text())
        self.fault = found["ranks"].get(str(place.rank))
        self.device.throttled = self.fault == "throttled"
        node = place.rank // place.per_node
        self.network = found["networks"].get(str(node), ("gIB", NICS))
        self.collector = Collector(
            place.rank,
            "nccl",
            first=place.rank % place.per_node == 0,
            environment={"RDMA_RAY_IMAGE": "image"},
            infiniband=self.folder / f"node-{node}/class/infiniband",
            temporary=self.folder,
            topology=lambda: "GPU0 X PIX",
            host=f"node-{node}",
        )
        self.collector.start()
        self.log = Path(expanded(self.collector.environment["NCCL_DEBUG_FILE"], socket.gethostname(), os.getpid()))


class BrokenGang(HuntGang):
    rank = f"{__name__}:BrokenRank"


@dataclass(frozen=True)
class Scenario:
    """Faults by rank, and the network and number of NICs that NCCL finds by node; gIB with all of them by default."""

    name: str
    ranks: dict[int, Fault] = field(default_factory=dict)
    networks: dict[int, tuple[str, int]] = field(default_factory=dict)


SCENARIOS = (
    Scenario("healthy"),
    Scenario("one slow NIC", {2: "slow"}),
    Scenario("one flipped bit", {3: "corrupt"}),
    Scenario("one throttled GPU", {1: "throttled"}),
    Scenario("all on sockets", networks={0: ("Socket", 1), 1: ("Socket", 1)}),
    Scenario("one node on sockets", networks={1: ("Socket", 1)}),
    Scenario("one NIC down", networks={0: ("gIB", NICS - 1)}),
    Scenario("one that dies", {0: "die"}),
    Scenario("one that hangs", {1: "stop"}),
)


def main() -> None:
    """Play every scenario on one gang, two nodes of two ranks, and emit each hunt's result."""
    ray.init(logging_level=logging.WARNING)
    gangs.ABORT_S = 3  # a stopped process never answers
    with TemporaryDirectory() as folder:
        root = Path(folder)
        # Four ranks share two cores: a healthy pair was measured at a tenth of the usual, a slow one is at a hundredth.
        options = HuntOptions(
            nodes=2,
            per_node=2,
            unit="rank",
            size="1M",
            iterations=2,
            samples=3,
            threshold=0.05,
            timeout_s=8,
            transport="gib",
            network=Network(names=("gIB",)),
            nics=NICS,
            environment={FOLDER: folder, "OMP_NUM_THREADS": "1"},
        )
        write(root, SCENARIOS[0])
        gang = BrokenGang(options)
        with gang:
            units = gang.units()
            for scenario in SCENARIOS:
                write(root, scenario)
                gang._watch(range(4))
                began = time.time()
                verdict = hunt(options, gang.answer)
                evidence = gang.actors.evidence(False)
                verdict = judged(verdict, options, evidence)
                code, reason = conclude(verdict, units)
                found = fields_of(verdict, units) | {"evidence": evidence, "exit_code": int(code), "reason": reason}
                result = HuntResult(started=began, finished=time.time(), spec=options, **found)
                emit("hunt", name=scenario.name, result=result.model_dump(mode="json", by_alias=True))


def write(root: Path, scenario: Scenario) -> None:
    """Write the files that the ranks read: their faults, and the links of their nodes' NICs."""
    (root / "faults.json").write_text(json.dumps({"ranks": scenario.ranks, "networks": scenario.networks}))
    for node in range(2):
        _, up = scenario.networks.get(node, ("gIB", NICS))
        for nic in range(NICS):
            port = root / f"node-{node}/class/infiniband/mlx5_{nic}/ports/1"
            port.mkdir(parents=True, exist_ok=True)
            (port / "state").write_text("4: ACTIVE" if nic < up else "1: DOWN")
