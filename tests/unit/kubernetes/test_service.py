"""A RayService: what Ray Serve reads of its spec, and the proxies' middleware, which asks for the token.

The reviewed list of the stack file gke-service (tests/rehearsal/golden) has the other values.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.pins import RAY
from infra.kubernetes.ray_cluster import ray_cluster_spec
from infra.kubernetes.ray_service import MODULE, PYTHON_PATH, ray_service_spec
from infra.kubernetes.service_pod import authorized
from infra.kubernetes.service_pod.authorized import CONNECTION_S, TOKEN, Authorized
from tests.unit.kubernetes.test_ray import args_of
from tests.unit.stacks import EKS, GKE

SERVICE: dict[str, Any] = {"ray.mode": "service", "service.application": "app:app", "service.deployment": "Model"}
ACCEPTED = (b"authorization", b"Bearer secret")
OF_RAY = "the-token-of-ray"


@pytest.fixture(autouse=True)
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the token `secret`, in a pod that has Ray's token in its environment."""
    file = tmp_path / "auth_token"
    file.write_text("secret")
    monkeypatch.setattr(authorized, "TOKEN", file)
    monkeypatch.setenv("RAY_AUTH_TOKEN", OF_RAY)
    return file


def spec(stack: dict[str, Any], **changes: Any) -> dict[str, Any]:
    args = args_of(stack, SERVICE | {name.replace("__", "."): value for name, value in changes.items()})
    return ray_service_spec(args, ray_cluster_spec(args))


@pytest.mark.parametrize("least", [0, 3])
def test_ray_serve_reads_its_configuration(least: int) -> None:
    """A new cluster begins with replicas even if there may be none: only then it has shown that they start."""
    from ray.serve.schema import ServeDeploySchema

    wanted = {"service__minReplicas": least, "service__maxReplicas": 8, "service__arguments": ["a=b=c"]}
    config = yaml.safe_load(spec(GKE, nodes__max=4, **wanted)["serveConfigV2"])
    read = ServeDeploySchema.model_validate(config)
    [application] = read.applications
    assert application.args == {"a": "b=c", "gpus_per_replica": 1}
    [deployment] = application.deployments
    scaling = deployment.autoscaling_config
    assert isinstance(scaling, dict)
    assert (scaling["min_replicas"], scaling["initial_replicas"], scaling["max_replicas"]) == (least, max(1, least), 8)
    assert (read.http_options.port, read.proxy_location.value) == (8000, "EveryNode")


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"service__maxReplicas": 2}, False),
        ({"service__arguments": ["a=1"]}, False),
        ({"ray__idleMinutes": 30}, False),
        ({"ray__image": f"example/ray:{RAY}-2"}, True),
        ({"nodes__max": 6}, True),
        ({"ray__cpuWorkers": 2}, True),
    ],
)
@pytest.mark.parametrize("stack", [GKE, EKS])
def test_change_starts_another_cluster_or_not(stack: dict[str, Any], change: dict[str, Any], restarts: bool) -> None:
    """KubeRay compares the spec of the clusters without their numbers of workers, of which a template has a copy."""

    def compared(found: dict[str, Any]) -> dict[str, Any]:
        cluster: dict[str, Any] = found["rayClusterConfig"]
        for group in cluster["workerGroupSpecs"]:
            del group["minReplicas"], group["maxReplicas"]
        return cluster

    given = {"nodes__max": 4, "ray__cpuWorkers": 1}
    before, after = spec(stack, **given), spec(stack, **given | change)
    assert (before["serveConfigV2"] != after["serveConfigV2"]) is (not restarts)
    assert (compared(before) != compared(after)) is restarts


@pytest.mark.parametrize("stack", [GKE, EKS])
def test_every_container_with_a_proxy_finds_its_middleware(stack: dict[str, Any]) -> None:
    cluster = spec(stack, ray__cpuWorkers=1)["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        [container] = group["template"]["spec"]["containers"]
        assert {"name": "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "value": MODULE} in container["env"]
        [command] = container["command"]
        assert command.endswith(PYTHON_PATH)
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert (mounted["scripts"], mounted["serve-token"]) == ("/etc/rdma-ray/service_pod", str(TOKEN.parent))
        args, volumes = args_of(stack, SERVICE), group["template"]["spec"]["volumes"]
        assert {"name": "scripts", "configMap": {"name": f"{args.name}-scripts"}} in volumes
        assert {"name": "serve-token", "secret": {"secretName": f"{args.name}-serve-token"}} in volumes
        assert args.token_secret == f"{args.name}-token"
    said = subprocess.run(
        ["/bin/bash", "-c", f"{PYTHON_PATH} && echo $PYTHONPATH"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": "/a"},
    )
    assert said.stdout == "/etc/rdma-ray:/a\n"


def answered(
    *headers: tuple[bytes, bytes], app: Authorized | None = None, client: int = 1, **scope: Any
) -> tuple[list[Any], Any]:
    """Return what is sent for a request, and the scope that the application sees, or None."""
    seen, sent = [], []

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    asked = {"type": "http", "path": "/", "headers": list(headers), "client": ("127.0.0.1", client)} | scope
    middleware = app or Authorized(application, **authorized.middlewares()[0].kwargs)
    middleware._app = application
    asyncio.run(middleware(asked, None, send))
    return sent, seen[0] if seen else None


def test_request_with_the_token_is_passed_on_without_it() -> None:
    sent, seen = answered((b"host", b"a"), ACCEPTED)
    assert (sent[0]["status"], seen["headers"]) == (200, [(b"host", b"a")])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer secre")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"secret")],
        [(b"authorization", f"Bearer {OF_RAY}".encode())],
        [(b"authorization", "Bearer sécret".encode())],
        [ACCEPTED, (b"authorization", b"Bearer other")],
        [(b"cookie", b"ray-authentication-token=secret"), (b"x-ray-authorization", b"Bearer secret")],
    ],
)
@pytest.mark.parametrize("path", ["/", "/-/routes", "/-/healthz/", "//-/healthz"])
def test_other_requests_are_unauthorized(headers: list[tuple[bytes, bytes]], path: str) -> None:
    sent, seen = answered(*headers, path=path)
    assert (sent[0]["status"], seen) == (401, None)
    [closed], seen = answered(*headers, type="websocket", path="/-/healthz")
    assert (closed["type"], seen) == ("websocket.close", None)


def test_health_needs_no_token() -> None:
    assert answered(path="/-/healthz")[0][0]["status"] == 200


def test_proxy_without_a_token_does_not_start(token: Path) -> None:
    """Although the pod has Ray's."""
    token.write_text("\n")
    with pytest.raises(RuntimeError, match="there is no token in"):
        authorized.middlewares()
    token.unlink()
    with pytest.raises(RuntimeError, match="there is no token in"):
        authorized.middlewares()


def test_running_proxy_follows_a_new_token(token: Path) -> None:
    [made] = authorized.middlewares()
    app, new = Authorized(None, **made.kwargs), (b"authorization", b"Bearer new")  # type: ignore[arg-type]

    def statuses() -> tuple[int, int]:
        return answered(ACCEPTED, app=app)[0][0]["status"], answered(new, app=app)[0][0]["status"]

    assert statuses() == (200, 401)
    token.write_text("new\n")
    assert statuses() == (401, 200)
    for content in ("", None):
        token.write_text(content) if content is not None else token.unlink()
        assert statuses() == (401, 401)
        assert answered((b"authorization", b"Bearer "), app=app)[0][0]["status"] == 401


def test_connection_closes_after_its_time(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its own time, and one that has the client's port again starts again."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    app = Authorized(None, token)  # type: ignore[arg-type]  # `answered` sets it

    def closes(client: int) -> bool:
        sent, _ = answered(ACCEPTED, app=app, client=client)
        return (b"connection", b"close") in sent[0]["headers"]

    assert not closes(1)
    now[0] += CONNECTION_S - 1
    assert not closes(1)
    assert not closes(2)
    now[0] += 1
    assert closes(1)
    assert not closes(2)
    assert not closes(1)
    now[0] += authorized.FORGOTTEN_S
    closes(3)
    assert len(app._began) == 1
