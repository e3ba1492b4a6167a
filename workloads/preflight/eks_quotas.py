"""Questions about an account's quotas on AWS: of the kind of capacity, of the CPU nodes, and of networks.

A quota is enough if its limit minus what is in use holds the stack's largest size. `up` of a stack that runs already
counts its own machines twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from infra.catalog.aws import ENDPOINT_SERVICES
from infra.catalog.machines import EKS_CATALOG
from infra.settings import EksSettings
from workloads.preflight.answers import PreflightAnswer, PreflightCheck
from workloads.preflight.aws_cli import Aws
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.eks_account import account
from workloads.preflight.fields import amount, number, text


@dataclass(frozen=True)
class Quota:
    """A quota: code of its service, its own code, and its name."""

    service: str
    code: str
    name: str


# EC2 docs, ec2-instance-quotas, read 2026-11-28. A number of vCPUs each.
ON_DEMAND = {
    "p": Quota("ec2", "L-417A185B", "Running On-Demand P instances"),
    "g": Quota("ec2", "L-DB2E81BA", "Running On-Demand G and VT instances"),
}
SPOT = {
    "p4": Quota("ec2", "L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    "p5": Quota("ec2", "L-C4BD4855", "All P5 Spot Instance Requests"),
    "g": Quota("ec2", "L-3819A6DF", "All G and VT Spot Instance Requests"),
}
"""By the letter of a machine, or by its letter and generation. The page has no row for spot P6, and public lists
disagree which one it is: skypilot-org has L-C4BD4855, others L-7212CCBC."""
STANDARD = Quota("ec2", "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances")
# OpenShift's installer and others check these (public code search for the codes, read 2026-11-28).
ADDRESSES = Quota("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs")
VPCS = Quota("vpc", "L-F678F1CE", "VPCs per Region")
ENDPOINTS = Quota("vpc", "L-29B6F2EB", "Interface VPC endpoints per VPC")

SHAPES = {"p": ("p",), "g": ("g", "gr", "vt"), "standard": (*"acdhimrtz", "im", "is")}
"""Letters of the machines that a quota counts, by those of the quota. Others, such as trn, have their own."""
ENDED = ("expired", "cancelled", "failed", "payment-failed", "unsupported", "scheduled", "assessing")
"""States in which a reservation holds no machine, so that it does not count (EC2 API, CapacityReservation; that others
count also without instances: EC2 docs, capacity reservations; unverified, 2026-11)."""
ELSEWHERE = ("spot", "scheduled", "capacity-block")
"""Kinds of instances that on-demand quotas do not count (EC2 API, Instance: instanceLifecycle, read 2026-11-28)."""
INSTANCES = ("ec2", "describe-instances", "--filters=Name=instance-state-name,Values=pending,running")
RESERVATIONS = ("ec2", "describe-capacity-reservations")


def quota_checks(aws: Aws, settings: EksSettings) -> Iterator[PreflightCheck]:
    """Yield the questions about the quotas that the stack's resources take."""
    machine, nodes, capacity = settings.machine, settings.nodes.max, settings.nodes.capacity
    vcpus, family = machine.vcpus or 0, family_of(machine.name)
    words = f"{nodes} x {machine.name} of {vcpus} vCPUs"
    if capacity == "on-demand":
        use = partial(on_demand_vcpus, aws, family[0])
        yield _check(aws, ON_DEMAND[family[0]], nodes * vcpus, words, use)
    elif capacity == "spot" and (quota := SPOT.get(family) or SPOT.get(family[0])):
        yield _check(aws, quota, nodes * vcpus, words, partial(spot_vcpus, aws, quota))
    elif capacity == "spot":
        yield PreflightCheck(f"quota of spot {family}", lambda: [_unnamed(aws, family, nodes * vcpus, words)])
    cpus, most = settings.cpu_node_vcpus, settings.cluster.system_nodes
    of_cpus = f"{most} x {settings.cluster.system_machine} of {cpus} vCPUs"
    yield _check(aws, STANDARD, most * cpus, of_cpus, partial(on_demand_vcpus, aws, "standard"))
    if settings.on_users_network:
        return
    yield _check(aws, VPCS, 1, "1 VPC", partial(_vpcs, aws))
    if settings.access.egress == "nat":
        addresses = partial(_count, aws, "Addresses", "ec2", "describe-addresses")
        yield _check(aws, ADDRESSES, 1, "1 address of the NAT gateway", addresses)
    else:
        count = len(ENDPOINT_SERVICES)
        yield _check(aws, ENDPOINTS, count, f"{count} endpoints in a new VPC", lambda: 0)


def family_of(machine: str) -> str:
    """Return the letters and the generation of a machine type, such as p5 of p5en.48xlarge."""
    found = re.match(r"[a-z]+\d+", machine)
    return found[0] if found else machine


def _check(aws: Aws, quota: Quota, needed: int, words: str, use: Callable[[], float]) -> PreflightCheck:
    return PreflightCheck(f"quota {quota.name}", lambda: [quota_answer(aws, quota, needed, words, use)])


def limit_of(aws: Aws, quota: Quota) -> float:
    """Return the applied limit of a quota. Raises NoAnswerError, also if the account has only a default for it."""
    asked = quotas(quota.service)
    for row in aws.rows("Quotas", *asked):
        if row.get("QuotaCode") == quota.code:
            limit = number(row, "Value")
            # An error of this quota is in its row (Service Quotas API, ErrorReason).
            if limit is None or limit < 0 or row.get("ErrorReason"):
                break
            return limit
    page = f"look at https://console.aws.amazon.com/servicequotas/home/services/{quota.service}/quotas/{quota.code}"
    raise NoAnswerError("broken", "the answer has no limit of it", page, aws.line(*asked))


def quotas(service: str) -> tuple[str, ...]:
    """Return the command that lists the quotas of a service, all in one."""
    return ("service-quotas", "list-service-quotas", f"--service-code={service}")


def quota_answer(aws: Aws, quota: Quota, needed: int, words: str, use: Callable[[], float]) -> PreflightAnswer:
    """Judge a quota.

    Args:
        words: What the needed amount consists of.
        use: Returns what is in use. Raises NoAnswerError.
    """
    if needed <= 0:
        raise aws.unclear("the catalog does not have the vCPUs of the machine", *quotas(quota.service))
    limit, said = limit_of(aws, quota), aws.asked(*quotas(quota.service))
    used = use() if limit >= needed else 0
    spare = f"; {amount(used)} of {amount(limit)} in use" if limit >= needed else f"; the limit is {amount(limit)}"
    check, found = f"quota {quota.name}", f"needs {needed:,} ({words}){spare}"
    if limit - used >= needed:
        return said.ok(check, found)
    total = f"{amount(used + needed)} with what is in use" if used else amount(needed)
    request = raise_command(aws, quota.service, quota.code, used + needed)
    return said.not_ok(check, "quota", found, f"request {total}: {request}")


def raise_command(aws: Aws, service: str, code: str, value: float) -> str:
    """Return the command that requests a higher limit."""
    what = (f"--service-code={service}", f"--quota-code={code}", f"--desired-value={value:.0f}")
    return aws.line("service-quotas", "request-service-quota-increase", *what)


def _unnamed(aws: Aws, family: str, needed: int, words: str) -> PreflightAnswer:
    """Say that no source names the quota of a machine, and which ones the account has that may be it."""
    asked = quotas("ec2")
    # Of machines of this letter: "All P5 Spot Instance Requests".
    pattern = re.compile(rf"All .*\b{family[0].upper()}\d.*Spot Instance Requests")
    names = [
        f"{name}: {amount(limit)}"
        for row in aws.rows("Quotas", *asked)
        if (name := text(row, "QuotaName")) and pattern.search(name) and (limit := number(row, "Value")) is not None
    ]
    listed = f"; the account has {', '.join(sorted(names)[:4])}" if names else ""
    return aws.asked(*asked).unknown(
        f"quota of spot {family}",
        f"needs {needed:,} ({words}); AWS documents no spot quota of {family}{listed}",
        "ask AWS Support which quota it is, or start one spot instance",
    )


def on_demand_vcpus(aws: Aws, kind: str) -> float:
    """Return the vCPUs that an on-demand quota counts: of instances and of reservations, used or not.

    Capacity Blocks have their own quota. Raises NoAnswerError.
    """
    instances, own = list(_instances(aws)), account(aws)
    types = {str(each.get("InstanceType")): _vcpus_of(each) for each in instances}
    total, reserved = 0.0, set()
    for row in aws.rows("CapacityReservations", *RESERVATIONS):
        machine, count = text(row, "InstanceType"), number(row, "TotalInstanceCount")
        theirs = isinstance(row.get("OwnerId"), str) and row.get("OwnerId") != own
        if theirs or row.get("ReservationType") == "capacity-block" or row.get("State") in ENDED:
            continue
        if machine is None or _counts(machine, kind):
            vcpus = _vcpus_of_type(machine or "") or types.get(machine or "")
            if vcpus is None or count is None or count < 0:
                raise aws.unclear(f"the vCPUs of a reservation of {machine} are not known", *RESERVATIONS)
            reserved.add(text(row, "CapacityReservationId"))
            total += count * vcpus
    for each in instances:
        machine, held = text(each, "InstanceType"), text(each, "CapacityReservationId")
        if each.get("InstanceLifecycle") in ELSEWHERE or (held is not None and held in reserved):
            continue
        if machine is None or _counts(machine, kind):
            total += _known(aws, each)
    return total


def spot_vcpus(aws: Aws, quota: Quota) -> float:
    """Return the vCPUs of the spot instances that a quota counts. Raises NoAnswerError."""
    families = {"L-7212CCBC": ("p2", "p3", "p4"), "L-C4BD4855": ("p5",)}.get(quota.code)
    total = 0.0
    for each in _instances(aws):
        machine = text(each, "InstanceType")
        if each.get("InstanceLifecycle") != "spot":
            continue
        counts = machine is None or (family_of(machine) in families if families else _counts(machine, "g"))
        total += _known(aws, each) if counts else 0
    return total


def _instances(aws: Aws) -> Iterator[Mapping[str, Any]]:
    for row in aws.rows("Reservations", *INSTANCES):
        instances = row.get("Instances")
        if not isinstance(instances, list) or not all(isinstance(each, Mapping) for each in instances):
            raise aws.unclear("the answer has no list Instances", *INSTANCES)
        yield from instances


def _counts(machine: str, kind: str) -> bool:
    letters = re.match(r"[a-z]+", machine)
    if letters is None:
        return True
    return letters[0] in SHAPES[kind]


def _known(aws: Aws, instance: Mapping[str, Any]) -> float:
    vcpus = _vcpus_of(instance)
    if vcpus is None:
        raise aws.unclear(f"the vCPUs of a {text(instance, 'InstanceType')} are not known", *INSTANCES)
    return vcpus


def _vcpus_of(instance: Mapping[str, Any]) -> float | None:
    """Return the vCPUs of an instance: those of its type, which a quota counts, or its own."""
    if vcpus := _vcpus_of_type(text(instance, "InstanceType") or ""):
        return vcpus
    cores, threads = number(instance, "CpuOptions", "CoreCount"), number(instance, "CpuOptions", "ThreadsPerCore")
    return cores * threads if cores and threads and cores > 0 and threads > 0 else None


def _vcpus_of_type(machine: str) -> float | None:
    """Return the vCPUs of a machine type by its size; None if the size does not tell them."""
    if (row := EKS_CATALOG.get(machine)) and row.vcpus:
        return row.vcpus
    size = re.search(r"\.(\d{0,3})xlarge$", machine, re.ASCII)
    return 4.0 * int(size[1] or 1) if size else None


def _vpcs(aws: Aws) -> float:
    asked, own = ("ec2", "describe-vpcs"), account(aws)
    rows = aws.rows("Vpcs", *asked)
    # Those that another account shares do not count.
    return len([row for row in rows if row.get("OwnerId") == own or not isinstance(row.get("OwnerId"), str)])


def _count(aws: Aws, key: str, *asked: str) -> float:
    return len(aws.rows(key, *asked))
