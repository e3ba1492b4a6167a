"""`rdma-ray preflight`: whether an account has what a stack needs, before anything is made. It only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from infra.project import PROJECT
from infra.settings import EksSettings, GkeSettings, KubernetesSettings, Settings
from infra.settings.problems import SettingsError
from infra.settings.stack_file import read_config
from workloads.client.plan import read_settings
from workloads.exits import Exit, WorkloadError
from workloads.options import JsonFile, option
from workloads.preflight.answers import PreflightAnswer, PreflightCheck, ask_all
from workloads.preflight.eks import eks_checks
from workloads.preflight.gke import gke_checks
from workloads.preflight.kubernetes import kubernetes_checks
from workloads.terminal.console import Terminal, say, write_json

STYLES: Mapping[str, str] = {"ok": "green", "not ok": "bold red", "unknown": "yellow"}


def preflight(
    stack: Annotated[str, option(help="A stack of this clone, or a Pulumi.<stack>.yaml.", metavar="STACK")],
    /,
    *,
    json_file: JsonFile = None,
) -> int:
    """Ask your account whether it has what a stack needs.

    Before `make up`: the quota of the stack's kind of capacity, APIs, roles, the
    machine in the zone, the reservation, versions and the image. All questions are
    asked at the same time by the cloud's command line (gcloud, aws; kubectl on target
    kubernetes), and only read. What has no answer is unknown, never ok.

    Example: rdma-ray preflight gke
    Exit codes: 0 all ok, 1 the stack file has problems, 2 something is not ok,
    5 nothing is not ok, but something is unknown.
    """
    checks = checks_of(file_of(stack))
    with progress(Terminal(stderr=True, highlight=False), len(checks)) as count:
        answers = ask_all(checks, count)
    if json_file != "-":
        show(answers, Terminal(highlight=False))
    if json_file:
        write_json({"answers": [asdict(answer) for answer in answers]}, json_file)
    return exit_code(answers)


def file_of(stack: str) -> Path:
    """Return the stack file that a command's argument names."""
    return Path(stack) if stack.endswith(".yaml") else PROJECT / f"Pulumi.{stack}.yaml"


def read_stack(file: Path) -> tuple[Settings, Mapping[str, Any]]:
    """Return the settings of a stack file, and its map. Raises WorkloadError."""
    settings = read_settings(file)
    try:
        return settings, read_config(file)
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None


def account_needed(file: Path, settings: Settings) -> WorkloadError:
    """Return the error about a stack that is not on a cloud."""
    return WorkloadError(f"{file.name} is for target {settings.target}, which has no account: see `make preview`")


@contextmanager
def progress(terminal: Console, questions: int) -> Iterator[Callable[[object], None]]:
    """Show how many questions are answered; yield what to call after each."""
    with terminal.status(f"0 of {questions} questions answered") as status:
        numbers = iter(range(1, questions + 1))
        yield lambda _: status.update(f"{next(numbers)} of {questions} questions answered")


def checks_of(file: Path) -> list[PreflightCheck]:
    """Return the questions about a stack file. Raises WorkloadError."""
    settings, config = read_stack(file)
    if isinstance(settings, GkeSettings):
        return [*gke_checks(settings, config)]
    if isinstance(settings, EksSettings):
        return [*eks_checks(settings, config)]
    if isinstance(settings, KubernetesSettings):
        return [*kubernetes_checks(settings, file.name.split(".")[1])]
    raise account_needed(file, settings)


def exit_code(answers: Sequence[PreflightAnswer]) -> Exit:
    """Return the exit code of `rdma-ray preflight`."""
    states = {answer.state for answer in answers}
    return Exit.BELOW if "not ok" in states else Exit.NOT_AS_ASKED if states != {"ok"} else Exit.OK


def show(answers: Sequence[PreflightAnswer], console: Console) -> None:
    """Print a line for each answer, then what to do about those that are not ok, each thing once.

    No table: at 80 columns the names of checks leave it no room for answers.
    """
    for answer in answers:
        state = f"{answer.state}: {answer.cause}" if answer.cause else answer.state
        say(console, f"{state:<18}{answer.check}: {answer.found}", STYLES[answer.state])
    fixes: dict[str, list[PreflightAnswer]] = {}
    for answer in (answer for answer in answers if answer.state != "ok"):
        fixes.setdefault(answer.fix, []).append(answer)
    for fix, helped in fixes.items():
        say(console, f"\n{', '.join(answer.check for answer in helped)}\n  fix: {fix}")
        for asked in dict.fromkeys(answer.asked for answer in helped if answer.asked):
            say(console, f"  asked: {asked}", style="dim")
    counts = Counter(answer.state for answer in answers)
    say(console, "\n" + ", ".join(f"{n} {state}" for state, n in sorted(counts.items())))
