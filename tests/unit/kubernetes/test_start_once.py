"""A RayJob's entry point starts once: what its text does in a shell, and which heads the init container marks."""

from __future__ import annotations

import io
import json
import shlex
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.pins import RAY_API
from infra.kubernetes import init_pod
from infra.kubernetes.indexed_job_pod import exits
from infra.kubernetes.ray_cluster import ray_job_spec
from infra.kubernetes.start_once import LOST, MARK, REFUSAL
from tests.unit.kubernetes.test_ray import JOB, args_of
from tests.unit.stacks import EKS, GKE, changed
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

JOB_PATH = f"/apis/{RAY_API}/namespaces/ray/rayjobs/train"


def answer_init_pod(
    monkeypatch: pytest.MonkeyPatch, account: Path, path: str, answer: dict[str, Any] | Exception | int
) -> list[float]:
    """Let the API server answer the init container at a path, with an object, an error or a status of HTTP.

    Returns the pauses that it makes, in seconds. `account` is the folder with its token.
    """

    def answered(request: Any, **_: Any) -> Any:
        assert request.full_url == f"https://[fd00::1]:443{path}"
        assert request.headers == {"Authorization": "Bearer token"}
        if isinstance(answer, int):
            raise urllib.error.HTTPError(request.full_url, answer, "refused", Message(), None)
        if isinstance(answer, Exception):
            raise answer
        return io.StringIO(json.dumps(answer))

    (account / "token").write_text("token\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)
    monkeypatch.setattr(urllib.request, "urlopen", answered)
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def rendered(stack: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the RayJob that `render rayjob` prints for a stack."""
    settings = {f"rdma-ray:{key}": value for key, value in changed(stack, {"nodes.max": 2}).items()}
    file.write_text(yaml.safe_dump({"config": settings}))
    *_, job = manifests("job", Request.of(["bench", "multigpu"]), ManifestOptions(stack_file=file))
    spec: dict[str, Any] = job["spec"]
    return spec


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
@pytest.mark.parametrize("of", ["stack", "render"])
def test_second_start_is_refused(stack: dict[str, Any], of: str, tmp_path: Path) -> None:
    """By the shell, as Ray runs it. The entry point has its own exit code, and is read as it was written."""
    words = "cd / && for code in 7; do exit $code; done # comment"
    if of == "stack":
        spec = ray_job_spec(args_of(stack, JOB | {"ray.entrypoint": words}))
        line, code = spec["entrypoint"], 7
    else:
        spec = rendered(stack, tmp_path / "Pulumi.mine.yaml")
        line = spec["entrypoint"].replace("rdma-ray bench multigpu", "echo STARTED")
        code = 0
    assert (spec["submissionMode"], spec["backoffLimit"]) == ("HTTPMode", 0)
    line = line.replace(MARK, shlex.quote(str(tmp_path / "mark")))
    first, second = (subprocess.run(line, shell=True, capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, first.stderr) == (code, "")
    assert (second.returncode, second.stdout) == (LOST, "")
    assert REFUSAL in second.stderr
    assert exits.PEER_LOST == LOST


@pytest.mark.parametrize(
    ("status", "marked"),
    [
        ("Initializing", False),
        # KubeRay has written it before it submits.
        ("Running", True),
        ("Complete", True),
        ("Suspending", True),
        ("Retrying", True),
        (404, True),
        (403, None),
    ],
)
def test_later_heads_are_marked(
    status: str | int, marked: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer the pod does not start."""
    answer = status if isinstance(status, int) else {"status": {"jobDeploymentStatus": status}}
    answer_init_pod(monkeypatch, tmp_path, JOB_PATH, answer)
    mark = tmp_path / "mark"
    monkeypatch.setattr(sys, "argv", ["x", f"--object={JOB_PATH}", f"--account={tmp_path}", f"--mark={mark}"])
    if marked is None:
        with pytest.raises(SystemExit):
            init_pod.main()
    else:
        init_pod.main()
        # A node that restarts runs the init containers of a pod again.
        init_pod.main()
    assert mark.exists() is bool(marked)
