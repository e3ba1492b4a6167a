"""The cluster's network: an unused address range, addresses, and routes to the pods.

`ip` is a fake, and there are no machines; tests/pods has real links and routes."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from rehearsal.cluster.traces import traces
from tests.unit.tools.kubernetes.namespaces import StandIns
from tools.kubernetes import node_network
from tools.kubernetes.node_machine import identity_of
from tools.kubernetes.node_network import MAX_MACHINES, Network


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Network]:
    """Create a network on a host with these addresses and routes."""

    def network(*, addresses: Sequence[str] = (), routes: Sequence[str] = ()) -> Network:
        own = [{"local": each.split("/")[0], "prefixlen": int(each.split("/")[1])} for each in addresses]
        shown = {"address": [{"addr_info": own}], "route": [{"dst": each} for each in routes]}
        monkeypatch.setattr(node_network, "Machine", Mock())
        monkeypatch.setattr(node_network, "run", lambda argv: json.dumps(shown.get(argv[3])))
        return Network(tmp_path, tmp_path / "logs", "abc123")

    return network


@pytest.mark.parametrize(
    ("addresses", "routes", "second"),
    [
        ([], ["default"], 200),
        (["10.200.0.1/24"], [], 201),
        ([], ["10.200.0.0/15", "default"], 202),
        (["192.168.1.2/24", "10.201.7.1/32"], ["10.200.128.0/24"], 202),
    ],
)
def test_address_range_is_unused(
    make: Callable[..., Network], addresses: list[str], routes: list[str], second: int
) -> None:
    network = make(addresses=addresses, routes=routes)
    assert (network.here, network.dns) == (f"10.{second}.0.1", f"10.{second}.0.2")


def test_no_free_range_is_reported(make: Callable[..., Network]) -> None:
    with pytest.raises(RuntimeError, match=r"no range 10\.200\.0\.0/16 to 10\.249\.0\.0/16 is free"):
        make(routes=["10.0.0.0/8"])


def test_ranges_do_not_overlap(make: Callable[..., Network]) -> None:
    network = make()
    services, pods = ipaddress.ip_network(network.services), ipaddress.ip_network(network.pods)
    machines = ipaddress.ip_network(f"{network.here}/24", strict=False)
    assert not services.overlaps(pods)
    assert not services.overlaps(machines)
    assert not pods.overlaps(machines)
    subnets = [ipaddress.IPv4Network(network.subnet(index)) for index in range(MAX_MACHINES)]
    assert all(subnet.subnet_of(ipaddress.IPv4Network(network.pods)) for subnet in subnets)
    assert len(set(subnets)) == MAX_MACHINES
    addresses = {network.address(index) for index in range(MAX_MACHINES)} | {network.here, network.dns}
    assert len(addresses) == MAX_MACHINES + 2
    assert all(ipaddress.ip_address(address) in machines for address in addresses)


def test_traces_are_those_of_one_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins = StandIns(tmp_path)
    monkeypatch.setenv("PATH", stand_ins.path)
    folder = tmp_path / "cluster"
    (folder / "logs").mkdir(parents=True)
    before = traces(folder)
    mark = identity_of(folder)
    links = f"7: rr{mark}@if2: <UP>\\n8: rr000000@if2: <UP>"
    routes = f"10.200.128.0/24 via 10.200.0.10 dev rr{mark}\\n10.201.128.0/24 dev rr000000"
    stand_ins.write("ip", f"#!/bin/sh\ncase \"$*\" in *link*) printf '{links}';; *route*) printf '{routes}';; esac\n")
    stand_ins.write("nft", "#!/bin/sh\necho table ip left\n")
    (folder / "left").touch()
    (folder / "logs" / "kept").touch()
    found = {line for line in traces(folder) - before if not line.startswith("process")}
    assert found == {
        f"link: 7: rr{mark}@if2: <UP>",
        f"route: 10.200.128.0/24 via 10.200.0.10 dev rr{mark}",
        "nftables: table ip left",
        f"file: {folder / 'left'}",
    }
