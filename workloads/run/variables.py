"""Variables of the user's command: `--env`, `--env-file`, and `--secret`, whose values travel separately."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workloads.exits import WorkloadError
from workloads.results.files import read_bytes
from workloads.secrecy import sounds_secret

LARGEST_FILE = 2**20  # bytes
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROTECTED = (
    (
        re.compile(
            r"RANK|WORLD_SIZE|(LOCAL|GROUP|ROLE|NODE)_(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)"
            r"|(TORCHELASTIC|PET)_.*"
        ),
        "the launcher sets it for each rank",
    ),
    (re.compile(r"(CUDA|NVIDIA|HIP|ROCR)_VISIBLE_DEVICES|RAY_EXPERIMENTAL_NOSET_.*"), "Ray assigns the GPUs"),
    (
        re.compile(r"RAY_(ADDRESS|AUTH_.*|JOB_.*|CLIENT_MODE|NAMESPACE|RAYLET_.*|NODE_.*|OVERRIDE_.*|RUNTIME_ENV_.*)"),
        "Ray connects the job to its own cluster with it",
    ),
    (re.compile(r"RDMA_RAY_.*"), "it identifies this project's processes"),
)
"""Names that no option sets, and why."""
_HARMLESS = re.compile(r"(?i)(?:true|false|yes|no|on|off|)\Z")
_COUNT = re.compile(r"(?i)(?:TOKEN|KEY)(?:S|IZERS?)(?:_|\Z)")


@dataclass(frozen=True)
class Variables:
    """Variables by name; the values of `secrets` leave this process sealed only (`launch.sealed`)."""

    plain: dict[str, str]
    secrets: dict[str, str] = field(repr=False)


def read(assignments: Sequence[str], file: Path | None, names: Sequence[str], own: Mapping[str, str]) -> Variables:
    """Return the variables of `--env`, `--env-file` and `--secret`. WorkloadError names the option and the fix.

    Args:
        assignments: `NAME=VALUE` of each --env, which takes precedence over the file.
        names: Name of each --secret: its value is in `own`, otherwise in the file.
        own: Environment of this process.
    """
    filed = {} if file is None else dict(_lines(file))
    secrets = {}
    for name in names:
        _check_name(f"--secret {name}", name)
        value = own.get(name) or filed.get(name)
        if not value:
            where = "this environment" if file is None else f"this environment or in {file}"
            raise WorkloadError(f"--secret {name}: {name} is not set in {where}: export it, or add it to --env-file")
        secrets[name] = _text(f"--secret {name}", value)
    plain = {name: value for name, value in filed.items() if name not in secrets}
    for name, value in plain.items():
        _check(f"{file}: {name}", name, value)
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        option = f"--env {name}"
        if not equals:
            raise WorkloadError(f"{option}: write --env NAME=VALUE")
        if name in secrets:
            raise WorkloadError(f"{option} and --secret {name} exclude each other: use only one of them")
        _check(option, name, value)
        plain[name] = value
    return Variables(plain, secrets)


def _check(option: str, name: str, value: str) -> None:
    _check_name(option, name)
    _text(option, value)
    if sounds_secret(name) and not _HARMLESS.match(value) and not (_COUNT.search(name) and value.isdecimal()):
        raise WorkloadError(
            f"{option}: the name suggests a secret, and variables are readable in the job's log and metadata:"
            f" use --secret {name}, which takes the value from your environment or --env-file"
        )


def _check_name(option: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise WorkloadError(
            f"{option}: use letters, digits and underscores in a name, and do not begin it with a digit"
        )
    for pattern, reason in PROTECTED:
        if pattern.fullmatch(name):
            raise WorkloadError(f"{option}: {name} is protected: {reason}. Leave it out")


def _text(option: str, value: str) -> str:
    """Return a value that a process can have as a variable. WorkloadError without the value."""
    if "\0" in value:
        raise WorkloadError(f"{option}: the value contains a NUL byte, which no variable can")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WorkloadError(f"{option}: the value is not UTF-8") from None
    return value


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of `NAME=VALUE` lines; `export`, comments and quotes around a value are accepted."""
    data = read_bytes(file, LARGEST_FILE)
    if len(data) > LARGEST_FILE:
        raise WorkloadError(
            f"--env-file {file}: more than {LARGEST_FILE // 2**20} MiB, so it is not a file of variables"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"--env-file {file}: not UTF-8 at byte {error.start}") from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not _NAME.fullmatch(name):
            # Without the line itself, which may hold a secret.
            raise WorkloadError(f"--env-file {file}: line {number} is not NAME=VALUE")
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        yield name, value
