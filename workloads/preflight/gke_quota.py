"""Quotas of a project on Google Cloud, against the most that a stack takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.catalog.gcp import LOCAL_SSD_GB
from infra.settings import GkeSettings
from workloads.preflight.answers import PreflightAnswer
from workloads.preflight.fields import amount, entries, has, number, text, texts
from workloads.preflight.gcloud import Question, Reply

ALLOCATION = "Compute Engine docs, allocation quotas (compute/resource-usage), read 2026-11"
FLEX_QUOTA = (
    "The Startup's Guide to GPU Access on Google Cloud, part 2 (gist.github.com/ankdeshm), read 2026-11-28: DWS Flex "
    "consumes the preemptible quota of the GPU"
)
SPOT_QUOTA = (
    "Compute Engine docs, create-use-spot: without preemptible quota, Spot VMs consume that of standard VMs; "
    "hail-is/hail #10588, 2021-06-25: Google suggests to take a preemptible quota of 0 for none"
)
NAT_QUOTA = "Cloud NAT docs, quota: NAT addresses count as static and as in-use addresses, read 2026-11"
FAMILY_QUOTA = (
    "Cloud Quotas docs, example of a rollout and implement-common-use-cases: dimensionsInfos, read 2026-11-28"
)

PREEMPTIBLE = ("flex-start", "flex-start-queued", "spot")
"""Kinds of capacity that count as preemptible (FLEX_QUOTA; SPOT_QUOTA)."""
CPU_METRICS = {"e2": "CPUS", "n1": "CPUS", "n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS", "c2d": "C2D_CPUS"}
"""Quota of the vCPUs of a family of machines (ALLOCATION; Compute API v1, Quota.metric)."""
DISK_METRICS = {"hyperdisk-balanced": "HDB_TOTAL_GB", "pd-balanced": "SSD_TOTAL_GB", "pd-ssd": "SSD_TOTAL_GB"}
"""Quota of the boot disks of nodes, GB (ALLOCATION)."""
REGIONAL_GPUS = ("L4",)
"""GPUs whose standard quota is one of the region's; that of newer ones is per family (Compute API v1, Quota.metric)."""
FAMILY_ID = "GPUS-PER-GPU-FAMILY-per-project-region"


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a stack takes of a quota.

    Args:
        amount: The most that it may take.
        least: What it certainly takes of `amount`: less than that left is not ok, less than `amount` is unknown.
        why: What takes it.
        doubt: Why the rest is not certain.
        instead: Quota that Google may use where the project has none of this one.
    """

    metric: str
    amount: int
    least: int
    why: str
    doubt: str = ""
    instead: str | None = None


def regional_needs(settings: GkeSettings) -> Iterator[Need]:
    """Yield what the stack takes of the region's quotas."""
    nodes, machine, system = settings.nodes, settings.machine, settings.cluster
    pools = _nodes(settings)
    preemptible = sum(count for kind, count in pools.items() if kind in PREEMPTIBLE)
    preemptible = min(preemptible, nodes.max) if settings.compute_class else preemptible
    standard = pools["on-demand"]
    gpu = f"NVIDIA_{machine.gpu}_GPUS"
    flexible = any(kind.startswith("flex-start") for kind in pools)
    if machine.gpus and preemptible:
        kinds = " and ".join(kind for kind in pools if kind in PREEMPTIBLE)
        yield _sure(
            f"PREEMPTIBLE_{gpu}",
            machine.gpus * preemptible,
            f"{preemptible} nodes of {machine.gpus} GPUs by {kinds}",
            # Flex-start has no other quota.
            instead=None if flexible or machine.gpu not in REGIONAL_GPUS else gpu,
        )
    if machine.gpus and standard and machine.gpu in REGIONAL_GPUS:
        yield _sure(gpu, machine.gpus * standard, f"{standard} nodes of {machine.gpus} GPUs on demand")
    if machine.local_ssds and preemptible:
        gigabytes = LOCAL_SSD_GB * machine.local_ssds * preemptible
        yield Need(
            metric="PREEMPTIBLE_LOCAL_SSD_GB",
            amount=gigabytes,
            least=0,
            why=f"{machine.local_ssds} disks of {LOCAL_SSD_GB} GB in each of {preemptible} nodes",
            doubt=f"no source says whether the disks of a {machine.name} count",
        )
    yield from _cpu_needs(settings, standard, preemptible)
    made = nodes.max if settings.compute_class else sum(pools.values())
    if metric := DISK_METRICS.get(machine.boot_disk):
        yield _sure(metric, made * nodes.boot_disk_gib, f"boot disks of {made} nodes, {nodes.boot_disk_gib} GB each")
    yield _sure("INSTANCES", made + system.system_nodes, f"{made} nodes and {system.system_nodes} CPU nodes")
    if not settings.on_users_network:
        # NAT_QUOTA
        for metric in ("STATIC_ADDRESSES", "IN_USE_ADDRESSES"):
            yield _sure(metric, 1, "at least one address of the NAT gateway")


def _cpu_needs(settings: GkeSettings, standard: int, preemptible: int) -> Iterator[Need]:
    """Yield the vCPUs of CPU nodes and of workers without GPUs: those of GPU nodes have no quota of the region."""
    machine, system = settings.machine, settings.cluster
    of_system = CPU_METRICS.get(system.system_machine.partition("-")[0])
    of_workers = None if machine.gpus else CPU_METRICS.get(machine.name.partition("-")[0])
    cpus: dict[str, list[tuple[int, str]]] = {}
    if of_system:
        vcpus = system.system_nodes * settings.cpu_node_vcpus
        cpus.setdefault(of_system, []).append((vcpus, f"vCPUs of {system.system_nodes} CPU nodes"))
    if of_workers and standard:
        cpus.setdefault(of_workers, []).append((standard * (machine.vcpus or 0), f"vCPUs of {standard} workers"))
    for metric, counts in cpus.items():
        yield _sure(metric, sum(count for count, _ in counts), ", ".join(why for _, why in counts))
    if of_workers and preemptible:
        why = f"vCPUs of {preemptible} workers by spot"
        yield _sure("PREEMPTIBLE_CPUS", preemptible * (machine.vcpus or 0), why, instead=of_workers)


def global_needs(settings: GkeSettings) -> Iterator[Need]:
    """Yield what the stack takes of the project's quotas."""
    machine, row = settings.machine, settings.fabric_row
    gpus = machine.gpus * sum(count for kind, count in _nodes(settings).items() if kind != "reservation")
    if gpus:
        sure = machine.gpu in REGIONAL_GPUS
        yield Need(
            metric="GPUS_ALL_REGIONS",
            amount=gpus,
            least=gpus if sure else 0,
            why=f"{gpus} GPUs",
            doubt=f"no source says whether a {machine.gpu} counts",
        )
    system, workers = settings.cluster.system_nodes * settings.cpu_node_vcpus, (machine.vcpus or 0) * settings.nodes.max
    yield Need(
        metric="CPUS_ALL_REGIONS",
        amount=system + workers,
        least=system,
        why="vCPUs of CPU nodes and workers",
        doubt=f"no source says whether the vCPUs of a {machine.name} count",
    )
    cluster = int(not settings.on_users_network)
    # The second NIC of the host and the RDMA NICs; with managed DRANET, GKE makes their networks.
    others, subnets = (2, 1 + machine.nics) if machine.rdma else (0, 0)
    for metric, ours, theirs in (("NETWORKS", cluster, others), ("SUBNETWORKS", cluster, subnets)):
        if ours + theirs:
            yield Need(
                metric=metric,
                amount=ours + theirs,
                least=ours + (0 if row.managed else theirs),
                why="networks of the stack" if metric == "NETWORKS" else "subnetworks of the stack",
                doubt="no source says how many GKE makes for the NICs",
            )
    if cluster:
        yield _sure("ROUTERS", 1, "the router of the NAT gateway")


def quota_answers(question: Question, needs: Iterable[Need], where: str, *arguments: str) -> Iterator[PreflightAnswer]:
    """Ask for the quotas of a region or project, and yield an answer for each need."""
    reply = question.account.ask(*arguments)
    quotas: dict[str, tuple[float | None, float | None]] = {}
    for entry in entries(reply.document, "quotas") or ():
        if metric := text(entry, "metric"):
            quotas[metric] = (number(entry, "limit"), number(entry, "usage"))
    for need in needs:
        yield judged(need, quotas, where, question.account.project, reply)


def judged(
    need: Need, quotas: Mapping[str, tuple[float | None, float | None]], where: str, project: str, reply: Reply
) -> PreflightAnswer:
    """Return whether a quota has room for a need."""
    check = f"quota {need.metric}"
    needed = f"{amount(need.amount)} needed ({need.why})"
    page = f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
    left = _left(quotas.get(need.metric))
    if left is None:
        found = f"{needed}; the answer has no limit and usage of {need.metric} in {where}"
        return reply.unknown(check, found, f"{page}, metric {need.metric}")
    limit, usage = quotas[need.metric]
    there = f"{amount(max(0.0, left))} left of {amount(limit or 0)} in {where}"
    if left >= need.amount:
        return reply.ok(check, f"{needed}, {there}")
    total = int((usage or 0) + need.amount)
    fix = f"request {need.metric} of {total:,} or more in {where}: {page}"
    if need.least <= left:
        found = f"{needed}, {there}; {need.doubt}"
        return reply.unknown(check, found, fix)
    if need.instead and limit == 0 and (other := _left(quotas.get(need.instead))) is not None and other >= need.amount:
        found = f"{needed}, {there}; {need.instead} has {amount(other)} left, which spot may use without this quota"
        return reply.unknown(check, found, fix)
    return reply.not_ok(check, "quota", f"{needed}, {there}", fix)


def family_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Ask for the quota of a family of GPUs, which covers reservations and nodes on demand (FAMILY_QUOTA).

    Google raises it when it delivers a reservation, whose GPUs are in use from then on, so only the limit is compared.
    """
    settings, project = question.settings, question.account.project
    machine, family = settings.machine, f"NVIDIA_{settings.machine.gpu}"
    reply = question.account.ask("beta", "quotas", "info", "describe", FAMILY_ID, "--service=compute.googleapis.com")
    needed = machine.gpus * settings.nodes.max
    check = f"quota gpus_per_gpu_family {family}"
    page = f"https://console.cloud.google.com/iam-admin/quotas?project={project}, quota GPUs per GPU family"
    limit = family_limit(reply.document, family, question.region)
    what = f"{needed} needed ({settings.nodes.max} nodes of {machine.gpus} GPUs)"
    if limit is None:
        found = f"{what}; the answer has no limit for {family} in {question.region}"
        yield reply.unknown(check, found, page)
    elif limit < 0 or limit >= needed:
        yield reply.ok(check, f"{what}, limit {'none' if limit < 0 else amount(limit)}")
    else:
        found = f"{what}, limit {amount(limit)}: Google raises it when it delivers a reservation, not for calendar mode"
        yield reply.unknown(check, found, f"ask who made the reservation, or {page}")


def family_limit(document: object, family: str, region: str) -> float | None:
    """Return the limit of a family of GPUs in a region, -1 for none; None if the answer does not say it.

    Of the entries that apply, the one with most dimensions wins, and a family before a region (FAMILY_QUOTA). An entry
    without a value says nothing.
    """
    if text(document, "quotaId") != FAMILY_ID:
        return None
    ours = {"gpu_family": family, "region": region}
    best: tuple[tuple[int, bool], float | None] = ((-1, False), None)
    for entry in entries(document, "dimensionsInfos") or ():
        dimensions = entry.get("dimensions", {})
        if not isinstance(dimensions, Mapping) or not dimensions.items() <= ours.items():
            continue
        if "region" not in dimensions and region not in (texts(entry, "applicableLocations") or ()):
            continue
        rank = (len(dimensions), "gpu_family" in dimensions)
        if rank > best[0]:
            best = (rank, number(entry, "details", "value") if has(entry, "details", "value") else None)
    return best[1]


def _nodes(settings: GkeSettings) -> Counter[str]:
    """Return the most nodes of each kind of capacity: each kind has a pool."""
    return Counter(dict.fromkeys(settings.nodes.capacities, settings.nodes.max))


def _left(quota: tuple[float | None, float | None] | None) -> float | None:
    if quota is None or quota[0] is None or quota[1] is None or quota[0] < 0 or quota[1] < 0:
        return None
    return quota[0] - quota[1]


def _sure(metric: str, count: int, why: str, instead: str | None = None) -> Need:
    return Need(metric=metric, amount=count, least=count, why=why, instead=instead)
