"""From what Pulumi delivers to settings, with every problem on the way.

Reading never stops at the first problem: a value that cannot be read is left out, defaults fill what was not given, and
the rules judge what is left. A rule that needs a value that could not be read stays silent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from infra.defaults import REQUIRED, Derived, Fixed
from infra.legality import check
from infra.problems import HIDDEN, OUR_CONTRACT, Problem, UnreadableError, shown
from infra.readers import RefusedError, Secret, nearest
from infra.settings import TARGETS, Leaf, Settings, leaves, sections

ENCRYPTED = (
    "This value is encrypted, and only Pulumi can read it.",
    "encrypt nothing but ray.token, or let `pulumi preview` do the check",
)


@dataclass
class Draft:
    """What is known so far: the values read, the paths whose values could not be read, and the problems.

    `meant` are the settings that misspelt or misplaced keys were probably meant for, `secrets` the secret ones given.
    """

    values: dict[str, Any] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    meant: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, path: str, value: str, says: str, fix: str) -> None:
        """Note a problem with one setting."""
        self.problems.append(Problem(settings=(path,), says=says, fix=fix, source=OUR_CONTRACT, values=(value,)))


def read(
    raw: Mapping[str, Any], *, secret_keys: frozenset[str], stack: str | None
) -> tuple[Settings | None, tuple[Problem, ...]]:
    """Settings and no problems, or problems and perhaps no settings."""
    contract = {leaf.path: leaf for leaf in leaves()}
    draft = Draft()
    flat = list(_flatten(raw, draft))
    draft.secrets.update(path for path, _ in flat if path in contract and isinstance(contract[path].reader, Secret))
    for path, value in flat:
        _read_leaf(contract.get(path), path, value, secret_keys, draft)
    draft.broken.update(draft.meant - set(draft.values))
    target = draft.values.get("target")
    if target is None:
        if "target" not in draft.broken:
            draft.refuse(
                "target",
                shown(None),
                "Without a target nothing says where the cluster should run.",
                f"set rdma-ray:target to one of {', '.join(TARGETS)}",
            )
        return None, tuple(draft.problems)
    given = dict(draft.values)
    defaulted = _fill(contract, target, draft)
    settings = _build(draft.values)
    texts = {path: shown(value) + (" (default)" if path in defaulted else "") for path, value in draft.values.items()}
    texts.update({path: HIDDEN for path in given if _hidden(path, secret_keys, draft)})
    found = [problem.with_values(texts) for problem in _meaningless(contract, target, given)]
    refused = {problem.settings[0] for problem in found}
    for problem in check(settings, stack=stack):
        if refused.isdisjoint(problem.settings):
            found.append(problem.with_values(texts))
    problems = (*draft.problems, *found)
    if problems:
        return None, problems
    return Settings.model_validate(_tree(draft.values)), ()


def _flatten(raw: Mapping[str, Any], draft: Draft) -> Iterator[tuple[str, Any]]:
    """Dotted paths and values, objects in JSON text opened; what is null counts as left out."""
    grouped = sections()
    for key, value in ((str(key), value) for key, value in raw.items()):
        if value is None:
            continue
        if key not in grouped:
            yield key, value
            continue
        opened = _opened(value)
        if isinstance(opened, Mapping):
            for inner, inner_value in opened.items():
                if inner_value is not None:
                    yield f"{key}.{inner}", inner_value
            continue
        names = [str(info.alias) for info in grouped[key].model_fields.values()]
        draft.broken.update(f"{key}.{name}" for name in names)
        if isinstance(opened, SecretStr):
            draft.refuse(key, HIDDEN, *ENCRYPTED)
        else:
            draft.refuse(
                key,
                f"({type(opened).__name__})",
                f"This key is an object with the settings {', '.join(names)}.",
                f"write them under {key}:, or set them one by one with --path, such as {key}.{names[0]}",
            )


def _opened(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _read_leaf(leaf: Leaf | None, path: str, value: Any, secret_keys: frozenset[str], draft: Draft) -> None:
    if leaf is None:
        says, fix, meant = _unknown(path)
        # Under a wrong name may stand a token: next to the name of a secret, or encrypted, the value stays hidden.
        secret = any(isinstance(known.reader, Secret) for known in leaves() if known.path in meant)
        hidden = secret or isinstance(value, SecretStr | Mapping) or _hidden(path, secret_keys, draft)
        draft.refuse(path, f"{HIDDEN if hidden else _as_written(value)} (unknown key)", says, fix)
        # Whoever wrote this meant another setting: that one is not missing, and rules about it would only confuse.
        draft.meant.update(meant)
        return
    if isinstance(value, SecretStr) and not isinstance(leaf.reader, Secret):
        draft.broken.add(path)
        draft.refuse(path, HIDDEN, *ENCRYPTED)
        return
    encrypted = path in secret_keys or path.partition(".")[0] in secret_keys
    secret = isinstance(leaf.reader, Secret)
    hidden = _hidden(path, secret_keys, draft)
    try:
        draft.values[path] = leaf.reader.read(value)
    except RefusedError as refused:
        draft.broken.add(path)
        if secret:
            draft.refuse(path, HIDDEN, refused.says, refused.fix)
        elif hidden:
            draft.refuse(
                path, HIDDEN, "What was encrypted here is not what this setting takes.", "set it in clear text"
            )
        else:
            draft.refuse(path, _as_written(value), refused.says, refused.fix)
        return
    if secret and not encrypted:
        draft.refuse(
            path,
            HIDDEN,
            "This secret is in clear text, so it would stay readable in the stack file and in its history.",
            f"store it encrypted, and choose a new one: pulumi config set --secret --path 'rdma-ray:{path}' VALUE",
        )


def _hidden(path: str, secret_keys: frozenset[str], draft: Draft) -> bool:
    """Whether this value may be what was encrypted.

    Pulumi says only that something in a section is encrypted; if the section has a secret setting, that is what it was.
    """
    section, _, _ = path.rpartition(".")
    return path in secret_keys or (
        section in secret_keys and not any(secret.startswith(f"{section}.") for secret in draft.secrets)
    )


def _as_written(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else shown(value)


def _unknown(path: str) -> tuple[str, str, tuple[str, ...]]:
    """What is wrong with a key that is no setting, what to do, and the settings that were probably meant."""
    section, _, name = path.rpartition(".")
    everything = [leaf.path for leaf in leaves()]
    here = [known.rpartition(".")[2] for known in everything if known.rpartition(".")[0] == section]
    here += [] if section else list(sections())
    where = f"{section} has" if section else "A stack file has"
    says = f"{where} no setting of this name, so nothing would read it."
    elsewhere = [known for known in everything if known.rpartition(".")[2] == name]
    if elsewhere:
        return says, f"{name} is a setting elsewhere: write {' or '.join(elsewhere)}", tuple(elsewhere)
    near = nearest(name, here)
    if near:
        meant = f"{section}.{near}" if section else near
        inside = tuple(known for known in everything if known == meant or known.startswith(meant + "."))
        return says, f"did you mean {meant}?", inside
    return says, f"remove it; the names here are {', '.join(here)}", ()


def _fill(contract: Mapping[str, Leaf], target: str, draft: Draft) -> set[str]:
    """Give every setting that was left out its default; returns the paths that got one."""

    def get(path: str) -> Any:
        if path in draft.broken:
            raise UnreadableError(path)
        if path not in draft.values:
            draft.values[path] = resolve(contract[path].defaults.on(target))
        return draft.values[path]

    def resolve(default: Any) -> Any:
        if isinstance(default, Fixed):
            return resolve(default.value)
        return default.of(get) if isinstance(default, Derived) else default

    missing = [path for path in contract if path not in draft.values and path not in draft.broken]
    for path in missing:
        if contract[path].defaults.on(target) is REQUIRED:
            draft.broken.add(path)
            draft.refuse(
                path,
                shown(None),
                f"{contract[path].info.description} On {target} it cannot be guessed.",
                f"set rdma-ray:{path}",
            )
    for path in missing:
        try:
            get(path)
        except UnreadableError:
            # The setting it follows has a problem of its own; this one waits for it.
            draft.broken.add(path)
    return {path for path in missing if path not in draft.broken and draft.values[path] is not None}


def _meaningless(contract: Mapping[str, Leaf], target: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    """A setting that the target fixes was given another value: nothing would read it."""
    for path, value in given.items():
        default = contract[path].defaults.on(target)
        if not isinstance(default, Fixed):
            continue
        if isinstance(default.value, Derived):
            yield Problem(
                settings=(path, "target"),
                says=f"On {target} this is always {default.value.words.removeprefix('as ')}, so nothing would read it.",
                fix=f"remove it and set {default.value.words.removeprefix('as ')}",
                source=OUR_CONTRACT,
            )
        elif value != default.value:
            others = [name for name in TARGETS if not isinstance(contract[path].defaults.on(name), Fixed)]
            yield Problem(
                settings=(path, "target"),
                says=f"This is a setting of {' and '.join(others)}; on {target} nothing would read it.",
                fix=f"remove {path}, or set target to {' or '.join(others)}",
                source=OUR_CONTRACT,
            )


def _tree(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {key: {} for key in sections()}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        (tree[section] if section else tree)[name] = value
    return tree


def _build(values: Mapping[str, Any]) -> Settings:
    """Settings that lack what could not be read; asking for such a value raises `UnreadableError`."""
    grouped = sections()
    parts: dict[str, Any] = {}
    for leaf in leaves():
        if leaf.path in values:
            (parts.setdefault(leaf.section, {}) if leaf.section else parts)[leaf.name] = values[leaf.path]
    for key, kind in grouped.items():
        parts[key] = kind.model_construct(**parts.get(key, {}))
    return Settings.model_construct(**parts)
