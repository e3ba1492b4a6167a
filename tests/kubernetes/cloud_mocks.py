"""The resources of a cloud's stack, under Pulumi's mocks."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pulumi
from pulumi.runtime import mocks as pulumi_mocks
from pulumi.runtime import settings as pulumi_settings

from infra.settings import parse

COMPUTED: Mapping[str, dict[str, Any]] = {
    "aws:eks/cluster:Cluster": {
        "endpoint": "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com",
        "certificateAuthority": {"data": "Q0E="},
    },
    "aws:eks/nodeGroup:NodeGroup": {"resources": [{"autoscalingGroups": [{"name": "eks-gpu-1"}]}]},
    "aws:ec2/launchTemplate:LaunchTemplate": {"latestVersion": 1},
    "aws:kms/key:Key": {"keyId": "key-1"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "dnsName": "fs-1.fsx.us-east-1.amazonaws.com",
        "mountName": "abcdefgh",
    },
    "gcp:container/cluster:Cluster": {
        "endpoint": "10.0.0.2",
        "masterAuth": {"clusterCaCertificate": "Q0E="},
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.us-central1.gke.goog"}},
    },
    "gcp:serviceaccount/account:Account": {"email": "nodes@mine.iam", "member": "serviceAccount:nodes@mine.iam"},
    "random:index/randomId:RandomId": {"hex": "0a1b2c3d"},
}
"""Computed outputs that the program reads."""

ANSWERS: Mapping[str, dict[str, Any]] = {
    "gcp:container/getEngineVersions:getEngineVersions": {
        "releaseChannelDefaultVersion": {"REGULAR": "1.35.1-gke.1000000"},
        "releaseChannelLatestVersion": {"REGULAR": "1.35.1-gke.1000000"},
    },
    "gcp:compute/getMachineTypes:getMachineTypes": {"machineTypes": [{"name": "the-machine"}]},
    "gcp:organizations/getProject:getProject": {"number": "123456789012"},
}
"""Results of the functions that a Google Cloud stack calls; an AWS stack calls none."""


@dataclass(frozen=True)
class Made:
    """A registered resource."""

    type: str
    inputs: Mapping[str, Any]
    name: str = ""


class _Recorder(pulumi_mocks.Mocks):
    def __init__(self) -> None:
        self.made: list[Made] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.made.append(Made(args.typ, _whole(args.inputs), args.name))
        outputs = {"arn": f"arn:aws:{args.name}", **args.inputs, **COMPUTED.get(args.typ, {})}
        if args.typ == "random:index/randomPassword:RandomPassword":
            outputs["result"] = f"{args.name}-".ljust(43, "x")  # no two are the same
        if args.typ == "aws:eks/cluster:Cluster":
            outputs["vpcConfig"] = {**args.inputs["vpcConfig"], "clusterSecurityGroupId": "sg-cluster"}
        return f"{args.name}-id", outputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        return ANSWERS[args.token], []


def _whole(value: Any) -> Any:
    """Return the value with integers where the engine's protocol, which has floats only, has whole numbers."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unregistered(_hook: object) -> asyncio.Future[None]:
    """Register no hook of a resource: mocks have no engine that would run it."""
    done: asyncio.Future[None] = asyncio.get_event_loop().create_future()
    done.set_result(None)
    return done


def deployed(raw: Mapping[str, Any], *, stack: str, config: Mapping[str, str]) -> list[Made]:
    """Run the program of a stack with these settings and the providers' configuration; return its resources."""
    settings = parse({**raw, "protect": False}, stack=stack)
    target = importlib.import_module(f"infra.{settings.target}.stack")
    return recorded(lambda: target.deploy(settings), stack=stack, config=config)


def recorded(program: Callable[[], None], *, stack: str = "any", config: Mapping[str, str] | None = None) -> list[Made]:
    """Run a program with the providers' configuration; return its resources."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    # A second set_mocks in one process would keep the first one's stack.
    reset: Any = pulumi_settings.set_root_resource
    reset(None)
    recorder = _Recorder()
    pulumi.runtime.set_mocks(recorder, project="rdma-ray", stack=stack)
    pulumi.runtime.set_all_config(dict(config or {}))
    test: Any = pulumi.runtime.test
    try:
        with patch("pulumi.resource_hooks.register_resource_hook", _unregistered):
            test(program)()
    finally:
        reset(None)
    return recorder.made
