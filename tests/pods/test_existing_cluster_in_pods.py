"""Ray on a company's cluster, from the stack file to nothing left: `target: kubernetes`.

Real: the Pulumi engine and the program with its checks, kubectl, API server, scheduler, kubelets, containerd, KubeRay
in a pod, Ray in pods, `rdma-ray`. Simulated: pulumi-kubernetes, which is not on this machine, by a provider that sends
its requests to this API server; volumes are folders of this machine; the image is built from this environment.
The user has no rights outside the namespace, and the current context of the kubeconfig does not exist.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from infra.catalog.names import STACK_LABEL
from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.api_access import GET_NODES
from infra.kubernetes.pods import role
from rehearsal.engine.commands import Engine
from rehearsal.fork_server import ForkServer
from tests.kubernetes.queries import condition, is_ready
from tests.pods.company import CONTEXT, OPERATOR, TEAM, Company, company, differences, kueue, snapshot
from tests.pods.conftest import RAY_IMAGES
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import Json

STACK_FILE = f"""\
config:
  rdma-ray:target: kubernetes
  rdma-ray:context: {CONTEXT}
  rdma-ray:namespace: {TEAM}
  rdma-ray:nodes:
    gpus: 0
    cpus: 1
    memoryGib: 4
    max: 2
    selector: [cloud.google.com/gke-nodepool=gpu]
    tolerations: [nvidia.com/gpu=present]
    headSelector: [cloud.google.com/gke-nodepool=system]
  rdma-ray:fabric: socket
  rdma-ray:storage:
    claim: shared
  rdma-ray:ray:
    image: {RAY_IMAGES[0]}
    headCpus: 1
    headMemoryGib: 4
    idleMinutes: 1
    env: [GREETING=hello, TEAM=a, "NCCL_DEBUG=WARN"]
    secrets: [named]
    volumes: [datasets=/datasets]
    pullSecrets: [registry]
"""
STACK, NAME = "team", "team-ray"
OTHER_NODES = {"max": 1, "gpus": 2, "cpus": 1, "memoryGib": 2, "selector": ["cloud.google.com/gke-nodepool=gpu"]}
# Requests a GPU of a node in that group, and prints the name of its pod.
TASK = (
    "import os, ray; ray.init(log_to_driver=False); "
    "task = ray.remote(num_gpus=1, label_selector={'ray.io/node-group': 'other-group'})(lambda: os.uname().nodename); "
    "print('TASK ON', ray.get(task.remote(), timeout=240)); ray.shutdown()"
)
SEEN = (
    "import os; print('SEEN', os.environ['GREETING'], os.environ['TEAM'], os.environ['NCCL_DEBUG'], "
    "len(os.environ['HF_TOKEN']), open('/datasets/size').read(), os.path.isdir('/shared'))"
)


@pytest.fixture(scope="module")
def users(pod_cluster: PodCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """The company's cluster."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: the provider needs the address and the token of the API server")
    with company(pod_cluster, pod_cluster.cluster, tmp_path_factory.mktemp("company")) as found:
        yield found


@pytest.fixture(scope="module")
def plugins() -> Iterator[Path]:
    """The engine's plugins."""
    with ForkServer() as fork_server:
        yield fork_server.bin


@pytest.fixture
def queue(users: Company) -> Iterator[str]:
    """The company's Kueue, and the name of the team's LocalQueue."""
    assert users.pod_cluster.cluster is not None
    with kueue(users, users.pod_cluster.cluster) as name:
        yield name


@pytest.fixture
def engine(users: Company, plugins: Path, tmp_path: Path) -> Iterator[Engine]:
    """The engine with the stack file. A test that failed leaves nothing of the stack, which the next one would find."""
    assert len(STACK_FILE.splitlines()) <= 30
    file = tmp_path / "stack.yaml"
    file.write_text(STACK_FILE)
    engine = users.engine(tmp_path / "w", plugins, STACK, file)
    yield engine
    if engine.deployment().get("resources"):
        engine.must("state", "unprotect", "--all", "--yes", stack=True)
        remove(users, engine)


def set_in(engine: Engine, *path: str, to: object) -> None:
    """Set a setting in the stack file, in which the engine keeps its own values."""
    file = engine.workspace.folder / f"Pulumi.{STACK}.yaml"
    content = yaml.safe_load(file.read_text())
    section = content["config"]
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = to
    file.write_text(yaml.safe_dump(content))


def test_up_that_cannot_work_creates_nothing(users: Company, engine: Engine) -> None:
    """A namespace that does not exist; then, at once, a Secret, a claim and a node size that do not: `up` fails with
    every reason, and the cluster stays as it was."""
    before = snapshot(users.api)
    set_in(engine, "rdma-ray:namespace", to="another-team")
    for run in (engine.preview, engine.up):
        said = run()
        assert not said.ok
        assert "another-team" in said.text
        assert engine.steps() == []
    set_in(engine, "rdma-ray:namespace", to=TEAM)
    set_in(engine, "rdma-ray:ray", "secrets", to=["absent-secret"])
    set_in(engine, "rdma-ray:ray", "volumes", to=["absent-claim=/datasets"])
    said = engine.up()
    assert not said.ok
    for words in ("There is no Secret absent-secret", "There is no PersistentVolumeClaim absent-claim"):
        assert words in said.text, said.text
    assert engine.steps() == []
    left = differences(before, snapshot(users.api))
    assert not left, json.dumps(left, indent=1)


def test_ray_on_a_companys_cluster_from_up_to_nothing_left(users: Company, engine: Engine, tmp_path: Path) -> None:
    """`up`, an empty second preview, the commands of a user, a change, `destroy`: afterwards every object of the
    cluster is as before, and nothing of the stack is left."""
    before = snapshot(users.api)
    set_in(engine, "rdma-ray:otherNodes", to=OTHER_NODES)
    assert engine.first_preview() > 5
    said = engine.up()
    assert said.ok, said.text
    said = engine.preview()
    assert said.ok, said.text
    made = stacks_objects(users)
    assert {name.split(" ")[-1].split("/")[0] for name in made} == {TEAM}, made
    print("objects of the stack:", *made, sep="\n  ")
    users.api.until("the head to be ready", lambda: any(map(is_ready, pods(users, "head"))), 300)

    file = outputs_of(engine, tmp_path)
    outputs = json.loads(file.read_text())
    assert (outputs["context"], outputs["namespace"], outputs.get("kubeconfig")) == (CONTEXT, TEAM, None)
    # Ray's autoscaler adds the node with other GPUs for a task that names its group.
    [head] = pods(users, "head")
    said_there = users.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "python", "-c", TASK)
    assert re.search(rf"TASK ON {NAME}-other-group-\S+", said_there), said_there
    use(users, file, tmp_path)
    rows = json.loads(users.rdma_ray(file, "list", "--json"))["jobs"]
    of_ray = {row["id"]: row for row in rows if row["kind"] in ("run", "nccl", "train")}
    assert len(of_ray) == 3
    logs_of_ray = {job: users.shown(file, job, tmp_path) for job in of_ray}

    set_in(engine, "rdma-ray:nodes", "max", to=1)
    said = engine.up()
    assert said.ok, said.text
    [changed] = [step for step in engine.steps() if step.verb != "same"]
    assert (changed.verb, changed.outcome) == ("update", "done")
    cluster = users.api.get(RAY_API, "RayCluster", NAME, TEAM)
    assert cluster is not None
    assert cluster["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 1
    said = engine.preview()
    assert said.ok, said.text

    assert not engine.destroy().ok, "a protected stack must stay"
    set_in(engine, "rdma-ray:protect", to=False)
    assert engine.up().ok
    destroy(users, engine, before)
    # Another pod reads the claim, which the destroyed stack has left.
    kept = {row["id"]: row for row in json.loads(users.rdma_ray(file, "list", "--ended", "--json"))["jobs"]}
    assert {job: (row["status"], row["exit_code"], row["name"]) for job, row in kept.items()} == {
        job: (row["status"], row["exit_code"], row["name"]) for job, row in of_ray.items()
    }
    assert {job: users.shown(file, job, tmp_path) for job in kept} == logs_of_ray
    users.check_kept_secrets(file)
    users.until_as_before(before)


def test_localqueue_of_the_team_admits_the_cluster(users: Company, queue: str, engine: Engine, tmp_path: Path) -> None:
    """With Kueue and a LocalQueue of the company's: the cluster starts when it is admitted, with both workers, and a
    second preview is empty."""
    before = snapshot(users.api)
    set_in(engine, "rdma-ray:queue", to="kueue")
    set_in(engine, "rdma-ray:localQueue", to=queue)
    set_in(engine, "rdma-ray:protect", to=False)
    said = engine.up()
    assert said.ok, said.text
    users.api.until("both workers to be ready", lambda: len([*filter(is_ready, pods(users, "worker"))]) == 2, 300)
    [workload] = users.api.list(KUEUE_API, "Workload", TEAM)
    assert workload["spec"]["queueName"] == queue
    assert condition(workload, "Admitted")["status"] == "True"
    said = engine.preview()
    assert said.ok, said.text
    assert users.rdma_ray(outputs_of(engine, tmp_path), "doctor") == ""
    destroy(users, engine, before)


RANKS = (
    "import os, socket; open('/shared/rank-' + os.environ['RANK'], 'w').write(' '.join([socket.gethostname(), "
    "os.environ['GREETING'], str(len(os.environ['HF_TOKEN'])), open('/datasets/size').read()])); "
    "print('rank', os.environ['RANK'], 'wrote')"
)
# With `env`, since the public image of this name has no rdma-ray; the one of the tests has.
GANG = f"env rdma-ray run --all --nodes 2 --per-node 1 -- python -c {shlex.quote(RANKS)}"
THREE_GROUPS = {
    "mode": "job",
    "entrypoint": f"python -c {shlex.quote(TASK)} && {GANG}",
    "cpuWorkers": 1,
    "cpuWorkerCpus": 1,
    "cpuWorkerMemoryGib": 1,
}
RACKS = {"gpu-0": "west", "gpu-1": "east"}


def test_queued_job_with_three_groups_whose_ranks_follow_the_racks(
    users: Company, queue: str, engine: Engine, tmp_path: Path
) -> None:
    """With Kueue and a LocalQueue of the company's: a RayJob starts when it is admitted, with workers with GPUs, one
    with other GPUs and one without; a task reaches the second one, and a gang does not. A second preview is empty. The
    rack of a node, which its worker may read, orders ranks, not its address; the right to read nodes is the
    administrator's to grant. The claim keeps the log, exit code and result when the cluster is deleted."""
    cluster, api = users.pod_cluster, users.api
    assert cluster.cluster is not None
    for name, rack in RACKS.items():
        api.patch("v1", "Node", cluster.nodes[name], None, {"metadata": {"labels": {"example.com/rack": rack}}})
    # As docs/kubernetes.md asks an administrator.
    grants = role("node-reader", [GET_NODES], f"{NAME}-worker", TEAM, whole_cluster=True)
    for body in grants:
        api.apply(body)
    try:
        before = snapshot(api)
        # With the other GPUs, all of a node.
        set_in(engine, "rdma-ray:nodes", "gpus", to=6)
        set_in(engine, "rdma-ray:otherNodes", to=OTHER_NODES)
        set_in(engine, "rdma-ray:nodes", "topology", to=["example.com/rack"])
        set_in(engine, "rdma-ray:queue", to="kueue")
        set_in(engine, "rdma-ray:localQueue", to=queue)
        set_in(engine, "rdma-ray:protect", to=False)
        for name, value in THREE_GROUPS.items():
            set_in(engine, "rdma-ray:ray", name, to=value)
        said = engine.up()
        assert said.ok, said.text
        placed: dict[str, str] = {}

        def ended() -> Json | None:
            placed.update({pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods(users, "worker")})
            status = (api.get(RAY_API, "RayJob", NAME, TEAM) or {}).get("status") or {}
            return status if status.get("jobDeploymentStatus") in ("Complete", "Failed") else None

        status = api.until("the job to end", ended, 420)
        assert status["jobStatus"] == "SUCCEEDED", status
        [workload] = api.list(KUEUE_API, "Workload", TEAM)
        assert workload["spec"]["queueName"] == queue
        assert [each["count"] for each in workload["spec"]["podSets"]] == [1, 2, 1, 1]
        assert {*placed.values()} == {*cluster.nodes.values()}
        assert [placed[host] for host in hosts_of_ranks(users)] == [cluster.nodes["gpu-1"], cluster.nodes["gpu-0"]]
        said = engine.preview()
        assert said.ok, said.text
        file = outputs_of(engine, tmp_path)
        destroy(users, engine, before)
        row = json.loads(users.rdma_ray(file, "list", "--ended", "--json"))["jobs"][0]
        assert (row["kind"], row["status"], row["exit_code"]) == ("run", "SUCCEEDED", 0)
        lines, result = users.shown(file, row["id"], tmp_path)
        assert sorted(lines.splitlines()) == [f"rank {rank} | rank {rank} wrote" for rank in (0, 1)]
        assert (result["schema"], result["exit_codes"], result["cluster"]) == ("rdma-ray/run/1", [0, 0], NAME)
        users.check_kept_secrets(file)
        users.until_as_before(before)
    finally:
        for body in grants:
            api.delete(body["apiVersion"], body["kind"], body["metadata"]["name"])
        for name in RACKS:
            api.patch("v1", "Node", cluster.nodes[name], None, {"metadata": {"labels": {"example.com/rack": None}}})


def test_indexed_job_needs_no_operator(users: Company, engine: Engine) -> None:
    """While KubeRay's operator is not there: all pods of a Job, of which the first runs the entry point on both."""
    assert users.pod_cluster.cluster is not None
    operators = users.pod_cluster.cluster.operators
    operators.stop_kuberay()
    try:
        before = snapshot(users.api)
        set_in(engine, "rdma-ray:protect", to=False)
        for name, value in {"mode": "indexed-job", "entrypoint": GANG, "headCpus": None, "headMemoryGib": None}.items():
            set_in(engine, "rdma-ray:ray", name, to=value)
        said = engine.up()
        assert said.ok, said.text

        def ended() -> Json | None:
            status = (users.api.get("batch/v1", "Job", NAME, TEAM) or {}).get("status") or {}
            return status if status.get("succeeded") or status.get("failed") else None

        status = users.api.until("the Job to end", ended, 240)
        assert status.get("failed") is None, status
        assert len({*hosts_of_ranks(users)}) == 2
        said = engine.preview()
        assert said.ok, said.text
        destroy(users, engine, before)
    finally:
        operators.start_kuberay(OPERATOR)


def hosts_of_ranks(users: Company) -> list[str]:
    """Return the hosts of both ranks, which saw variable, Secret and volume, from their files, and remove these."""
    files = [users.folders["shared"] / f"rank-{rank}" for rank in (0, 1)]
    ranks = [file.read_text().split() for file in files]
    assert [seen for _, *seen in ranks] == [["hello", "10", "three"]] * 2
    for file in files:
        file.unlink()
    return [host for host, *_ in ranks]


def outputs_of(engine: Engine, folder: Path) -> Path:
    """Return a file with the stack's outputs, as the engine prints them."""
    file = folder / "outputs.json"
    file.touch(mode=0o600)
    file.write_text(engine.must("stack", "output", "--json", "--show-secrets", stack=True).text)
    return file


def destroy(users: Company, engine: Engine, before: Mapping[str, str]) -> None:
    """Destroy the stack: nothing of it is left, and everything else is as before."""
    remove(users, engine)
    users.until_as_before(before)


def remove(users: Company, engine: Engine) -> None:
    """Destroy the stack and wait for its pods to end."""
    said = engine.destroy()
    assert said.ok, said.text
    users.api.until("the pods to be gone", lambda: not users.api.list("v1", "Pod", TEAM) or None, 240)
    assert stacks_objects(users) == []


def use(users: Company, file: Path, folder: Path) -> None:
    """Run the commands of a user on the stack whose outputs are in the file."""
    status = json.loads(users.rdma_ray(file, "status", "--json"))
    assert [node["role"] for node in status["nodes"]][:1] == ["head"]
    assert users.rdma_ray(file, "doctor") == ""

    (folder / "empty").mkdir()
    two = ["--nodes", "2", "--per-node", "1"]
    options = ["--all", *two, "--working-dir", str(folder / "empty"), "--name", "seen"]
    said = users.rdma_ray(file, "run", *options, "--", "python", "-c", SEEN)
    assert said.count("SEEN hello a WARN 10 three True") == 2, said
    workers = {pod["spec"]["nodeName"] for pod in pods(users, "worker")}
    assert workers == {users.pod_cluster.nodes["gpu-0"], users.pod_cluster.nodes["gpu-1"]}

    [job] = [row["id"] for row in json.loads(users.rdma_ray(file, "list", "--json"))["jobs"] if row["name"] == "seen"]
    assert "SEEN hello" in users.shown(file, job, folder)[0]

    result = folder / "result.json"
    few = [*two, "--op", "all_reduce", "--end", "64K", "--iterations", "5"]
    users.rdma_ray(file, "bench", "nccl", "--json", str(result), *few)
    found = json.loads(result.read_text())
    assert found["backend"] == "gloo"
    assert {row["wrong"] for row in found["rows"]} == {0}

    short = ["--workers", "2", "--epochs", "1", "--min-accuracy", "0.3"]
    users.rdma_ray(file, "train", "digits", *short)
    assert any(users.folders["shared"].rglob("*")), "no checkpoint in the claim"

    top = json.loads(users.rdma_ray(file, "top", "--once", "--json"))
    assert [node["role"] for node in top["nodes"]][:1] == ["head"]
    assert users.rdma_ray(file, "doctor") == ""


def pods(users: Company, type_: str) -> list[Json]:
    """Return the stack's pods of a type, head or worker, that are not being deleted."""
    found = users.api.list("v1", "Pod", TEAM, f"ray.io/node-type={type_}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def stacks_objects(users: Company) -> list[str]:
    """Return the objects with the stack's label, as "apiVersion Kind NAMESPACE/NAME"."""
    names = []
    for kind in users.api.kinds():
        if "list" in kind.verbs and kind.kind != "Event":
            for body in users.api.list(kind.api_version, kind.kind, selector=f"{STACK_LABEL}={STACK}"):
                metadata = body["metadata"]
                names.append(f"{kind.api_version} {kind.kind} {metadata.get('namespace', '')}/{metadata['name']}")
    return sorted(names)
