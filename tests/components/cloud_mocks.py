"""A stack under Pulumi's mocks: its resources with their inputs, parents and dependencies."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime import mocks as pulumi_mocks
from pulumi.runtime import settings as pulumi_settings
from pulumi.runtime.proto import resource_pb2

from infra.settings import parse

ENDPOINT = "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com"

COMPUTED: Mapping[str, dict[str, Any]] = {
    "aws:eks/cluster:Cluster": {
        "endpoint": ENDPOINT,
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
    "random:index/randomPassword:RandomPassword": {"result": "x" * 43},
    "pulumi-python:dynamic/local:RayHead": {
        "address": "127.0.0.2:20000",
        "dashboard": "http://127.0.0.1:8265",
        "jobs": "http://127.0.0.1:8265",
        "client": "ray://127.0.0.1:10001",
        "token": "x" * 43,
        "storage": "/tmp/storage",
    },
}
"""Computed outputs that the program reads, of the clouds' resources and of the local target's."""

ANSWERS: Mapping[str, dict[str, Any]] = {
    "gcp:container/getEngineVersions:getEngineVersions": {
        "releaseChannelDefaultVersion": {"REGULAR": "1.35.1-gke.1000000"},
        "validMasterVersions": ["1.35.1-gke.1000000"],
    },
    "gcp:compute/getMachineTypes:getMachineTypes": {"machineTypes": [{"name": "the-machine"}]},
    "gcp:organizations/getProject:getProject": {"number": "123456789012"},
}
"""Results of the functions that a Google Cloud stack calls; an AWS stack calls none."""

CONFIGURATION: Mapping[str, dict[str, str]] = {
    "local": {},
    "gke": {"gcp:project": "mine"},
    "eks": {"aws:region": "us-east-1"},
}


@dataclass(frozen=True)
class Made:
    """A registered resource.

    `waits` are the URNs that it depends on, by value or by `depends_on`. `ignored` are the paths whose changes are
    ignored, `replacing` those whose changes replace the resource.
    """

    type: str
    name: str
    inputs: Mapping[str, Any]
    waits: frozenset[str]
    parent: str
    protect: bool
    ignored: frozenset[str]
    replacing: frozenset[str]


class _Recorder(pulumi_mocks.Mocks):
    def __init__(self) -> None:
        self.inputs: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.asked: list[str] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        key = (args.typ, args.name)
        assert key not in self.inputs, f"{key} is registered twice"
        self.inputs[key] = _whole(args.inputs)
        outputs = {"arn": f"arn:aws:{args.name}", **args.inputs, **COMPUTED.get(args.typ, {})}
        if args.typ == "aws:eks/cluster:Cluster":
            outputs["vpcConfig"] = {**args.inputs["vpcConfig"], "clusterSecurityGroupId": "sg-cluster"}
        return f"{args.name}-id", outputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        self.asked.append(args.token)
        assert args.token in ANSWERS, f"no stack is expected to call {args.token}"
        return ANSWERS[args.token], []


def _whole(value: Any) -> Any:
    """Return the value with integers where the engine's protocol, which has floats only, has whole numbers."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Monitor(pulumi_mocks.MockMonitor):
    """Keeps the requests, since mocks do not receive parents and dependencies."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__(recorder)
        self.requests: dict[tuple[str, str], resource_pb2.RegisterResourceRequest] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the name of the engine's method)
        self.requests[request.type, request.name] = request
        register: Any = super().RegisterResource
        return register(request)


@dataclass(frozen=True)
class Deployed:
    """The resources of a stack file by type and name, and the stack's outputs; values are known, as after an `up`.

    `asked` are the provider functions that were called, in order. `secret_token` is whether Ray's token is a secret
    output. `seconds` is the CPU time of this process from the program's first line to its last registration, without
    imports.
    """

    made: Mapping[tuple[str, str], Made]
    outputs: Mapping[str, Any]
    asked: tuple[str, ...]
    secret_token: bool
    seconds: float


def deployed(raw: Mapping[str, Any], *, stack: str = "test", config: Mapping[str, str] | None = None) -> Deployed:
    """Run the program of a stack with these settings; `config` replaces the provider's usual configuration."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    # A second set_mocks in one process would keep the first one's stack.
    reset: Any = pulumi_settings.set_root_resource
    reset(None)
    recorder = _Recorder()
    monitor = _Monitor(recorder)
    pulumi.runtime.set_mocks(recorder, project="rdma-ray", stack=stack, monitor=monitor)
    settings = parse(raw, stack=stack)
    pulumi.runtime.set_all_config(dict(CONFIGURATION[settings.target] if config is None else config))
    outputs: dict[str, Any] = {}
    secret: list[bool] = []
    target = importlib.import_module(f"infra.{settings.target}.stack")

    def program() -> None:
        exports = target.deploy(settings)
        pulumi.Output.from_input(exports).apply(outputs.update)
        pulumi.Output.from_input(exports["ray"]["token"].is_secret()).apply(secret.append)

    test: Any = pulumi.runtime.test
    # CPU time of this process, independent of other load on the machine.
    began = time.process_time()
    try:
        test(program)()
    finally:
        reset(None)
    seconds = time.process_time() - began
    requests = monitor.requests
    made = {
        key: Made(
            type=key[0],
            name=key[1],
            inputs=inputs,
            waits=frozenset(requests[key].dependencies),
            parent=requests[key].parent,
            protect=requests[key].protect,
            ignored=frozenset(requests[key].ignoreChanges),
            replacing=frozenset(requests[key].replaceOnChanges),
        )
        for key, inputs in recorder.inputs.items()
    }
    asked = tuple(recorder.asked)
    return Deployed(made=made, outputs=outputs, asked=asked, secret_token=secret == [True], seconds=seconds)
