"""Options of `rdma-ray slurm run`: the request for an allocation with a Ray cluster. Imports neither ray nor infra."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, field_validator

from workloads.options import option

OWN = frozenset({"nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "mem", "time", "job-name"}) | {
    *("partition", "account", "qos", "constraint", "output", "error", "requeue", "no-requeue", "array", "wrap"),
    *("kill-on-bad-exit", "no-kill", "parsable", "wait", "test-only", "chdir", "exclusive"),
}
"""Options of sbatch that the script itself sets, or that it does not work with."""

STEP = frozenset({"nodes", "machine", "storage", "image", "mount", "python", "wait_s"})
"""Options that a cluster can have in an allocation that exists; the others request an allocation."""

_WORD = r"[\w.,:+=@%&|*\[\]()/-]+"


def _word(text: str) -> str:
    if not re.fullmatch(_WORD, text):
        raise ValueError("a line of an sbatch file has values without spaces and quotes only")
    return text


Word = Annotated[str, AfterValidator(_word)]
"""Value of an #SBATCH line: sbatch splits these lines at spaces, and quotes must match."""


class SlurmOptions(BaseModel, frozen=True, extra="forbid"):
    """One allocation of Slurm, and the Ray cluster on it."""

    nodes: Annotated[int, option("-N")] = Field(2, ge=1, description="Nodes, with a Ray node on each.")
    cpus_per_node: int | None = Field(
        None, ge=1, description="CPUs of each node. [default: all with --exclusive, else the partition's]"
    )
    gpus_per_node: int | None = Field(
        None, ge=1, description="GPUs of each node (Slurm's GRES). [default: those of --machine, else none]"
    )
    machine: str | None = Field(
        None,
        description="Machine type of the nodes, such as p5en.48xlarge: the benchmark then requires its NICs and its"
        " published bandwidths.",
    )
    memory: Word | None = Field(None, description="Memory of each node, as sbatch's --mem.")
    exclusive: bool = Field(False, description="Do not share the nodes with other jobs.")
    partition: Annotated[Word | None, option("-p")] = Field(None, description="Partition. [default: Slurm's]")
    account: Annotated[Word | None, option("-A")] = Field(None, description="Account that pays. [default: Slurm's]")
    qos: Word | None = Field(None, description="Quality of service.")
    constraint: Annotated[Word | None, option("-C")] = Field(None, description="Features that the nodes must have.")
    time: Annotated[str | None, option("-t")] = Field(
        None, description="Time limit, as MINUTES, HH:MM:SS or D-HH:MM:SS. [default: the partition's]"
    )
    sbatch: Annotated[tuple[str, ...], option(metavar="NAME[=VALUE]")] = Field(
        (), description="Any other option of sbatch, without its dashes; repeatable."
    )
    name: Word = Field("rdma-ray", description="Name of the job in Slurm's queue.")
    storage: Annotated[str, option(metavar="DIR")] = Field(
        "rdma-ray-slurm",
        min_length=1,
        description="Folder on a file system that all nodes share: outputs, logs, checkpoints.",
    )
    image: str | None = Field(
        None,
        min_length=1,
        description="Container image: a name, or an archive of `docker save`. Without it, --python runs on the node.",
    )
    mount: Annotated[tuple[str, ...], option(metavar="SOURCE[:TARGET]")] = Field(
        (), description="Folder of the nodes in the container; repeatable. --storage is there already."
    )
    python: str | None = Field(
        None, min_length=1, description="Interpreter on the nodes. [default: this one; with --image, its `python`]"
    )
    wait_s: Annotated[int, option(name="--wait")] = Field(
        600, ge=1, description="Seconds that the nodes have to join once the job runs."
    )

    @field_validator("time")
    @classmethod
    def _duration(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d\d?(:\d\d){0,2}", text):
            raise ValueError("write MINUTES, HH:MM:SS or D-HH:MM:SS")
        return text

    @field_validator("sbatch")
    @classmethod
    def _no_conflict(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            name = word.partition("=")[0]
            if not re.fullmatch(rf"[a-z][a-z-]+(={_WORD})?", word):
                raise ValueError(f"{word!r} is not a long option without dashes and spaces: write reservation=NAME")
            if name in OWN:
                raise ValueError(f"{name} is set by the script: use the option of `rdma-ray slurm run`, or none")
        return words

    @field_validator("storage", "image", "mount", "python")
    @classmethod
    def _one_line(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for text in (value,) if isinstance(value, str) else value or ():
            if not text.isprintable():
                raise ValueError(f"{text!a} contains a character that no line of a script can hold")
            if text.startswith("~"):
                raise ValueError(f"{text} is not expanded in a script: write the whole path")
        return value

    @field_validator("mount")
    @classmethod
    def _absolute(cls, mounts: tuple[str, ...]) -> tuple[str, ...]:
        for mount in mounts:
            if not re.fullmatch(r"/[^:,]*(:/[^:,]*)?", mount):
                raise ValueError(f"{mount} is not a mount: write /folder or /folder:/target, without a comma")
        return mounts
