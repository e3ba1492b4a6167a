"""`rdma-ray render`: which commands it renders, and what it refuses before anything is paid for."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.pins import RAY_IMAGE
from infra.outputs import JOB_STACK
from tests.unit.stacks import EKS, GKE, changed
from workloads.cli import main
from workloads.exits import Exit

SECRET = "value-that-must-stay-secret"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stack files, and a user whose shell knows another cluster and a secret."""
    mine = {"nodes.max": 4, "storage.bucket": "mine"}
    shared = {"nodes.max": 4, "queue": "kueue", "teams": [{"name": "nlp", "quota": 1, "namespace": "text"}]}
    for name, changes in (
        ("mine", mine),
        ("shared", shared),
        ("bare", {"nodes.max": 1}),
        ("pods", mine | {"ray.mode": "indexed-job", "ray.entrypoint": "python x.py"}),
        ("plain", {"ray.image": RAY_IMAGE}),
        ("local", {"target": "local", "location": None, "nodes": None, "ray": None}),
    ):
        settings = {f"rdma-ray:{key}": value for key, value in changed(GKE, changes).items()}
        (tmp_path / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": settings}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", "elsewhere.json")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    return tmp_path


def rendered(arguments: str, capsys: pytest.CaptureFixture[str], kind: str = "rayjob", stack: str = "mine") -> Any:
    """Return the job's own object."""
    assert main(["render", kind, "--stack-file", f"Pulumi.{stack}.yaml", *shlex.split(arguments)]) == Exit.OK
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    return list(yaml.safe_load_all(said.out))[-1]


@pytest.mark.parametrize(
    ("options", "command", "name", "nodes"),
    [
        ("", "run --nodes 3 -- torchrun '/app/My train.py' --lr 1", "my-train", 3),
        ("", "run -- torchrun --nnodes=4 /app/train.py --name x", "train", 4),
        ("--", "run -- python driver.py", "driver", 2),
        ("", "run --evidence --json /bucket/result.json -- python driver.py", "driver", 2),
        ("--name n --nodes 4", "bench nccl --preset acceptance --json -", "n", 4),
        ("", "bench hunt --nodes 4 --out /bucket/hunt", "bench-hunt", 4),
        ("", "bench multigpu", "bench-multigpu", 2),
        ("", "train digits --workers 17 --name a-run", "train-digits", 3),
        ("", "train convnext --json /bucket/result.json", "train-convnext", 2),
    ],
)
@pytest.mark.usefixtures("folder")
def test_job_has_the_nodes_of_its_command(
    options: str, command: str, name: str, nodes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the stack's default gang. The entry point knows as many, and is the command as it was written."""
    job = rendered(f"{options} {command}", capsys)
    assert (job["kind"], job["metadata"]) == ("RayJob", {"name": name, "namespace": "ray"})
    spec = job["spec"]["rayClusterSpec"]
    [group], [head] = spec["workerGroupSpecs"], spec["headGroupSpec"]["template"]["spec"]["containers"]
    assert [group[each] for each in ("replicas", "minReplicas", "maxReplicas")] == [nodes] * 3
    [known] = [json.loads(each["value"]) for each in head["env"] if each["name"] == JOB_STACK]
    assert (known["nodes"]["min"], known["nodes"]["max"], known["ray"]["cluster"]) == (nodes, nodes, name)
    assert job["spec"]["entrypoint"].endswith(f"; rdma-ray {command}")


@pytest.mark.parametrize("kind", ["rayjob", "indexed-job"])
@pytest.mark.usefixtures("folder")
def test_secrets_come_from_a_kubernetes_secret(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = rendered("--secrets of-team run --nodes 1 --secret HF_TOKEN -- x", capsys, kind)
    spec = job["spec"] if kind == "indexed-job" else job["spec"]["rayClusterSpec"]["headGroupSpec"]
    [container] = spec["template"]["spec"]["containers"]
    reference = {"secretKeyRef": {"name": "of-team", "key": "HF_TOKEN"}}
    assert container["env"][-1] == {"name": "HF_TOKEN", "valueFrom": reference}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("mine: ", "no command"),
        ("mine: list", "list: name a command"),
        ("mine: bench report x.json", "starts no job"),
        ("mine: bench nccl --op nope", "--op nope: choose from"),
        ("mine: run --nodes two -- x", "--nodes two"),
        ("mine: run --nodes 5 -- x", "needs 5 nodes: the stack has 1 to 4 (nodes.max in Pulumi.mine.yaml)"),
        ("mine: --nodes 5 run -- x", "--nodes 5: the stack has 1 to 4"),
        ("mine: --nodes 0 run -- x", "--nodes 0: the stack has 1 to 4"),
        ("mine: --nodes 2 train digits --workers 17", "--nodes 2: the command needs 3"),
        ("mine: run --nodes 1 --per-node 9 -- x", "8 GPUs"),
        ("mine: run --nodes 1 --evidence -- x", "leave --evidence out"),
        ("mine: run --detach -- x", "--detach"),
        ("mine: run --dry-run -- x", "--dry-run: render starts nothing"),
        ("mine: run --pip einops -- x", "packages that its nodes have"),
        ("mine: run --stack mine -- x", "--stack, --outputs"),
        ("mine: bench nccl --outputs other.json", "--stack, --outputs"),
        ("mine: bench nccl --json result.json", "--json result.json: it would be lost"),
        ("mine: train digits --out /home/me/out", "--out /home/me/out: it would be lost"),
        ("bare: bench multigpu --nodes 1 --json /bucket/x", "no shared folder"),
        ("bare: train digits --workers 8", "--checkpoint-dir"),
        ("mine: train convnext --compare one.json", "--compare one.json: the pods do not have it"),
        (f"mine: run --env HF_TOKEN={SECRET} -- x", "use --secret HF_TOKEN"),
        ("mine: run --env-file .env -- x", "--env-file .env: the pods do not have it"),
        ("mine: run --nodes 1 --working-dir code -- x", "--working-dir code: a folder of this machine"),
        (f"mine: run --nodes 1 --working-dir {Path.home()}/x -- x", "a folder of this machine"),
        ("mine: run --working-dir s3://b/code.zip -- x", "add --nodes 1"),
        ("mine: --name Nightly run -- x", "--name Nightly: use lower-case"),
        ("mine: --name mine-ray run -- x", "the stack's Ray has this name"),
        ("mine: --secrets hf bench nccl", "--secrets hf: the command has no --secret"),
        ("mine: --secrets My_Hf run --secret HF_TOKEN -- x", "--secrets My_Hf: a Secret's name"),
        ("mine: run -- 7", "--name 7: use lower-case"),
        ("pods: run -- x", "no KubeRay"),
        ("plain: run -- x", "This image has no rdma-ray"),
        ("local: run -- x", "target local has no Kubernetes"),
        ("mine: --stack gke run -- x", "already names a stack"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_run_on_the_stack_is_refused(arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason that the entry point itself would print, hours later; nothing is printed to stdout."""
    stack, _, words = arguments.partition(": ")
    assert main(["render", "rayjob", "--stack-file", f"Pulumi.{stack}.yaml", *words.split()]) == Exit.ERROR
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert SECRET not in said.err


def test_stack_file_needs_the_name_of_a_stack(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "Pulumi.mine.yaml").rename(folder / "stack.yaml")
    assert main(["render", "indexed-job", "--stack-file", "stack.yaml", "run", "--", "x"]) == Exit.ERROR
    assert "Pulumi.STACK.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--gpus-per-node 8 run --nodes 3 -- torchrun t.py", "--nodes=3"),
        ("--gpus-per-node 8 train digits --workers 32", "--nodes=4"),
        ("--nodes 4 run --nodes 3 -- torchrun t.py", "--nodes=4"),
        ("bench nccl --json here.json", "--nodes=2"),
        ("--nodes 1 bench nccl --nodes 2", "--nodes 2: the stack has at most 1"),
        ("run --detach -- x", "--detach"),
    ],
)
def test_allocation_has_the_nodes_of_its_command(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["render", "sbatch", *arguments.split()])
    said = capsys.readouterr()
    assert expected in (said.out or said.err)
    words = arguments[
        arguments.index("bench" if "bench" in arguments else "train" if "train" in arguments else "run") :
    ]
    assert (f"command=(rdma-ray {words})" in said.out) is (code == Exit.OK)


@pytest.mark.usefixtures("folder")
def test_job_of_a_team_is_in_its_namespace_and_may_borrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "run --nodes 4 -- torchrun /app/train.py"
    job = rendered(f"--team nlp {command}", capsys, stack="shared")
    assert (job["metadata"]["namespace"], job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == ("text", "gpu")
    assert job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 4
    assert rendered(command, capsys, stack="shared")["metadata"]["namespace"] == "ray"
    monkeypatch.setenv("RDMA_RAY_TEAM", "vision")
    for stack, choice in (("shared", "choose one of nlp"), ("mine", "leave out --team and RDMA_RAY_TEAM")):
        assert main(["render", "rayjob", "--stack-file", f"Pulumi.{stack}.yaml", *shlex.split(command)]) == Exit.ERROR
        assert f"--team vision: Pulumi.{stack}.yaml has no team of this name: {choice}" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_plan_shows_who_has_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "Pulumi.shared.yaml"]) == Exit.OK
    assert re.search(r"^teams +1 of nlp; 3 of the stack's own Ray *$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(("least", "chosen"), [(1, False), (2, True)])
def test_job_asks_for_a_topology_if_the_stacks_nodes_have_one(
    folder: Path, capsys: pytest.CaptureFixture[str], least: int, chosen: bool
) -> None:
    """Kueue never admits a pod that asks for a topology on a flavor without one, as that of an elastic cluster."""
    changes = {"nodes.min": 2, "nodes.max": 2, "queue": "kueue", "ray.minWorkers": least, "ray.maxWorkers": 2}
    settings = {f"rdma-ray:{key}": value for key, value in changed(EKS, changes).items()}
    (folder / "Pulumi.placed.yaml").write_text(yaml.safe_dump({"config": settings}))
    job = rendered("run --nodes 2 -- torchrun /app/train.py", capsys, stack="placed")
    template = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]
    assert any("topology" in name for name in template["metadata"].get("annotations", {})) == chosen
