"""What differs between a cloud and the last `up`, and what the next `up` does about it, from the engine's events.

The source is the event log of `pulumi preview --refresh`. `pulumi preview --json` hides most: its steps of the refresh
have the state before the cloud was read (pulumi 3.259.0, tried 2026-11), and what the program ignores is in none.

A provider returns a secret of the cloud in the clear. A value that was secret, whose name is that of a secret, or that
looks like one is shown on neither side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import yaml

from workloads.secrecy import REDACTED, Masker, redacted, sounds_secret

CAUSES: tuple[Mapping[str, Any], ...] = tuple(
    yaml.safe_load(Path(__file__).with_name("drift_causes.yaml").read_text(encoding="utf-8"))
)
Action = Literal["replace", "delete", "create", "update", "nothing"]
ACTIONS: tuple[Action, ...] = ("replace", "delete", "create", "update", "nothing")
"""What `up` does, the worst first."""
NOT_SET, SECRET, OTHER_SECRET = "not set", "a secret", "another secret"
_SECRETS = "kubernetes:core/v1:Secret"
_HIDDEN = "[secret]"
"""The engine's mark of a secret value."""
_STEP = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)')


@dataclass(frozen=True)
class Difference:
    """A property of a resource at the last `up`, and in the cloud now. `set_back`: `up` changes it."""

    path: str
    before: str
    now: str
    set_back: bool = False


@dataclass(frozen=True, kw_only=True)
class Drifted:
    """A resource that somebody else changed, or that is gone. `reasons` are the properties that force a replacement."""

    urn: str
    type: str
    gone: bool
    protected: bool = False
    differences: tuple[Difference, ...] = ()
    action: Action = "nothing"
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kind and the name in the program: "NodePool pool-gpu"."""
        return name_of(self.urn)

    def causes(self) -> Iterator[Mapping[str, Any]]:
        """Yield what may have changed it, other than a person; each once."""
        found = (cause(self.type, each.path) for each in self.differences)
        yield from {each["may"]: each for each in found if each}.values()


@dataclass(frozen=True)
class Findings:
    """Drifted resources, those that `up` treats worst first; and what else `up` changes, as (action, name).

    `failed`: the preview failed, and so would `up`. Only what is gone is known then.
    """

    drifted: tuple[Drifted, ...]
    others: tuple[tuple[Action, str], ...]
    failed: bool = False

    @property
    def acted_on(self) -> tuple[Drifted, ...]:
        """Those that the next `up` changes."""
        return tuple(each for each in self.drifted if each.action != "nothing")

    @property
    def left(self) -> tuple[Drifted, ...]:
        """Those that the next `up` leaves as they are."""
        return tuple(each for each in self.drifted if each.action == "nothing")


def findings(lines: Iterable[str], known: Masker | None = None) -> Findings:
    """Return what is in an event log. `known` are secrets that no value may show.

    Raises:
        ValueError: The preview failed, and nothing is gone that may be the reason.
    """
    drifted: dict[str, Drifted] = {}
    steps: dict[str, tuple[Action, Mapping[str, Any]]] = {}
    complete = False
    for line in filter(None, map(str.strip, lines)):
        event = json.loads(line)
        complete |= (event.get("summaryEvent") or {}).get("result", "") == "succeeded"
        if (after := event.get("resOutputsEvent")) and after["metadata"]["op"] == "refresh":
            if found := _refreshed(after["metadata"], known):
                drifted[found.urn] = found
        elif (before := event.get("resourcePreEvent")) and (action := _action(before["metadata"]["op"])):
            steps[before["metadata"]["urn"]] = (action, before["metadata"])
    if not complete:
        if not (gone := [replace(each, action="create") for each in drifted.values() if each.gone]):
            raise ValueError("the preview failed, or its event log has no result")
        return Findings(tuple(sorted(gone, key=lambda each: each.urn)), (), failed=True)
    every = [_with_step(each, *steps[urn]) if urn in steps else each for urn, each in drifted.items()]
    others = [(action, name_of(urn)) for urn, (action, _) in steps.items() if urn not in drifted]
    return Findings(
        tuple(sorted(every, key=lambda each: (ACTIONS.index(each.action), each.name, each.urn))),
        tuple(sorted(others, key=lambda each: (ACTIONS.index(each[0]), each[1]))),
    )


def name_of(urn: str) -> str:
    """Return the kind and the name of a resource."""
    types, _, name = urn.removeprefix("urn:pulumi:").split("::", 2)[2].partition("::")
    return f"{types.rpartition(':')[2]} {name}"


def cause(type_: str, path: str) -> Mapping[str, Any] | None:
    """Return the row of `CAUSES` for a property, or None."""

    def matches(row: Mapping[str, Any]) -> bool:
        return any(fnmatchcase(type_, each) for each in row["types"]) and any(
            fnmatchcase(path, each) for each in row["properties"]
        )

    return next(filter(matches, CAUSES), None)


def _action(op: str) -> Action | None:
    """Return what a step of the program's part does. The engine also has steps for the halves of a replacement."""
    return next((each for each in ACTIONS[:-1] if each == op), None)


def _refreshed(metadata: Mapping[str, Any], known: Masker | None) -> Drifted | None:
    """Return what a refresh found, or None if it found nothing that is reported."""
    type_, old, new = metadata["type"], metadata.get("old") or {}, metadata.get("new")
    if not old.get("custom") or type_.startswith("pulumi:"):
        return None
    base = Drifted(urn=metadata["urn"], type=type_, gone=new is None, protected=bool(old.get("protect")))
    if new is None:
        return base
    pairs = {path: _pair(old, new, path) for path in metadata.get("detailedDiff") or {}}
    for name in (name for row in CAUSES if row.get("outputs") for name in row["properties"]):
        pair = _pair(old, new, name)
        if pair[0] != pair[1] and (cause(type_, name) or {}).get("outputs"):
            pairs.setdefault(name, pair)
    differences = []
    for path, (before, now) in sorted(pairs.items()):
        around = [_at(each.get("inputs"), _steps(path)[:-1]) for each in (old, new)]
        hidden = _in_secret(type_, path) or any(map(_holds_secret, around))
        shown = _shown(path, before, now, hidden, known)
        # The last `up` set it by another input, `stringData`.
        was = SECRET if _in_secret(type_, path) else shown[0]
        differences.append(Difference(path, was, shown[1]))
    return replace(base, differences=tuple(differences)) if differences else None


def _with_step(drifted: Drifted, action: Action, metadata: Mapping[str, Any]) -> Drifted:
    details: Mapping[str, Any] = metadata.get("detailedDiff") or {}
    forced = sorted(path for path, how in details.items() if "replace" in str(how.get("diffKind")))
    whole = action in ("replace", "delete", "create")
    differences = (replace(each, set_back=whole or each.path in details) for each in drifted.differences)
    return replace(drifted, action=action, differences=tuple(differences), reasons=tuple(forced))


def _pair(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> tuple[Any, Any]:
    """Return the values at a path of the inputs or, if those do not differ, of the outputs."""
    before, now = (_at(each.get("inputs"), _steps(path)) for each in (old, new))
    if before != now:
        return before, now
    return _at(old.get("outputs"), _steps(path)), _at(new.get("outputs"), _steps(path))


def _steps(path: str) -> list[str | int]:
    """Return the steps of a path in the engine's notation, `a.b[0]["c/d"]`."""
    found = _STEP.findall(path)
    return [int(index) if index else name or json.loads(f'"{quoted}"') for quoted, index, name in found]


def _at(value: Any, steps: Iterable[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _holds_secret(value: Any) -> bool:
    """Return whether it is an environment variable whose name is that of a secret, or has one."""
    if isinstance(value, Mapping):
        return ("value" in value and sounds_secret(str(value.get("name")))) or any(map(_holds_secret, value.values()))
    return isinstance(value, list) and any(map(_holds_secret, value))


def _in_secret(type_: str, path: str) -> bool:
    return type_ == _SECRETS and not path.startswith("metadata")


def _shown(path: str, before: Any, now: Any, hidden: bool, known: Masker | None) -> tuple[str, str]:
    """Return both values as texts, without secrets."""
    texts = [NOT_SET if each is None else each if isinstance(each, str) else _json(each) for each in (before, now)]
    last = (_steps(path) or [path])[-1]
    hidden |= any(_HIDDEN in text or REDACTED in redacted(f"{last}: {text}", known) for text in texts)
    if not hidden and not any(map(_holds_secret, (before, now))):
        return texts[0], texts[1]
    return NOT_SET if before is None else SECRET, NOT_SET if now is None else OTHER_SECRET


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
