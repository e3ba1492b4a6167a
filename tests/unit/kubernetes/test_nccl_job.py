"""Objects and validation of an NCCL Job; its scripts run in `tests/components/test_nccl_job_pod.py`."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.fabrics import INSTALLED, OBSOLETE
from infra.fabric import GpuPod
from infra.kubernetes.pods import NCCL_JOB_POD, script_files
from infra.nccl_job import HOST_NAME_ROOM, IMAGES, NcclJob, Sweep, nccl_job, size
from infra.plan import plan
from infra.settings import Settings, parse
from tests.unit.stacks import EKS, GKE, LOCAL, changed
from workloads.nccl.job_manifest import key_secret, manifests, mpirun

ROOT = Path(__file__).resolve().parents[3]
OPEN_DRANET = {"fabric": "dranet", "nodes.capacity": "spot", "nodes.min": 1}
CPUS = changed(GKE, {"nodes.machine": "n2d-standard-8", "nodes.capacity": "spot"})
LABEL = "batch.kubernetes.io/job-name"


def made(raw: dict[str, Any] | Settings, sweep: Sweep | None = None, **more: Any) -> NcclJob:
    settings = parse(raw) if isinstance(raw, dict) else raw
    return nccl_job(settings, sweep or Sweep(), **more)


JOB = made(GKE)


def one(job: NcclJob, kind: str) -> dict[str, Any]:
    (found,) = (each for each in manifests(job) if each["kind"] == kind)
    return found


def pod_spec(job: NcclJob) -> dict[str, Any]:
    return dict(one(job, "Job")["spec"]["template"]["spec"])


def container(job: NcclJob) -> dict[str, Any]:
    (only,) = pod_spec(job)["containers"]
    return dict(only)


def environment(job: NcclJob) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(job)["env"]}


def gpu_pod(raw: dict[str, Any]) -> GpuPod:
    pod = plan(parse(raw)).pod
    assert pod is not None
    return pod


def test_pods_resolve_each_other() -> None:
    """In the example that this Job follows, Services selected a label that the pods lacked, without a subdomain."""
    job = made(GKE, nodes=2)
    service, pod = one(job, "Service"), pod_spec(job)
    assert service["spec"]["selector"] == {LABEL: one(job, "Job")["metadata"]["name"]}
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert pod["subdomain"] == service["metadata"]["name"]
    assert pod["setHostnameAsFQDN"] is True
    assert environment(job)["RDMA_RAY_SERVICE"] == service["metadata"]["name"]
    assert len({each["metadata"]["namespace"] for each in manifests(job)}) == 1


def test_pod_0_decides_and_no_pod_is_retried() -> None:
    spec = one(made(GKE, nodes=2), "Job")["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert spec["backoffLimit"] == 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_wait_for_nodes_is_limited_and_not_part_of_the_pod_deadline() -> None:
    job = made(changed(GKE, {"nodes.capacity": "spot"}), wait_s=100, run_s=200)
    spec = one(job, "Job")["spec"]
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == 1200
    assert spec["activeDeadlineSeconds"] == 168 * 3600 + 1200
    assert (environment(job)["RDMA_RAY_WAIT_S"], environment(job)["RDMA_RAY_RUN_S"]) == ("100", "200")


@pytest.mark.parametrize(
    "raw",
    [
        *(changed(GKE, {"fabric": fabric}) for fabric in ("multi-network", "managed-dranet")),
        changed(GKE, OPEN_DRANET),
        *(changed(EKS, {"fabric": fabric, "nodes.min": 1}) for fabric in ("efa", "efa-dranet")),
    ],
    ids=lambda raw: raw["fabric"],
)
def test_pod_reaches_the_fabric_as_ray_workers_do(raw: dict[str, Any]) -> None:
    job, pod = made(raw), gpu_pod(raw)
    spec, own = pod_spec(job), container(job)
    assert own["resources"] == pod.container()["resources"]
    assert own["securityContext"] == pod.container()["securityContext"]
    assert spec["tolerations"] == pod.pod()["tolerations"]
    assert spec["nodeSelector"] == pod.pod()["nodeSelector"]
    assert all(volume in spec["volumes"] for volume in pod.pod()["volumes"])
    assert all(mount in own["volumeMounts"] for mount in pod.container()["volumeMounts"])
    assert {each["name"]: each["value"] for each in pod.container()["env"]}.items() <= environment(job).items()
    assert pod.annotations.items() <= one(job, "Job")["spec"]["template"]["metadata"]["annotations"].items()
    assert str(pod.setup) in own["command"][2]
    assert "hostNetwork" not in spec
    assert "privileged" not in own["securityContext"]


@pytest.mark.parametrize("changes", [OPEN_DRANET, {"fabric": "managed-dranet"}], ids=lambda each: each["fabric"])
def test_job_has_its_own_claim_templates(changes: dict[str, Any]) -> None:
    job, pod = made(changed(GKE, changes)), gpu_pod(changed(GKE, changes))
    template = one(job, "ResourceClaimTemplate")
    (claim,) = pod_spec(job)["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    of_the_stack = {each["metadata"]["name"] for each in pod.objects}
    assert not of_the_stack & {each["metadata"]["name"] for each in manifests(job)}
    assert "DeviceClass" not in {each["kind"] for each in manifests(job)}


@pytest.mark.parametrize("raw", [GKE, EKS], ids=["gke", "eks"])
def test_command_is_that_of_the_published_example(raw: dict[str, Any]) -> None:
    job = made(raw, Sweep(op="all_to_all", begin="1M", end="2G", factor=4, iterations=7, warmup=3), nodes=2)
    command = mpirun(job)
    assert container(job)["command"][4:] == command
    triples = zip(command, command[1:], command[2:], strict=False)
    parameters = {name: value for flag, name, value in triples if flag == "--mca"}
    assert parameters == {
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_agent": environment(job)["RDMA_RAY_SSH"],
        "orte_keep_fqdn_hostnames": "1",
        "btl": "self,tcp",
        "btl_tcp_if_include": "eth0",
        "oob_tcp_if_include": "eth0",
    }
    assert command[command.index("-np") + 1] == "16"
    measured = f"{IMAGES[raw['target']].tests}/alltoall_perf -b 1M -e 2G -f 4 -g 1 -w 3 --iters 7 -c 1"
    assert " ".join(command).endswith(f" {measured}")


def test_failing_setup_step_is_reported_and_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / INSTALLED).touch()
    job = replace(JOB, image=replace(JOB.image, prepare="cannot-prepare"))
    line = container(job)["command"][2].replace("exec bash /etc/rdma-ray/pod.sh", "exec printf %s,")
    line = line.replace("/usr/local/gib", str(tmp_path))
    done = subprocess.run(["bash", "-c", line, "nccl", "mpirun", "-np"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "mpirun,-np,")
    assert "failed: cannot-prepare" in done.stderr
    assert f"source {tmp_path}/scripts/set_nccl_env.sh\n" in done.stderr


def test_eks_job_sets_no_obsolete_variable_and_one_list_of_interfaces() -> None:
    job = made(EKS)
    assert not set(OBSOLETE) & set(environment(job))
    assert not any(name in text for name in OBSOLETE for text in container(job)["command"])
    # With both lists, MPI_Init fails (seen with Open MPI 4.1.4); the image sets the other one.
    assert container(job)["command"][2].startswith("unset OMPI_MCA_btl_tcp_if_exclude ")


@pytest.mark.parametrize(("split", "mask"), [("world", "0x0"), ("rails", "0x7")])
def test_split_sets_the_mask_of_nccl_tests(split: Any, mask: str) -> None:
    assert environment(made(GKE, Sweep(split=split)))["NCCL_TESTS_SPLIT_MASK"] == mask


def test_job_is_suspended_only_with_a_queue() -> None:
    plain, queued = one(made(GKE), "Job"), one(made(GKE, queue="gpus"), "Job")
    assert "suspend" not in plain["spec"]
    assert not any("kueue" in str(each) for each in manifests(made(GKE)))
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "annotations" not in queued["metadata"]


def test_queue_of_the_stack_admits_the_job_by_default() -> None:
    stack = changed(GKE, {"nodes.capacity": "reservation", "nodes.reservation": "ours", "queue": "kueue"})
    next_queued = parse(changed(stack, {"nodes.fallback": "flex-start-queued"}))
    own = one(made(next_queued), "Job")["metadata"]
    assert own["labels"]["kueue.x-k8s.io/queue-name"] == "gpu"
    # Nodes of a ProvisioningRequest run as long as its pods may.
    assert list(own["annotations"]) == ["provreq.kueue.x-k8s.io/maxRunDurationSeconds"]
    assert one(made(next_queued, queue="gpus"), "Job")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "annotations" not in one(made(parse(stack)), "Job")["metadata"]


def test_queued_nodes_run_as_long_as_the_pods_may() -> None:
    settings = parse(GKE)
    lent = settings.model_copy(update={"nodes": settings.nodes.model_copy(update={"capacity": "flex-start-queued"})})
    job = made(lent, queue="dws", wait_s=600, run_s=1200)
    metadata = one(job, "Job")["metadata"]
    assert metadata["annotations"] == {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "2700"}
    with pytest.raises(ValueError, match="run for at most 604800 s"):
        made(lent, queue="dws", run_s=604_800)


def test_keys_come_from_the_image_or_from_a_separate_secret() -> None:
    gke, eks = made(GKE), made(EKS)
    assert "key" not in {each["name"] for each in pod_spec(gke)["volumes"]}
    (volume,) = (each for each in pod_spec(eks)["volumes"] if each["name"] == "key")
    secret = key_secret(eks, "PRIVATE\n", "ssh-ed25519 AAAA comment\n")
    assert volume["secret"] == {"secretName": secret["metadata"]["name"], "defaultMode": 0o400}
    assert secret["stringData"]["known_hosts"] == "* ssh-ed25519 AAAA\n"
    assert "Secret" not in {each["kind"] for job in (gke, eks) for each in manifests(job)}


def test_sshd_and_ssh_use_the_files_of_the_secret() -> None:
    files, names = script_files(NCCL_JOB_POD), key_secret(made(EKS), "p", "ssh-ed25519 A c")["stringData"]
    files_used = [
        line.split()[1]
        for name in ("sshd_config", "ssh_config")
        for line in files[name].splitlines()
        if line.strip().startswith(("HostKey ", "AuthorizedKeysFile", "IdentityFile", "UserKnownHostsFile"))
    ]
    assert {Path(path).parent.as_posix() for path in files_used} == {"/etc/rdma-ray-key"}
    assert {Path(path).name for path in files_used} == set(names)
    assert "/etc/rdma-ray-key" in {each["mountPath"] for each in container(made(EKS))["volumeMounts"]}


def test_network_policy_admits_only_pods_of_the_job() -> None:
    policy = one(made(GKE), "NetworkPolicy")["spec"]
    own = {"matchLabels": {LABEL: "nccl-all-gather"}}
    assert policy == {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}


@pytest.mark.parametrize(
    ("raw", "sweep", "more", "says"),
    [
        (LOCAL, {}, {}, "target local: its nodes are processes of this machine"),
        (CPUS, {}, {}, "nodes.machine n2d-standard-8: nccl-tests needs GPUs; use `rdma-ray bench nccl`"),
        (GKE, {}, {"nodes": 1}, "--nodes 1: a network has two ends"),
        (GKE, {}, {"nodes": 3}, "--nodes 3: the stack has nodes.max 2"),
        (GKE, {}, {"name": "Nccl"}, "--name Nccl: use lower-case letters"),
        (GKE, {}, {"name": "n" * 30}, "choose a name of at most 19"),
        (GKE, {"op": "allgather"}, {}, "--op allgather: nccl-tests measures all_reduce, all_gather"),
        (GKE, {"begin": "1KiB"}, {}, "-b 1KiB: write bytes as nccl-tests does"),
        (GKE, {"end": "0"}, {}, "-e 0: write bytes"),
        (GKE, {"begin": "2G", "end": "1G"}, {}, "-b 2G: larger than -e 1G"),
    ],
)
def test_invalid_option_is_rejected_with_its_name(
    raw: dict[str, Any], sweep: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        made(raw, Sweep(**sweep), **more)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)--name N.*-b 1X.*--nodes 9"):
        made(GKE, Sweep(begin="1X"), name="N", nodes=9)


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True), st.integers(2, 1000))
def test_accepted_name_gives_valid_host_names(name: str, nodes: int) -> None:
    taken = replace(JOB, name=name, nodes=nodes)
    longest = f"{name}-{nodes - 1}.{name}.ray.svc.cluster.local"
    if len(longest) <= HOST_NAME_ROOM:
        assert taken.problems() == []
        return
    (problem,) = taken.problems()
    most = int(problem.rpartition(" ")[2])
    assert replace(taken, name="n" * most).problems() == []
    assert replace(taken, name="n" * (most + 1)).problems() != []


@given(st.integers(1, 999), st.sampled_from("KMGT"))
def test_sizes_are_powers_of_1024(number: int, unit: str) -> None:
    assert size(f"{number}{unit}") == number * 1024 ** (" KMGT".index(unit))
    assert size(str(number)) == number


def test_docs_list_every_exit_code() -> None:
    page = (ROOT / "docs" / "nccl-job.md").read_text(encoding="utf-8")
    listed = {int(line.split("|")[1]) for line in page.splitlines() if line.startswith("|") and line[2].isdigit()}
    script = script_files(NCCL_JOB_POD)["pod.sh"]
    lines = [line for line in script.splitlines() if line.startswith("readonly ") and "  #" in line]
    assert listed == {int(line.partition("=")[2].split()[0]) for line in lines}
