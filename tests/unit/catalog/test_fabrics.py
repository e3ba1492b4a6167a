"""The catalog of fabrics: a made-up row needs no other file, and rows for any cluster know neither GKE nor EKS."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from infra.catalog.fabrics import FABRICS, TRANSPORTS, Resource
from infra.catalog.pins import Chart
from infra.fabric import GpuPod, whole_node, with_fabric

PLAIN = GpuPod(
    annotations={}, node_selector={}, tolerations=(), resources=whole_node(8, 64, 8), volumes=(), volume_mounts=()
)
CHART = Chart("example-plugin", "9.8.7", "https://example.com/charts", "example.com/plugin")


def test_a_made_up_row_is_all_that_a_fabric_needs() -> None:
    # In its own process, because the settings' models take the names of fabrics from the table when they are defined.
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("per", "count"), [("pod", "1"), ("gpu", "8"), ("nic", "4")])
def test_device_plugins_resource_is_counted_as_its_cluster_does(per: str, count: str) -> None:
    row = replace(FABRICS["rdma"], resource=Resource("nvidia.com/hostdev", per=per))  # type: ignore[arg-type]
    container = with_fabric(PLAIN, row, nics=4, gpus=8).container()
    assert container["resources"]["requests"]["nvidia.com/hostdev"] == count
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert {each["name"] for each in container["env"]} == {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}


def test_pods_without_rdma_need_nothing_and_unknown_nics_are_not_counted() -> None:
    assert with_fabric(PLAIN, FABRICS["socket"], nics=None, gpus=8).resources == PLAIN.resources
    assert with_fabric(PLAIN, FABRICS["rdma"], nics=None, gpus=8).resources["limits"]["rdma/ib"] == "1"
    for name in ("efa", "managed-dranet"):
        with pytest.raises(ValueError, match="not known"):
            with_fabric(PLAIN, FABRICS[name], nics=None, gpus=8)


def main() -> None:
    """Follow a made-up row from the settings to `doctor`."""
    row = replace(TRANSPORTS["efa"], name="example", networks=("Example*",), provider=None, plugin="nccl-example")
    TRANSPORTS["example"] = row = replace(row, libraries=("libexample.so.1",), needs="libexample")
    resource = Resource("example.com/nic")
    FABRICS["example"] = replace(FABRICS["efa"], name="example", transport=row, resource=resource, chart=CHART)

    from infra.eks.node_groups import node_devices
    from infra.outputs import Outputs
    from infra.plan import plan
    from infra.settings import parse
    from tests.kubernetes.stack_objects import registered, stacks
    from tests.unit.stacks import eks
    from tests.workloads.doctor import states
    from tests.workloads.nccl.test_evidence_log import facts
    from workloads.doctor.diagnosis import diagnose
    from workloads.nccl.hunt.options import HuntOptions
    from workloads.nccl.judge import checks
    from workloads.nccl.judge.expectation import Expectation
    from workloads.nccl.judge.measurement import Measurement

    settings = eks({"fabric": "example"})
    pod = plan(settings).pod
    assert pod is not None
    assert pod.resources["limits"]["example.com/nic"] == "16"
    assert node_devices(settings, settings.machine) == {"nvidia.com/gpu": 8, "example.com/nic": 16}

    ours, theirs = next((ours | {"fabric": "example"}, theirs) for name, ours, theirs in stacks() if name == "eks")
    states._program = lambda _: (parse(ours), registered(ours, theirs, "eks"))  # type: ignore[assignment]
    state = states.cloud("eks")
    assert isinstance(state.outputs, Outputs)
    assert (state.outputs.fabric.rdma, state.outputs.fabric.nics) == ("example", 16)

    hunt = HuntOptions().resolve(state.outputs)
    assert hunt.network is not None
    assert hunt.network.includes("Example_v2")
    expected = Expectation(machine="p5en.48xlarge", nodes=2, transport=hunt.transport)
    log = facts("gib-two-nodes")
    for name, wrong in (("gIB", {"other-plugin"}), ("Example", set())):
        measured = Measurement(form="nccl-tests", runs=(), facts=log.model_copy(update={"plugins": [name]}))
        found = checks.transport(measured, expected)
        assert {each.kind for each in found} & {"other-plugin"} == wrong

    lacking = diagnose(state).findings
    assert [each.check for each in lacking] == ["nics"], lacking
    assert "allocatable example.com/nic: 0" in lacking[0].evidence
    for node in state.objects("nodes"):
        node["status"]["allocatable"]["example.com/nic"] = "16"
    assert diagnose(state).findings == []
    state.probes[1].libraries["libexample.so.1"] = False
    [finding] = diagnose(state).findings
    assert "libexample.so.1" in finding.cause


if __name__ == "__main__":
    main()
