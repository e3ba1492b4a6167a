"""Spec of a RayService: one Ray Serve application behind a Service that outlives its Ray clusters. Imports no Pulumi.

KubeRay sends `serveConfigV2` to the running cluster. Any other change of the spec starts a second cluster; when all of
its applications run, the Services select its pods, and the first cluster ends after a delay (KubeRay 1.6.2:
ray-operator/controllers/ray/rayservice_controller.go). docs/serving.md has what each setting changes.
"""

from __future__ import annotations

from typing import Any

import yaml

from infra.catalog.names import SERVE_PORT
from infra.kubernetes.pods import SCRIPTS, SERVICE_POD, RayArgs, scripts_mount, scripts_volume, variable
from infra.kubernetes.service_pod.authorized import CONNECTION_S, HEALTH, TOKEN
from infra.settings.common import pairs

REQUEST_S = 300
"""Seconds that a request may still take after its cluster or replica was asked to end (our choice): streamed answers of
language models last for minutes. An upgrade keeps the nodes of the old cluster for as long."""
IDLE_NODE_S = 60
"""Seconds after which a node without replicas is released. Before that, `idleMinutes` have passed without a request."""
FULL_S = "0.02"
"""Longest pause, in seconds, before a proxy asks again after all replicas were full. Ray's 0.5 s leave them idle
(github.com/ray-project/ray/issues/52609): a replica that takes 16 requests at a time answered 377 a second on 8
connections, and on 64 connections 19 with Ray's value and 170 with this one (2026-11-24, two cores). At most 50
tasks of a proxy ask (Ray 2.60: serve/_private/request_router/request_router.py)."""

SERVE_TOKEN = "serve-token"
"""Volume with the token of the requests."""
PYTHON_PATH = f'export PYTHONPATH="{SCRIPTS}${{PYTHONPATH:+:$PYTHONPATH}}"'
"""Command that runs before Ray's and lets Ray find the middleware; an image may already set a path."""
MODULE = f"{SERVICE_POD}.authorized:middlewares"


def ray_service_spec(args: RayArgs, cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a RayService with the spec of its clusters."""
    return {
        "serveConfigV2": serve_config(args),
        "upgradeStrategy": {"type": "NewCluster"},
        "rayClusterDeletionDelaySeconds": CONNECTION_S + REQUEST_S,
        "rayClusterConfig": cluster,
    }


def serve_config(args: RayArgs) -> str:
    """Return the configuration of Ray Serve, as YAML.

    Its numbers of replicas override those of the deployment, so that a change of them restarts no replica; a change of
    `args` does (Ray 2.60: serve/_private/application_state.py).
    """
    service = args.settings.service
    replicas = {
        "min_replicas": service.min_replicas,
        # With 0, an upgrade would switch to a cluster that has loaded no model, and may be unable to.
        "initial_replicas": max(1, service.min_replicas),
        "max_replicas": service.max_replicas,
        "target_ongoing_requests": service.ongoing_requests,
        "downscale_delay_s": 60 * args.settings.ray.idle_minutes,
    }
    application = {
        "name": "default",
        "route_prefix": "/",
        "import_path": service.application,
        "args": {**dict(pairs(service.arguments)), "gpus_per_replica": service.gpus_per_replica},
        "deployments": [
            {
                "name": service.deployment,
                "max_ongoing_requests": 2 * service.ongoing_requests,
                "graceful_shutdown_timeout_s": REQUEST_S,
                "autoscaling_config": replicas,
            }
        ],
    }
    # EveryNode: with replicas, and the head, which holds requests back while there is no replica.
    options = {"host": "0.0.0.0", "port": SERVE_PORT}
    config = {
        "proxy_location": "EveryNode",
        "http_options": options,
        # A line for each request, twice, on the disks of the nodes.
        "logging_config": {"enable_access_log": False},
        "applications": [application],
    }
    return yaml.safe_dump(config, sort_keys=False)


def serving(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container of Ray whose proxy of Ray Serve requires the service's token; see `serving_volumes`."""
    return {
        **container,
        "ports": [*container.get("ports", ()), {"containerPort": SERVE_PORT, "name": "serve"}],
        "env": [
            *container["env"],
            variable("RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", MODULE),
            # Both would answer without calling it (Ray 2.60: serve/_private/constants.py; off by default).
            variable("RAY_SERVE_ENABLE_HA_PROXY", "0"),
            variable("RAY_SERVE_ENABLE_DIRECT_INGRESS", "0"),
            variable("RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S", FULL_S),
        ],
        "volumeMounts": [
            *container.get("volumeMounts", ()),
            scripts_mount(f"{SCRIPTS}/{SERVICE_POD}"),
            {"name": SERVE_TOKEN, "mountPath": str(TOKEN.parent), "readOnly": True},
        ],
    }


def serving_volumes(args: RayArgs) -> list[dict[str, Any]]:
    """Return the volumes of a pod with such a container: the middleware, and the token."""
    return [scripts_volume(args.scripts), {"name": SERVE_TOKEN, "secret": {"secretName": args.serve_secret}}]


def ready_when_serving() -> dict[str, Any]:
    """Return the readiness probe of a worker: its proxy takes requests.

    KubeRay's own runs wget, which an image may lack, and every 5 s (1.6.2: controllers/ray/common/pod.go). The Service
    sends nothing to a worker that is not ready; a proxy says so 30 s before it ends (Ray 2.60: serve/_private/
    constants.py, PROXY_MIN_DRAINING_PERIOD_S). One slow answer of a busy proxy does not count.
    """
    get = {"path": HEALTH, "port": SERVE_PORT}
    return {"httpGet": get, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3}
