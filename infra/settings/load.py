"""From Pulumi's configuration or a stack file to settings, with every problem at once.

Reading does not stop at a problem: a value that cannot be read is left out, defaults fill in what is missing, and the
rules check the rest. A rule that needs a value that could not be read is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.alias_generators import to_snake
from pydantic_core import from_json

from infra.settings import eks, gke, kubernetes, local
from infra.settings.cloud import NameLimit, stack_name_rejected
from infra.settings.eks import EksSettings, region_problems
from infra.settings.fields import PartialSettings, Setting, nearest, rules_of, settings_of
from infra.settings.gke import GkeSettings
from infra.settings.kubernetes import KubernetesSettings
from infra.settings.local import LocalSettings
from infra.settings.problems import HIDDEN, NOT_SET, Finding, Problem, Rule, SettingsError, shown
from infra.settings.stack_file import read_config

NAMESPACE = "rdma-ray"

Settings = LocalSettings | GkeSettings | EksSettings | KubernetesSettings
"""A valid stack file: every setting has a value, and no two of them contradict each other."""

MODELS: dict[str, type[Settings]] = {
    "local": LocalSettings,
    "gke": GkeSettings,
    "eks": EksSettings,
    "kubernetes": KubernetesSettings,
}
RULES: dict[str, list[Rule]] = {
    target: [rule for rule in rules_of(model) if not rule.warning] for target, model in MODELS.items()
}
WARNINGS: dict[str, list[Rule]] = {
    target: [rule for rule in rules_of(model) if rule.warning] for target, model in MODELS.items()
}
NAME_LIMITS: dict[str, tuple[NameLimit, ...]] = {
    "gke": gke.NAME_LIMITS,
    "eks": eks.NAME_LIMITS,
    "kubernetes": kubernetes.NAME_LIMITS,
}
CONTRACTS: dict[str, Mapping[str, Setting]] = {target: settings_of(model) for target, model in MODELS.items()}
PATHS = tuple(dict.fromkeys(path for target in ("gke", "eks", "kubernetes", "local") for path in CONTRACTS[target]))
"""Every setting of every target."""
SECTIONS = {
    key: [path.removeprefix(f"{key}.") for path in PATHS if path.startswith(f"{key}.")]
    for key in dict.fromkeys(path.partition(".")[0] for path in PATHS if "." in path)
}
"""Names of the settings of each section."""
SETTINGS = {path: {name: found[path] for name, found in CONTRACTS.items() if path in found} for path in PATHS}
"""Declarations of each setting by target."""
SECRETS = {path for path, known in SETTINGS.items() if any(setting.secret for setting in known.values())}
OFF = ("false", "none", "[]")
"""Values, as `shown` writes them, that a setting may have on a target that does not use it."""

ENCRYPTED = Finding(
    "This value is encrypted, and only Pulumi can read it.",
    "encrypt nothing but ray.token, or let `pulumi preview` do the check",
)


def parse(
    raw: Mapping[str, Any],
    *,
    secret_keys: frozenset[str] = frozenset(),
    stack: str | None = None,
    origin: str = "The stack's configuration",
) -> Settings:
    """Return the settings of a stack file.

    Args:
        raw: The keys of the namespace without it ("nodes"), as Pulumi delivers them (text and JSON) or as YAML does.
            A value that cannot be decrypted is a `SecretStr`.
        secret_keys: Keys ("ray") or paths ("ray.token") that were stored encrypted.
        stack: The stack's name, if known: names of cloud resources are made from it.
        origin: Where the keys are from, for the error's first line.

    Raises `SettingsError` with every problem.
    """
    draft = _Draft(secret_keys)
    flat = dict(draft.flatten(raw))
    draft.secrets = SECRETS & flat.keys()
    draft.target = draft.texts["target"] = next((target for target in MODELS if flat.get("target") == target), "")
    for path, value in flat.items():
        draft.read(path, value)
    if draft.target:
        draft.fill()
        draft.check(stack)
    elif "target" not in draft.unreadable:
        fix = f"set rdma-ray:target to one of {', '.join(MODELS)}"
        draft.reject("target", NOT_SET, Finding("No target is set, so it is unclear where the cluster runs.", fix))
    if draft.problems:
        raise SettingsError(draft.problems, origin=origin)
    return MODELS[draft.target].model_validate(draft.settings(), from_attributes=True)


def load() -> Settings:
    """Return the settings of the stack that Pulumi runs, from every key of the namespace. Raises `SettingsError`."""
    import pulumi  # Everything else about settings works without Pulumi.
    from pulumi.runtime import config

    delivered = {**config.get_config_env(), **config.CONFIG.get()}
    secrets = {*config.get_config_secret_keys_env(), *(key for key in delivered if config.is_config_secret(key))}
    stack = pulumi.get_stack()
    return parse(
        _own(delivered),
        secret_keys=frozenset(_own(dict.fromkeys(secrets))),
        stack=stack,
        origin=f"The configuration of stack {stack}",
    )


def from_stack_file(path: Path, changes: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a Pulumi.<stack>.yaml, without Pulumi: for editors, checks and plans.

    `changes` are settings by path, such as "ray.mode", that take precedence over those of the file. An encrypted token
    counts as set, with an unknown value (an empty `SecretStr`). Raises `SettingsError`.
    """
    stack = path.name.removeprefix("Pulumi.").rpartition(".")[0] or None
    config = read_config(path)
    raw = {**_without_ciphertext(_own(config)), **(changes or {})}
    location, region = raw.get("location"), config.get("aws:region")
    # The program checks the region that the provider has, which need not be in the file.
    known = raw.get("target") == "eks" and isinstance(location, str) and isinstance(region, str)
    others = region_problems(str(location), str(region)) if known else []
    try:
        settings = parse(raw, stack=stack, origin=path.name)
    except SettingsError as error:
        raise SettingsError([*error.problems, *others], origin=path.name) from None
    if others:
        raise SettingsError(others, origin=path.name)
    return settings


def warnings(settings: Settings) -> list[Problem]:
    """Return warnings about valid settings that are probably unintended."""
    problems = []
    for rule in WARNINGS[settings.target]:
        if finding := rule.finding(settings):
            attributes = {path: ".".join(map(to_snake, path.split("."))) for path in rule.settings}
            known = CONTRACTS[settings.target]
            values = tuple(known[path].text(attrgetter(name)(settings)) for path, name in attributes.items())
            problems.append(finding.problem(rule.settings, values))
    return problems


def _own(config: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the keys of our namespace, without it."""
    prefix = f"{NAMESPACE}:"
    return {str(key).removeprefix(prefix): value for key, value in config.items() if str(key).startswith(prefix)}


def _without_ciphertext(value: Any) -> Any:
    """Return the value with an empty secret in place of each encrypted one."""
    if not isinstance(value, Mapping):
        return value
    encrypted = set(value) == {"secure"}
    return SecretStr("") if encrypted else {key: _without_ciphertext(inner) for key, inner in value.items()}


def _written(value: Any, shown: Callable[[Any], str] = shown) -> str:
    return f'"{shown(value)}"' if isinstance(value, str) else shown(value)


@dataclass
class _Draft:
    """A partially read stack file: the values, the settings whose values cannot be read, and the problems.

    `texts` are values as messages show them, also those that cannot be read. `unreadable` includes settings for which
    misspelt or misplaced keys were probably meant. `secrets` are the secret settings that were given.
    """

    secret_keys: frozenset[str]
    target: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def flatten(self, raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield dotted paths and values; objects and lists in JSON are opened, null counts as left out."""
        for key, value in ((str(key), value) for key, value in raw.items() if value is not None):
            if isinstance(value, str) and (key in SECTIONS or value.startswith("[")):
                with suppress(ValueError):
                    value = from_json(value, allow_inf_nan=False)
            if key not in SECTIONS:
                yield key, value
                continue
            if isinstance(value, Mapping):
                yield from ((f"{key}.{name}", each) for name, each in value.items() if each is not None)
                continue
            names = SECTIONS[key]
            self.unreadable.update(f"{key}.{name}" for name in names)
            fix = f"write them under {key}:, or set them one at a time with --path, such as {key}.{names[0]}"
            finding = Finding(f"This key is an object with the settings {', '.join(names)}.", fix)
            if isinstance(value, SecretStr):
                self.reject(key, HIDDEN, ENCRYPTED)
            else:
                self.reject(key, f"({type(value).__name__})", finding)

    def reject(self, path: str, text: str, finding: Finding, *others: str) -> None:
        """Add a problem with one setting, which counts as unreadable, and with others."""
        self.unreadable.add(path)
        self.texts[path] = text
        self.report(finding, path, *others)

    def report(self, finding: Finding, *settings: str) -> None:
        """Add a problem with settings, of which the first is the one to change."""
        values = tuple(self.texts.get(path, NOT_SET) for path in settings)
        self.problems.append(finding.problem(settings, values))

    def read(self, path: str, value: Any) -> None:
        """Read one value, or add the problem with it."""
        known = SETTINGS.get(path)
        if known is None:
            self.unknown(path, value)
            return
        setting = known.get(self.target, next(iter(known.values())))
        hidden = setting.secret or self.hidden(path)
        read = setting.read(value)
        if isinstance(value, SecretStr) and not setting.secret:
            self.reject(path, HIDDEN, ENCRYPTED)
        elif self.target and self.target not in known:
            if isinstance(read, Finding) or shown(read) not in OFF:
                self.reject(
                    path, HIDDEN if hidden else setting.text(value), self.misplaced(path, list(known)), "target"
                )
        elif not isinstance(read, Finding):
            self.values[path] = read
            self.texts[path] = HIDDEN if hidden else setting.text(read)
        elif hidden and not setting.secret:
            self.reject(path, HIDDEN, Finding("The encrypted value is not valid.", "set it in clear text, to see why"))
        elif not (fitting := [target for target, other in known.items() if not isinstance(other.read(value), Finding)]):
            self.reject(path, HIDDEN if hidden else _written(value, setting.text), read)
        elif self.target:
            fix = f"set {path} to one of {', '.join(setting.names)}, or set target to {' or '.join(fitting)}"
            finding = Finding(
                f"{self.target} has no {setting.info.title} {value}, unlike {' and '.join(fitting)}.", fix
            )
            self.reject(path, shown(value), finding, "target")
        encrypted = isinstance(value, SecretStr) or self.secret_keys & {path, path.partition(".")[0]}
        if setting.secret and not encrypted and not isinstance(read, Finding):
            fix = f"choose a new one, and store it encrypted: pulumi config set --secret --path 'rdma-ray:{path}' VALUE"
            self.reject(path, HIDDEN, Finding("The stack file and its history show this secret in plain text.", fix))

    def misplaced(self, path: str, targets: list[str]) -> Finding:
        """Return the finding for a setting that the target does not have."""
        instead = local.INSTEAD.get(path) if self.target == "local" else None
        if instead:
            fix = f"remove it and set {instead}"
            return Finding(f"On {self.target} this is always {instead}, so nothing would read it.", fix)
        fix = f"remove {path}, or set target to {' or '.join(targets)}"
        return Finding(f"This is a setting of {' and '.join(targets)}; on {self.target} nothing would read it.", fix)

    def unknown(self, path: str, value: Any) -> None:
        """Add the problem of a key that is not a setting, with the setting that was probably meant."""
        section, _, name = path.rpartition(".")
        here = SECTIONS.get(section, []) if section else [*(other for other in PATHS if "." not in other), *SECTIONS]
        meant = [other for other in PATHS if other.rpartition(".")[2] == name]
        near = nearest(name, here)
        if meant:
            fix = f"{name} is a setting elsewhere: write {' or '.join(meant)}"
        elif near:
            full = f"{section}.{near}" if section else near
            fix = f"did you mean {full}?"
            meant = [other for other in PATHS if other == full or other.startswith(full + ".")]
        else:
            fix = f"remove it; the names here are {', '.join(here)}"
        # The value may be a token: it stays hidden if it is encrypted or its key looks like that of a secret.
        hidden = SECRETS & {*meant} or isinstance(value, SecretStr | Mapping) or self.hidden(path)
        text = f"{HIDDEN if hidden else _written(value)} (unknown key)"
        self.reject(path, text, Finding(f"{section or 'A stack file'} has no setting of this name.", fix))
        # The setting that was meant is not missing, and rules about it would only confuse.
        self.unreadable.update(meant)

    def hidden(self, path: str) -> bool:
        """Return whether this value may be the encrypted one.

        Pulumi reports only that something in a section is encrypted. If the section has a secret, that is assumed.
        """
        section = path.rpartition(".")[0]
        secret = any(secret.startswith(f"{section}.") for secret in self.secrets)
        return path in self.secret_keys or (section in self.secret_keys and not secret)

    def fill(self) -> None:
        """Give every setting that was left out its default; one that follows an unreadable setting is unreadable."""
        given = self.values.keys() | self.unreadable
        missing = {path: setting for path, setting in CONTRACTS[self.target].items() if path not in given}
        for path, setting in missing.items():
            if setting.required:
                fix = f"set rdma-ray:{path}"
                self.reject(path, NOT_SET, Finding(f"{setting.info.description} {self.target} has no default.", fix))
            elif setting.derived is None:
                self.default(path, setting.info.default)
        for path, setting in (*missing.items(), *missing.items()):  # Twice: one may follow another declared later.
            if setting.derived:
                with suppress(KeyError):
                    self.default(path, setting.derived.of(self.values))

    def default(self, path: str, value: Any) -> None:
        """Set a setting that was left out."""
        self.values[path] = value
        self.texts[path] = NOT_SET if value is None else f"{shown(value)} (default)"

    def settings(self) -> PartialSettings:
        """Return the values as far as they are valid."""
        return PartialSettings(MODELS[self.target], self.values)

    def check(self, stack: str | None) -> None:
        """Add the findings of the rules."""
        settings = self.settings()
        for rule in RULES[self.target]:
            if finding := rule.finding(settings):
                self.report(finding, *rule.settings)
        if stack is not None and self.target in NAME_LIMITS:
            for finding in stack_name_rejected(stack, NAME_LIMITS[self.target]):
                self.report(finding, "target")
