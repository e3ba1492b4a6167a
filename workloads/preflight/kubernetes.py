"""Pre-flight of target `kubernetes`: the checks of the user's cluster that every preview makes, without an engine."""

from __future__ import annotations

from collections.abc import Iterator

from infra.existing.checks import UNANSWERED, problems
from infra.existing.kubectl import Kubectl, KubectlError
from infra.plan import ray_args
from infra.settings import KubernetesSettings
from infra.settings.problems import Problem
from workloads.preflight.answers import Asked, PreflightAnswer, PreflightCheck
from workloads.preflight.cli import NoAnswerError


def kubernetes_checks(settings: KubernetesSettings, stack: str) -> Iterator[PreflightCheck]:
    """Yield the one question, which has an answer for each problem."""
    yield PreflightCheck("cluster", lambda: _answers(settings, stack))


def _answers(settings: KubernetesSettings, stack: str) -> Iterator[PreflightAnswer]:
    cluster = Kubectl(settings.context)
    asked = f"kubectl --context={settings.context} get namespace {settings.namespace}"
    try:
        cluster.read("/version")
    except KubectlError as error:
        fix = "install kubectl" if error.reason == "NoKubectl" else "check the context, and sign in again"
        raise NoAnswerError("denied", str(error), fix, asked) from None
    found = problems(cluster, ray_args(settings, f"{stack}-ray"), settings, stack)
    for problem in found:
        yield _answer(problem)
    if not found:
        yield Asked(asked).ok("cluster", "it accepts what the stack would create, as a dry run")


def _answer(problem: Problem) -> PreflightAnswer:
    check = ", ".join(problem.settings)
    if problem.message.startswith(UNANSWERED):
        return Asked().unknown(check, problem.message, problem.fix)
    return Asked().not_ok(check, "setup", problem.message, problem.fix)
