"""The spec of an Indexed Job, and its pods' command line: neither needs Kubernetes or Ray."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.gke.names import Site
from infra.gke.workload import gcs_folder, ray_args
from infra.kubernetes.indexed_job import head_service, head_service_spec, job_spec
from infra.kubernetes.indexed_job_pod import exits
from infra.kubernetes.indexed_job_pod.pod import Pod, pod_of
from infra.kubernetes.pods import INDEXED_JOB_POD, SharedFolder, script_files
from tests.unit.stacks import gke
from workloads.exits import Exit

JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}
ENVIRONMENT = {
    "POD_IP": "10.0.0.7",
    "JOB_COMPLETION_INDEX": "1",
    "JOB_UID": "4d1c",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "secret",
}


def spec_of(changes: dict[str, Any], folder: SharedFolder | None = None) -> dict[str, Any]:
    settings = gke({**JOB, **changes})
    return job_spec(replace(ray_args(settings, "a3u-ray"), folder=folder))


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (only,) = spec["template"]["spec"]["containers"]
    return dict(only)


def pod(monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str]) -> Pod:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return pod_of(arguments)


def test_job_has_the_size_of_the_stack_file_and_no_retry() -> None:
    assert gke({**JOB, "nodes.max": 4}).ray.min_workers == 4
    spec = spec_of({"nodes.max": 4})
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert spec["backoffLimit"] == 0
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert not {"ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimitPerIndex"} & set(spec)


def test_shell_gets_the_entry_point_as_it_is() -> None:
    """The kubelet replaces variables in a container's arguments, and reads $$ as $."""
    arguments = container(spec_of({"ray.entrypoint": "echo $$ $(hostname) $POD_IP"}))["command"]
    assert arguments[-1] == "--entrypoint=echo $$$$ $$(hostname) $$POD_IP"


def test_pods_parse_the_command_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of({"nodes.max": 3, "nodes.capacity": "spot"}, gcs_folder("data", "/bucket", cached=True))
    parsed = pod(monkeypatch, container(spec)["command"][4:], ENVIRONMENT)
    assert (parsed.nodes, parsed.head_host) == (3, "a3u-ray-0.a3u-ray-head-svc")
    assert parsed.file == Path("/bucket/rdma-ray/4d1c.json")
    assert (parsed.entrypoint, parsed.everywhere) == ("python /app/train.py", False)
    assert parsed.wait_s == 168 * 3600
    assert parsed.ray == ["--num-cpus=220", "--num-gpus=8", "--metrics-export-port=8080"]


@pytest.mark.parametrize(
    ("entrypoint", "everywhere"),
    [
        ("torchrun train.py", True),
        ("python torchrun.py", False),
        ("torchrunner", False),
        ("cd /app && torchrun x", False),
    ],
)
def test_torchrun_runs_on_every_pod(entrypoint: str, everywhere: bool) -> None:
    arguments = container(spec_of({"ray.entrypoint": entrypoint, "nodes.max": 1}))["command"][4:]
    assert ("--everywhere" in arguments) == everywhere


def test_setup_of_the_fabric_runs_before_python_replaces_bash() -> None:
    first, shell, line, name, *_ = container(spec_of({}))["command"]
    assert (first, shell, name) == ("/bin/bash", "-c", "ray-node")
    assert "; done; source /usr/local/gib/scripts/set_nccl_env.sh && " in line
    assert line.endswith(f'exec python3 -m {INDEXED_JOB_POD} "$@"')


def test_service_selects_only_the_head_before_it_is_ready() -> None:
    args = ray_args(gke(JOB), "a3u-ray")
    service = head_service_spec(args)
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert args.labels.items() <= service["selector"].items()
    assert job_spec(args)["template"]["spec"]["subdomain"] == head_service(args)


def test_shared_folder_is_prepared_by_an_init_container() -> None:
    folder = SharedFolder(mount_path="/fsx", annotations={}, volume={"emptyDir": {}}, prepare=("chmod", "1777", "/fsx"))
    (first,) = spec_of({}, folder)["template"]["spec"]["initContainers"]
    assert first["command"] == ["chmod", "1777", "/fsx"]
    assert "initContainers" not in spec_of({})["template"]["spec"]


def test_longest_stack_name_gives_valid_host_names() -> None:
    name = Site("s" * 40).named("ray")
    assert len(f"{name}-999") <= 63
    assert len(f"{name}-head-svc") <= 63


def test_pod_files_import_only_python_and_ray() -> None:
    """They are a package in a ConfigMap, far below its limit of 1 MiB."""
    files = script_files(INDEXED_JOB_POD)
    assert {"__init__.py", "__main__.py", "head.py", "worker.py"} <= set(files)
    assert len(json.dumps(files)) < 200_000
    for name, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                roots = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                roots = {str(node.module).partition(".")[0]}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1, name
                assert f"{node.module}.py" in files, name
                continue
            else:
                continue
            assert roots <= {*sys.stdlib_module_names, "ray"}, name


def test_exit_codes_of_pods_and_workloads_do_not_overlap() -> None:
    pods = [value for name, value in vars(exits).items() if name.isupper()]
    assert len(pods) == len(set(pods))
    assert not set(pods) & {code.value for code in Exit}
    # 128 + N is the exit by signal N; STOPPED is that of SIGTERM.
    assert [code for code in pods if code > 125] == [exits.STOPPED] == [128 + 15]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"POD_IP": ""}, "the environment lacks POD_IP"),
        ({"RAY_AUTH_TOKEN": "", "JOB_UID": ""}, "the environment lacks JOB_UID, RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE must be token"),
        ({"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX is 2, and the Job has 2 pods"),
    ],
)
def test_pod_that_cannot_start_prints_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: dict[str, str], message: str
) -> None:
    arguments = ["--nodes=2", "--head-host=h", "--wait-s=1", "--entrypoint=true"]
    with pytest.raises(SystemExit) as end:
        pod(monkeypatch, arguments, ENVIRONMENT | wrong)
    assert end.value.code == exits.USAGE
    assert message in capsys.readouterr().err


def test_docs_list_every_exit_code() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "indexed-job.md").read_text(encoding="utf-8")
    listed = {int(line.split("|")[1]) for line in page.splitlines() if line.startswith("|") and line[2].isdigit()}
    assert listed == {value for name, value in vars(exits).items() if name.isupper()}
