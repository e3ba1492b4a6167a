"""Ways to the nodes of a stack: kubectl for pods, srun for an allocation of Slurm, this machine for a local stack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import BaseModel, ValidationError

from workloads.client.connection import Connection
from workloads.client.head import RayHost, explain, places
from workloads.exits import WorkloadError

_SOURCE = urlsafe_b64encode(zlib.compress(Path(__file__).with_name("enter.py").read_bytes(), 9)).decode()
# kubectl sends it in a URL, of which a proxy before the API server may take 8 KiB (nginx docs,
# large_client_header_buffers, read 2026-11).
PROGRAM = f"import base64,zlib;exec(zlib.decompress(base64.urlsafe_b64decode('{_SOURCE}')))"
"""Text of enter.py as one line."""
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
AT_ONCE = 16  # pods that are asked at once
ANSWER_S = 60
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_CLUSTER = re.compile(r"job-([1-9][0-9]{0,9})(?:-[0-9a-f]+)?")


class RankProcess(BaseModel, frozen=True):
    """A rank on a node: its job, `world` as the variable WORLD_SIZE has it, and its process ID there."""

    job: str
    rank: int
    world: str
    pid: int


class NodeReport(BaseModel, frozen=True):
    """What enter.py shows of a node: its name in Slurm, its ranks, and the addresses that listen at a port."""

    node: str
    ranks: list[RankProcess]
    listening: list[str]


class Reach(ABC):
    """Runs programs on the nodes of a stack. WorkloadError if there is no way to them."""

    def __init__(self, stack: Connection) -> None:
        self.stack = stack

    @abstractmethod
    def places(self) -> list[RayHost]:
        """Return the nodes."""

    @abstractmethod
    def ask(self, asked: Sequence[RayHost], port: int) -> tuple[list[tuple[RayHost, NodeReport]], list[str]]:
        """Return the reports of nodes, with the addresses that listen at a port, and why the others have none."""

    @abstractmethod
    def run(self, place: RayHost, words: Sequence[str]) -> int:
        """Run a command on a node with the streams of this process, and return its exit code, if it returns at all."""

    def in_node(self, place: RayHost, command: Sequence[str]) -> list[str]:
        """Return the words of a command, or of a shell, in the environment of a node."""
        return self.program("node", self.token, place.addresses[0], *command)

    def in_rank(self, rank: RankProcess, command: Sequence[str]) -> list[str]:
        """Return the words of a command, or of a shell, in the environment of a rank."""
        return self.program("rank", self.token, rank.job, str(rank.rank), *command)

    def missing_head(self) -> str | None:
        """Return why there is no head; None if that is unknown."""
        return None

    @property
    def token(self) -> str:
        """File with Ray's token on the nodes; empty in pods, which have one Ray each."""
        return ""

    @staticmethod
    def program(*arguments: str) -> list[str]:
        """Return the words that run enter.py."""
        return ["python", "-I", "-S", "-c", PROGRAM, *arguments]


class PodReach(Reach):
    """Pods, by `kubectl exec`."""

    def places(self) -> list[RayHost]:
        return places(self.stack.kubectl, self.stack.outputs)

    def ask(self, asked: Sequence[RayHost], port: int) -> tuple[list[tuple[RayHost, NodeReport]], list[str]]:
        def of(place: RayHost) -> NodeReport | str:
            try:
                return report(self.stack.kubectl.run(*_exec(place), *self.program("show", "", str(port))))
            except WorkloadError as error:
                return f"{place.name}: {error}"

        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(zip(asked, pool.map(of, asked), strict=True))
        reports = [(place, answer) for place, answer in found if isinstance(answer, NodeReport)]
        return reports, [answer for _, answer in found if isinstance(answer, str)]

    def run(self, place: RayHost, words: Sequence[str]) -> int:
        terminal = ["-it"] if _has_terminal() else ["-i"]
        with self.stack.kubectl.guarded(*_exec(place, *terminal), *words) as process:
            code = None
            while code is None:
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    continue  # kubectl gets it as well, and ends
        return code if code >= 0 else 128 - code

    def in_node(self, place: RayHost, command: Sequence[str]) -> list[str]:
        del place  # the container has its environment
        return list(command or SHELL)

    def missing_head(self) -> str | None:
        return explain(self.stack.kubectl, self.stack.outputs)


class LocalReach(Reach):
    """The nodes of a local stack, which are processes of this machine."""

    def places(self) -> list[RayHost]:
        nodes = [node for node in self.stack.api.nodes() if node.alive]
        return [RayHost(node.name, (node.ip, node.name), node.head) for node in nodes]

    def ask(self, asked: Sequence[RayHost], port: int) -> tuple[list[tuple[RayHost, NodeReport]], list[str]]:
        return [(asked[0], report(_answer(self.program("show", self.token, str(port)), os.environ)))], []

    def run(self, place: RayHost, words: Sequence[str]) -> int:
        del place  # every node is this machine
        os.execv(words[0], [*words])

    @property
    def token(self) -> str:
        return str(self._storage.parent / "token")  # infra/local/folder.py

    @property
    def _storage(self) -> Path:
        if self.stack.outputs.storage is None:
            raise WorkloadError("the stack's outputs have no storage, by whose folder its processes are found")
        return Path(self.stack.outputs.storage.path)

    @staticmethod
    def program(*arguments: str) -> list[str]:
        return [sys.executable, *Reach.program(*arguments)[1:]]


class SlurmReach(LocalReach):
    """The nodes of an allocation, by steps of srun that share the CPUs and GPUs of Ray's step."""

    def places(self) -> list[RayHost]:
        found = super().places()
        if bad := next((place.name for place in found if not _HOST.fullmatch(place.name)), None):
            raise WorkloadError(f"{bad!r} is not the name of a node: see `rdma-ray doctor`")
        return found

    def ask(self, asked: Sequence[RayHost], port: int) -> tuple[list[tuple[RayHost, NodeReport]], list[str]]:
        said = _answer(self.step(asked, self.program("show", self.token, str(port))), _plain())
        reports = {each.node: each for each in map(report, said.splitlines())}
        found = [(place, reports[place.name]) for place in asked if place.name in reports]
        return found, [f"{place.name}: no answer" for place in asked if place.name not in reports]

    def run(self, place: RayHost, words: Sequence[str]) -> int:
        step = self.step([place], words, *(["--pty"] if _has_terminal() else []))
        try:
            os.execvpe(step[0], step, _plain())
        except OSError as error:
            raise _no_srun(error) from None

    def step(self, on: Sequence[RayHost], words: Sequence[str], *options: str) -> list[str]:
        """Return the words of a step on nodes, one task each."""
        if not (found := _CLUSTER.fullmatch(self.stack.outputs.ray.cluster)):
            raise WorkloadError(f"{self.stack.outputs.ray.cluster!r} is not a cluster of `rdma-ray slurm run`")
        size = str(len(on))
        nodes = ["--nodelist", ",".join(place.name for place in on), "--nodes", size, "--ntasks", size]
        shared = ["--overlap", "--ntasks-per-node", "1", "--cpu-bind=none", "--unbuffered"]
        return ["srun", "--jobid", found[1], *nodes, *shared, *options, *words]

    @property
    def token(self) -> str:
        return str(self._storage / self.stack.outputs.ray.cluster / "token")  # workloads/slurm/job.sh


def reach(stack: Connection) -> Reach:
    """Return the way to the nodes of a stack."""
    if stack.outputs.on_kubernetes:
        return PodReach(stack)
    return (SlurmReach if stack.outputs.target == "slurm" else LocalReach)(stack)


def report(said: str) -> NodeReport:
    """Return the report in the last line of an answer, which a process on the node may have replaced."""
    try:
        return NodeReport.model_validate_json((said.strip().splitlines() or [""])[-1])
    except ValidationError as error:
        raise WorkloadError(f"the answer is not a report: {error.errors()[0]['msg']}") from None


def _exec(place: RayHost, *flags: str) -> list[str]:
    return ["exec", *flags, place.name, f"--container={place.container}", "--"]


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _answer(words: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"{Path(words[0]).name} does not answer within {ANSWER_S} s") from None
    except OSError as error:
        raise _no_srun(error) from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise WorkloadError(f"{Path(words[0]).name} failed: {reason}")
    return done.stdout.decode(errors="replace")


def _no_srun(error: OSError) -> WorkloadError:
    return WorkloadError(f"cannot run srun ({error.strerror}): run this on a login node of the Slurm cluster")


def _plain() -> dict[str, str]:
    """Return this environment without the options of another step (srun(1), "input environment variables")."""
    others = {name for name in os.environ if name.startswith(("SLURM_", "SRUN_")) and name != "SLURM_CONF"}
    return {name: value for name, value in os.environ.items() if name not in others}
