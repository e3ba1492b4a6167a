"""Questions of pre-flight about a stack on Google Cloud. Each is one gcloud command, which takes about a second."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from infra.settings import GkeSettings
from workloads.preflight import gke_access, gke_place, gke_quota, gke_stock
from workloads.preflight.answers import PreflightAnswer, PreflightCheck
from workloads.preflight.gcloud import Account, Question


def gke_checks(settings: GkeSettings, config: Mapping[str, Any]) -> Iterator[PreflightCheck]:
    """Yield the questions about a stack.

    Args:
        config: The map of the stack file, which also configures the provider.
    """
    question = Question(settings, Account.of(config, os.environ))
    regional, of_project = [*gke_quota.regional_needs(settings)], [*gke_quota.global_needs(settings)]
    region = ("compute", "regions", "describe", question.region)
    yield PreflightCheck("gcp:project", question.project_answers)
    yield PreflightCheck(
        f"quotas of {question.region}",
        lambda: gke_quota.quota_answers(question, regional, question.region, *region),
    )
    yield PreflightCheck(
        "quotas of the project",
        lambda: gke_quota.quota_answers(question, of_project, "the project", "compute", "project-info", "describe"),
    )
    yield PreflightCheck("APIs", lambda: gke_access.api_answers(question))
    yield PreflightCheck("roles", lambda: gke_access.role_answers(question))
    yield PreflightCheck("machine type", lambda: gke_place.machine_answers(question))
    for name, ask in (*_place(question), *_constraints(question)):
        yield PreflightCheck(name, ask)
    yield PreflightCheck("image", lambda: gke_place.registry_answers(question))


Ask = Callable[[], Iterator[PreflightAnswer]]


def _place(question: Question) -> Iterator[tuple[str, Ask]]:
    """Yield the questions about the zone, and about what the stack uses that exists already."""
    settings = question.settings
    if settings.machine.network_profile is not None:
        yield "network profile", lambda: gke_place.profile_answers(question)
    if settings.own_cluster:
        yield "GKE version", lambda: gke_place.version_answers(question)
    else:
        yield "cluster", lambda: gke_place.cluster_answers(question)
    if settings.network.subnetwork is not None:
        yield "subnetwork", lambda: gke_place.subnetwork_answers(question)
    if settings.storage.bucket is not None:
        yield "bucket", lambda: gke_place.bucket_answers(question)
    if settings.budget.monthly is not None:
        yield "billing", lambda: gke_access.billing_answers(question)
    if settings.nodes.reservation is not None:
        yield "reservation", lambda: gke_place.reservation_answers(question)
        if settings.machine.gpus and settings.machine.gpu not in gke_quota.REGIONAL_GPUS:
            yield "quota gpus_per_gpu_family", lambda: gke_quota.family_answers(question)
    models: dict[str, str] = {}
    for kind in settings.nodes.capacities:
        if kind in gke_stock.MODELS:
            models.setdefault(gke_stock.MODELS[kind], kind)
    for kind in models.values():
        yield f"stock by {kind}", partial(gke_stock.stock_answers, question, kind)


def _constraints(question: Question) -> Iterator[tuple[str, Ask]]:
    """Yield the questions about the organization's policies."""
    constraints = [gke_access.NO_ACCOUNTS, gke_access.LOCATIONS]
    if not question.settings.on_users_network:
        constraints.append(gke_access.NO_NAT)
    for constraint in constraints:
        yield f"policy {constraint}", partial(gke_access.policy_answers, question, constraint)
