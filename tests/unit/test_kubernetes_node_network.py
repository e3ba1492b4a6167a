"""The cluster's network: an unused address range, addresses, and routes to the pods.

`ip` and the machines are fakes; tests/pods has real links and routes."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cluster.traces import traces
from tests.unit.namespaces import StandIns
from tools.kubernetes import node_network
from tools.kubernetes.node_machine import identity_of
from tools.kubernetes.node_network import MAX_MACHINES, Network


class FakeMachine:
    """A machine that records the commands run on it."""

    def __init__(self, name: str, *_: object, **options: Any) -> None:
        self.name = name
        self.pid = 4000 + len(name)
        self.mounts = options.get("mounts", [])
        self.ran: list[str] = []
        self.stopped = False

    def run(self, argv: list[str]) -> str:
        self.ran.append(" ".join(argv))
        return ""

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    found = StandIns(tmp_path)
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.setattr(node_network, "Machine", FakeMachine)
    answers(found, addresses=[], routes=[])
    return found


def answers(stand_ins: StandIns, *, addresses: list[str], routes: list[str]) -> None:
    """Set the output of `ip -json … show`: addresses with prefixes, and routes."""
    own = [{"local": each.split("/")[0], "prefixlen": int(each.split("/")[1])} for each in addresses]
    shown = {"address": [{"addr_info": own}], "route": [{"dst": each} for each in routes]}
    cases = "".join(f"*{name}*) echo '{json.dumps(found)}';;\n" for name, found in shown.items())
    stand_ins.write("ip", f'#!/bin/sh\necho "ip $*" >> NOTES\ncase "$*" in -json*) case "$*" in\n{cases}esac;; esac\n')


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
    stand_ins: StandIns, tmp_path: Path, addresses: list[str], routes: list[str], second: int
) -> None:
    answers(stand_ins, addresses=addresses, routes=routes)
    network = Network(tmp_path, tmp_path / "logs", "abc123")
    assert (network.here, network.dns) == (f"10.{second}.0.1", f"10.{second}.0.2")


def test_no_free_range_is_reported(stand_ins: StandIns, tmp_path: Path) -> None:
    answers(stand_ins, addresses=[], routes=["10.0.0.0/8"])
    with pytest.raises(RuntimeError, match=r"no range 10\.200\.0\.0/16 to 10\.249\.0\.0/16 is free"):
        Network(tmp_path, tmp_path / "logs", "abc123")


def test_ranges_do_not_overlap(stand_ins: StandIns, tmp_path: Path) -> None:
    assert stand_ins
    network = Network(tmp_path, tmp_path / "logs", "abc123")
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


def test_every_machine_has_routes_to_all_pods(stand_ins: StandIns, tmp_path: Path) -> None:
    network = Network(tmp_path, tmp_path / "logs", "abc123")
    one, two = FakeMachine("one"), FakeMachine("second")
    network.join(one, 0)  # type: ignore[arg-type]
    network.join(two, 1)  # type: ignore[arg-type]
    ours = network.machine.ran  # type: ignore[attr-defined]
    assert f"ip link add node1 type veth peer name eth0 netns {two.pid}" in ours
    for way in ("10.200.128.0/24 via 10.200.0.10", "10.200.129.0/24 via 10.200.0.11"):
        assert f"ip route replace {way}" in ours
    for ran in (stand_ins.asked, one.ran, two.ran):
        assert "ip route add 10.200.128.0/17 via 10.200.0.2" in ran
    assert "ip address add 10.200.0.11/24 dev eth0" in two.ran


def test_too_many_machines_are_rejected(stand_ins: StandIns, tmp_path: Path) -> None:
    assert stand_ins
    network = Network(tmp_path, tmp_path / "logs", "abc123")
    with pytest.raises(ValueError, match="64 machines at most"):
        network.join(FakeMachine("more"), MAX_MACHINES)  # type: ignore[arg-type]


def test_only_cluster_names_resolve(stand_ins: StandIns, tmp_path: Path) -> None:
    assert stand_ins
    network = Network(tmp_path, tmp_path / "logs", "abc123")
    [[kind, source, place]] = network.machine.mounts  # type: ignore[attr-defined]
    assert (kind, place) == ("--bind", str(Path("/etc/resolv.conf").resolve()))
    assert Path(source).read_text() == f"nameserver {network.dns}\noptions ndots:1\n"


def test_failed_link_leaves_no_machine(stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeMachine] = []

    def machine(*arguments: Any, **options: Any) -> FakeMachine:
        made.append(FakeMachine(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(node_network, "Machine", machine)
    stand_ins.write(
        "ip", "#!/bin/sh\ncase \"$*\" in -json*) echo '[]';; *) echo 'RTNETLINK answers: denied' >&2; exit 2;; esac\n"
    )
    with pytest.raises(RuntimeError, match=r"ip link add rrabc123 type veth .*: RTNETLINK answers: denied"):
        Network(tmp_path, tmp_path / "logs", "abc123")
    assert made[0].stopped


def test_link_name_fits_the_kernel_limit(stand_ins: StandIns, tmp_path: Path) -> None:
    """A link's name has 15 characters at most."""
    Network(tmp_path, tmp_path / "logs", "abc123")
    [made] = [line for line in stand_ins.asked if line.startswith("ip link add")]
    assert len(made.split()[3]) <= 15


def test_traces_are_those_of_one_cluster(stand_ins: StandIns, tmp_path: Path) -> None:
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
