"""`rdma-ray preflight`: whether an account has what a stack needs, before anything is made. It only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from infra.settings import EksSettings, GkeSettings
from infra.settings.problems import SettingsError
from infra.settings.stack_file import read_config
from workloads.client.plan import read_settings
from workloads.exits import Exit, WorkloadError
from workloads.options import ROOT, JsonFile, option
from workloads.preflight.answers import PreflightAnswer, PreflightCheck, ask_all
from workloads.preflight.eks import eks_checks
from workloads.preflight.gke import gke_checks
from workloads.terminal.console import Terminal, say, table_of, write_json

_fix = attrgetter("fix")
STYLES: Mapping[str, str] = {"ok": "green", "not ok": "bold red", "unknown": "yellow"}


def preflight(
    stack: Annotated[str, option(help="A stack of this clone, or a Pulumi.<stack>.yaml.", metavar="STACK")],
    /,
    *,
    json_file: JsonFile = None,
) -> int:
    """Ask your account whether it has what a stack needs, before `make up`.

    The quota of the stack's kind of capacity, APIs, roles, the machine in the
    zone, the reservation, versions and the image. All questions are asked at the
    same time by the cloud's command line (gcloud, aws), and only read. What has no
    answer is unknown, never ok.

    Example: rdma-ray preflight gke
    Exit codes: 0 all ok, 1 the stack file has problems, 2 something is not ok,
    5 nothing is not ok, but something is unknown.
    """
    checks = checks_of(Path(stack) if stack.endswith(".yaml") else ROOT / f"Pulumi.{stack}.yaml")
    terminal = Terminal(stderr=True, highlight=False)
    with terminal.status(f"0 of {len(checks)} questions answered") as status:
        answered = 0

        def count(_: Sequence[PreflightAnswer]) -> None:
            nonlocal answered
            answered += 1
            status.update(f"{answered} of {len(checks)} questions answered")

        answers = ask_all(checks, count)
    if json_file != "-":
        show(answers, Terminal(highlight=False))
    if json_file:
        write_json({"answers": [document(answer) for answer in answers]}, json_file)
    return exit_code(answers)


def checks_of(file: Path) -> list[PreflightCheck]:
    """Return the questions about a stack file. Raises WorkloadError."""
    settings = read_settings(file)
    try:
        config = read_config(file)
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None
    if isinstance(settings, GkeSettings):
        return [*gke_checks(settings, config)]
    if isinstance(settings, EksSettings):
        return [*eks_checks(settings, config)]
    raise WorkloadError(f"{file.name} is for target {settings.target}, which has no account: see `make preview`")


def exit_code(answers: Sequence[PreflightAnswer]) -> Exit:
    """Return the exit code of `rdma-ray preflight`."""
    states = {answer.state for answer in answers}
    return Exit.BELOW if "not ok" in states else Exit.NOT_AS_ASKED if states != {"ok"} else Exit.OK


def document(answer: PreflightAnswer) -> Mapping[str, Any]:
    """Return an answer as {check, state, cause, found, fix, asked}."""
    fields = ("check", "state", "cause", "found", "fix", "asked")
    return {name: getattr(answer, name) for name in fields}


def show(answers: Sequence[PreflightAnswer], console: Console) -> None:
    """Print a line for each answer, then what to do about those that are not ok."""
    table = table_of(("", "check", "answer"), text=("", "check", "answer"))
    table.columns[2].no_wrap = False
    for answer in answers:
        state = f"{answer.state}: {answer.cause}" if answer.cause else answer.state
        table.add_row(state, answer.check, answer.found, style=STYLES[answer.state] if answer.state != "ok" else None)
    console.print(table)
    for fix, of_fix in groupby(sorted((each for each in answers if each.state != "ok"), key=_fix), key=_fix):
        same = list(of_fix)
        say(console, f"{', '.join(answer.check for answer in same)}: {fix}")
        for asked in dict.fromkeys(answer.asked for answer in same if answer.asked):
            say(console, f"  asked: {asked}", style="dim")
    counts = Counter(answer.state for answer in answers)
    say(console, ", ".join(f"{n} {state}" for state, n in sorted(counts.items())))
