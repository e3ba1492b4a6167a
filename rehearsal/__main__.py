"""`make rehearse STACK=gke`: run `up`, previews and `destroy` of a stack against simulated clouds."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape

from infra.settings import ClusterSettings, from_stack_file
from infra.settings.problems import SettingsError
from rehearsal.depths import DEPTHS, Depth, DepthError, NotRunError
from rehearsal.engine.commands import EngineError
from rehearsal.engine.faults import Fault, FaultError
from rehearsal.engine.workspace import ROOT, NotOursError, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.golden import golden
from rehearsal.report.markdown import markdown
from rehearsal.report.outcome import Phase
from rehearsal.scenario import NoCloudError, RehearsalRequest, Scenario

NOT_RUN = 70
"""Exit status of a rehearsal that did not run, as in the test tiers."""
ALL_REPORTS = ROOT / "results" / "rehearsals.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the rehearsal of a stack, or of all; return the (highest) exit status.

    Returns:
        0 if every phase succeeded, 1 if one failed, 2 for a wrong command line, 130 after Ctrl-C, and `NOT_RUN` if this
        machine cannot run the depth.
    """
    options = _parse(arguments)
    if options.stack != "all":
        return rehearse(options)
    status, texts = 0, []
    for stack in cloud_stacks():
        own = argparse.Namespace(**{**vars(options), "stack": stack})
        if options.results:
            # Each stack writes a report.md.
            own.results = Path(options.results) / stack
        file = results_folder(own) / "report.md"
        file.unlink(missing_ok=True)
        status = max(status, rehearse(own))
        texts.append(file.read_text() if file.exists() else f"## REHEARSAL of stack `{stack}` did not finish\n")
        ALL_REPORTS.parent.mkdir(exist_ok=True)
        ALL_REPORTS.write_text("\n".join(texts))
    print(f"report of all stacks: {_short(ALL_REPORTS)}")
    return status


def cloud_stacks() -> list[str]:
    """Return the names of the stacks whose target is simulated."""
    files = sorted(ROOT.glob("Pulumi.*.yaml"))
    return [file.name.split(".")[1] for file in files if isinstance(from_stack_file(file), ClusterSettings)]


def rehearse(options: argparse.Namespace) -> int:
    """Rehearse one stack; return the exit status of `main`."""
    console = Console(highlight=False)
    file = ROOT / f"Pulumi.{options.stack}.yaml"
    if not file.exists():
        known = ", ".join(sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml")))
        console.print(f"STACK={options.stack}: {file.name} does not exist. Stacks with a file: {known}")
        return 2
    if options.before and not _has(options.before, file.name):
        console.print(f"{options.before} has no {file.name}: the stack is new, so only this version is rehearsed")
        options.before = None
    results = results_folder(options)
    folder = Path(options.workspace or ROOT / ".rehearsal" / folder_name(options.stack, options.depth))
    try:
        faults = tuple(Fault.parse(text) for text in options.fault)
        console.rule(f"[bold]REHEARSAL[/] of stack {options.stack}: simulated clouds, nothing is created")
        with _version(options.before) as before, ForkServer() as fork_server:
            workspace = Workspace(folder, fork_server.bin)
            request = RehearsalRequest(
                stack=options.stack,
                file=file,
                before=before,
                changes=tuple(options.change),
                faults=faults,
                depth=options.depth,
            )
            outcome = Scenario(request, workspace, partial(_on_phase, console), partial(_on_event, console)).run()
    except (FaultError, SettingsError, NotOursError, NoCloudError) as problem:
        console.print(f"\n{problem}", markup=False)
        return 2
    except NotRunError as problem:
        console.print(f"\n{problem}\n\nNOT RUN: rehearsal at depth {options.depth}.", markup=False)
        return NOT_RUN
    except (EngineError, DepthError) as problem:
        console.print(f"\n{problem}", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print(f"\ninterrupted; all processes have ended. Logs: {_short(folder)}/")
        return 130
    console.print(Markdown(markdown(outcome, terminal=True)))
    results.mkdir(parents=True, exist_ok=True)
    (results / "report.md").write_text(markdown(outcome))
    (results / "resources.txt").write_text(golden(outcome.graph))
    console.print(f"report: {_short(results)}/report.md, resources.txt")
    if outcome.ok:
        shutil.rmtree(folder)
    else:
        console.print(f"logs of the engine: {_short(folder / 'logs')}/")
        if options.depth != "quick":
            console.print(f"logs of the control plane: {_short(folder / 'kubernetes' / 'logs')}/")
    return 0 if outcome.ok else 1


def folder_name(stack: str, depth: Depth) -> str:
    """Return the name of a rehearsal's folders. Each depth of a stack has its own."""
    return stack if depth == "quick" else f"{stack}-{depth}"


def results_folder(options: argparse.Namespace) -> Path:
    """Return the folder of a rehearsal's report."""
    return Path(options.results or ROOT / "results" / f"rehearsal-{folder_name(options.stack, options.depth)}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__)
    parser.add_argument("--stack", default="gke")
    parser.add_argument(
        "--depth",
        choices=DEPTHS,
        default="quick",
        help="cluster: real Kubernetes control plane; pods: also real nodes and Ray",
    )
    parser.add_argument("--before", metavar="REF", help="create the stack with this version first, such as origin/main")
    parser.add_argument(
        "--change", action="append", default=[], metavar="SETTING=VALUE", help="setting to change after the first up"
    )
    parser.add_argument("--fault", action="append", default=[], metavar="'TYPE VERB HOW' | 'step N HOW'")
    parser.add_argument("--results", help="folder of the report (default: results/rehearsal-STACK[-DEPTH])")
    parser.add_argument("--workspace", help="folder of the rehearsal (default: .rehearsal/STACK[-DEPTH])")
    return parser.parse_args(arguments)


def _has(ref: str, name: str) -> bool:
    """Return whether a version of the project has a file."""
    return subprocess.run(["git", "cat-file", "-e", f"{ref}:{name}"], cwd=ROOT, capture_output=True).returncode == 0


@contextmanager
def _version(ref: str | None) -> Iterator[Path | None]:
    """Check out another version of the project into a temporary worktree."""
    if ref is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "version"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(place), ref], cwd=ROOT, check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=ROOT, check=True)


def _on_phase(console: Console, name: str, phase: Phase | None) -> None:
    if phase is None:
        console.print(f"REHEARSAL  {name} …")
    elif phase.ok:
        console.print(f"           [green]ok[/] in {phase.seconds:.0f} s: {escape(phase.said)}", soft_wrap=True)
    else:
        console.print("           [red]failed[/]:")
        console.print(phase.said, markup=False)


def _on_event(console: Console, line: str) -> None:
    console.print(f"           {line}", markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    sys.exit(main())
