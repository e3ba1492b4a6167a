"""`make test-faults`: inject every fault at every step, or a sample, on simulated clouds; print the table."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from rehearsal.engine.faults import HOWS
from rehearsal.engine.workspace import ROOT
from rehearsal.fork_server import ForkServer
from rehearsal.sweep import COMMANDS, Case, Sweep, TrialResult, table, why


def main(arguments: list[str] | None = None) -> int:
    """Run the cases that the arguments select; return 0 if all of them converge."""
    options = _parse(arguments)
    began = time.monotonic()
    # Raise KeyboardInterrupt, so that the fork server removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = options.folder or ROOT / ".rehearsal" / "sweep"
    with ForkServer() as fork_server:
        sweep = Sweep(options.stack, folder, fork_server.bin)
        sweep.prepare()
        cases = chosen(sweep, options)
        print(
            f"{len(cases)} cases, {options.workers} at a time; prepared in {time.monotonic() - began:.0f} s", flush=True
        )
        so_far: list[TrialResult] = []

        def on_line(result: TrialResult) -> None:
            so_far.append(result)
            end = (
                "converged"
                if result.converged
                else f"FAILED: {why(result)}\n    again: {result.case.again(options.stack)}"
            )
            print(
                f"{len(so_far):4}/{len(cases)} {result.case}: {result.injected}: {result.seconds:.0f} s, {end}",
                flush=True,
            )
            if options.markdown:
                # Write the table after each case, so that an interrupted run keeps its results.
                options.markdown.write_text(table(so_far))

        results = sweep.run(cases, options.workers, on_line)
    text = table(results)
    print(f"\n{text}\n{len(cases)} cases in {(time.monotonic() - began) / 60:.1f} minutes")
    if options.markdown:
        options.markdown.write_text(text)
    if not all(result.converged for result in results):
        print(f"logs of the engine: {folder}/failed …/logs/")
        return 1
    shutil.rmtree(folder)
    return 0


def chosen(sweep: Sweep, options: argparse.Namespace) -> list[Case]:
    """Return the selected cases. For a sample, print the seed."""
    commands, hows = options.command or COMMANDS, options.how or HOWS
    if options.type:
        return [Case(command, 0, how, type_) for command in commands for type_ in options.type for how in hows]
    cases = list(sweep.cases(commands, hows))
    if options.step:
        cases = [case for case in cases if case.step in options.step]
    if options.sample and options.sample < len(cases):
        seed = options.seed if options.seed is not None else random.randrange(10**6)
        print(f"a sample of {options.sample} of {len(cases)} cases, --seed {seed}")
        cases = random.Random(seed).sample(cases, options.sample)
    return cases


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.faults", description=__doc__)
    parser.add_argument("--stack", default="gke")
    parser.add_argument("--command", action="append", choices=COMMANDS, help="repeatable (default: both)")
    parser.add_argument("--how", action="append", choices=HOWS, help="repeatable (default: all)")
    parser.add_argument("--step", action="append", type=int, metavar="N", help="repeatable (default: all)")
    parser.add_argument(
        "--type", action="append", metavar="TYPE", help="the first change of such a resource instead of each step"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="number of cases in a random sample")
    parser.add_argument("--seed", type=int, help="seed of the sample (default: random, printed)")
    parser.add_argument("--workers", type=int, default=2, help="cases in parallel")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="file of the table")
    parser.add_argument("--folder", type=Path, help="folder of the cases (default: .rehearsal/sweep)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
