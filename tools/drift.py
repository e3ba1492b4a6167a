"""`make drift`: what differs between the cloud and the last `up`, who may have changed it, and what `up` would do.

`pulumi preview` with a refresh reads the cloud and changes nothing. The report is Markdown; the workflow `drift.yml`
writes it into an issue. Exit status: 0 if `up` has no drift to act on, 3 if it has, and 1 if the cloud was not read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.drift_events import NOT_SET, Difference, Drifted, Findings, cause, findings
from tools.markdown import table, value
from tools.process import INTERRUPTED
from tools.stack import PULUMI, CommandFailedError, run
from workloads.secrecy import Masker, known_secrets

DRIFTED = 3
"""Exit status for drift on which `up` acts."""
LONGEST = 60_000
"""Characters of a text. An issue of GitHub has at most 65,536."""
MOST = 20
"""Properties of a resource, and further changes, that are listed."""
_GRACE_S = 60.0
PREVIEW = ("preview", "--refresh", "--ignore-protect", "--suppress-outputs", "--non-interactive", "--color", "never")
"""Without `--ignore-protect` the engine stops at the first replacement of a protected resource."""
_TITLES = {"replace": "🔴 REPLACE", "delete": "🔴 DELETE", "create": "CREATE AGAIN", "update": "SET BACK"}
_PERSON = "a person with the console or a command, or another tool"
_LOGS = {
    "gcp": "the Admin Activity audit logs of the project",
    "aws": "CloudTrail",
    "kubernetes": "the audit log of the cluster",
}
_POOLS = ("gcp:container/nodePool:NodePool", "aws:eks/nodeGroup:NodeGroup")
_RUNNING = "While `rdma-ray:protect` is true, it refuses to replace running nodes (docs/changes.md)."
# pulumi/pulumi-kubernetes #1522, 2021-04-09, and #2489, 2023-07-10.
_FAILED = """`make up` fails like this preview, whose output has the reason. Nothing in a cluster that is gone can be
read, and a provider does not take that for deleted. If the cluster is gone for good,
`PULUMI_K8S_DELETE_UNREACHABLE=true` in the environment lets the provider drop from the state what was in it (not
rehearsed here)."""
_PROTECTED = "While `rdma-ray:protect` is true, `make up` is refused instead."


def report(stack: str, found: Findings) -> str:
    """Return the text for a person, in Markdown, the worst first, of at most `LONGEST` characters."""
    head = "\n".join([f"## Drift of stack {value(stack)}: {_count(found)}", ""])
    tail = "\n".join(_others(found))
    parts, room, left_out = [], LONGEST - len(head) - len(tail) - 200, 0
    gone = [each for each in found.acted_on if each.action == "create"]
    worst = [_section(each) for each in found.acted_on if each.action in ("replace", "delete")]
    back = [_section(each) for each in found.acted_on if each.action == "update"]
    # A whole namespace or cluster may be gone: that is one section.
    for section in map("\n".join, [*worst, _gone(gone, found.failed), *back, _left(found)]):
        if len(section) < room and not left_out:
            parts.append(section)
            room -= len(section)
        else:
            left_out += 1
    if left_out:
        parts.append(f"**{left_out} more parts have no room here: `make drift`, or `make preview`, shows them.**\n")
    return "\n".join(filter(None, [head, *parts, tail]))


def _count(found: Findings) -> str:
    acted, left = len(found.acted_on), len(found.left)
    replaced = sum(each.action in ("replace", "delete") for each in found.acted_on)
    if found.failed:
        return f"the preview failed, and the cloud no longer has {acted} {'resource' if acted == 1 else 'resources'}"
    if not acted:
        return "none that `make up` would change" + (f" ({left} that it leaves)" if left else "")
    worst = f", {replaced} by replacement or deletion" if replaced else ""
    return f"`make up` would change {acted} {'resource' if acted == 1 else 'resources'}{worst}"


def _section(each: Drifted) -> Iterator[str]:
    """Yield the lines about a resource that `up` changes."""
    yield f"### {_TITLES[each.action]}: {value(each.name)}"
    if each.gone:
        yield "The cloud no longer has it."
    else:
        yield from table(("property", "at the last `up`", "now"), map(_cells, each.differences[:MOST]))
    if len(each.differences) > MOST:
        yield f"… and {len(each.differences) - MOST} more properties."
    yield ""
    yield from _who([each])
    yield f"`make up` {_what_up_does(each)}"
    for row in each.causes():
        if row.get("then"):
            yield f"If it was {row['may'].partition(',')[0]}: {row['then']}"
    yield ""


def _gone(gone: Sequence[Drifted], failed: bool) -> Iterator[str]:
    """Yield the lines about resources that `up` creates again."""
    if gone:
        yield f"### {'🔴 GONE' if failed else _TITLES['create']}: the cloud no longer has {len(gone)}"
        yield from (f"- {value(each.name)}" for each in gone[: 5 * MOST])
        if len(gone) > 5 * MOST:
            yield f"- … and {len(gone) - 5 * MOST} more"
        yield ""
        yield from _who(gone)
        yield _FAILED if failed else "`make up` creates them again, without what was in them."
        yield ""


def _who(every: Sequence[Drifted]) -> Iterator[str]:
    """Yield who may have changed these resources, and where that is recorded."""
    others = dict.fromkeys(str(row["may"]) for each in every for row in each.causes())
    logs = dict.fromkeys(_LOGS.get(each.type.partition(":")[0], "") for each in every)
    where = " and ".join(filter(None, logs))
    yield f"May have changed this: {'; '.join([*others, _PERSON])}."
    if where:
        yield f"The change is recorded in {where}."
    yield ""


def _what_up_does(each: Drifted) -> str:
    protected = f" {_PROTECTED}" if each.protected else ""
    if each.action == "delete":
        return f"**deletes the resource**, which the program no longer has.{protected}"
    if each.action == "replace":
        reasons = ", ".join(map(value, each.reasons)) or "another resource that is replaced"
        return f"**deletes the resource and creates it again**, because of {reasons}.{protected}"
    kept = [value(one.path) for one in each.differences if not one.set_back]
    said = f"sets the resource back in place{', and leaves ' * bool(kept)}{', '.join(kept[:MOST])}."
    # `infra.running_nodes` refuses it; the component of the cloud knows which inputs these are.
    return f"{said} {_RUNNING}" if each.type in _POOLS else said


def _left(found: Findings) -> Iterator[str]:
    """Yield the lines about resources that `up` leaves."""
    rows = []
    for each in found.left:
        for one in each.differences:
            row = cause(each.type, one.path)
            rows.append((value(each.name), *_cells(one), row["may"] if row else _PERSON))
        if each.gone:
            rows.append((value(each.name), "", "", "gone", _PERSON))
    if rows:
        yield "### `make up` leaves as it is"
        yield from table(("resource", "property", "at the last `up`", "now", "it may be"), rows[: 5 * MOST])
        if len(rows) > 5 * MOST:
            yield f"… and {len(rows) - 5 * MOST} more."
        yield ""


def _others(found: Findings) -> Iterator[str]:
    """Yield the lines about changes of resources that did not drift."""
    if found.others:
        yield "### Not drift"
        yield "`make up` would change these as well. They follow from the above, or the program or the stack file is"
        yield "newer than the last `up`:"
        marked = {"replace": "🔴 replace", "delete": "🔴 delete"}
        yield from (f"- {marked.get(action, action)} {value(name)}" for action, name in found.others[:MOST])
        if len(found.others) > MOST:
            yield f"- … and {len(found.others) - MOST} more"


def _cells(one: Difference) -> tuple[str, str, str]:
    before, now = (each if each == NOT_SET else value(each) for each in (one.before, one.now))
    return value(one.path), before, now


def preview(stack: str) -> Findings:
    """Read the cloud and return what differs.

    Raises:
        CommandFailedError: The engine failed, and not because something is gone. It has printed why.
        ValueError: The engine's events are not complete.
    """
    # The events have inputs in the clear: for this user only, and not kept.
    with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
        log = Path(folder) / "events"
        known, failure = Masker(known_secrets(os.environ)), None
        try:
            run(PULUMI, *PREVIEW, "--stack", stack, "--event-log", str(log), quiet=True, grace_s=_GRACE_S)
        except CommandFailedError as failed:
            failure = failed
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        try:
            return findings(lines, known)
        except ValueError:
            raise failure or ValueError("the preview has no result") from None


def main(arguments: list[str] | None = None) -> int:
    """Print the report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make drift", description=__doc__)
    parser.add_argument("--stack", required=True)
    parser.add_argument("--out", type=Path, help="also write {drifted, text} as JSON to this file")
    options = parser.parse_args(arguments)
    try:
        found = preview(options.stack)
    except (CommandFailedError, ValueError) as failure:
        # Not the engine's status: its 3 is a failed authentication (pulumi 3.259.0: cmd/pulumi/cmd/exit_codes.go).
        print(f"\nmake drift: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    text = report(options.stack, found)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"drifted": bool(found.acted_on), "text": text}), encoding="utf-8")
    return DRIFTED if found.acted_on else 0


if __name__ == "__main__":
    sys.exit(main())
