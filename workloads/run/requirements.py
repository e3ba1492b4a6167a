"""Packages of `--pip` and `--requirements`, and the versions of the image that they must not replace.

Ray installs them on each node into a virtual environment on top of the image's packages (ray:
_private/runtime_env/pip.py, virtualenv_utils.py, 2.60, read 2026-11). pip keeps an installed package unless a
requirement excludes its version. So the image's versions are requirements as well: pip then refuses a package that
needs another torch, and downloads none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from workloads.client.api import JobsApi
from workloads.client.follow import follow
from workloads.client.run import JOB_ENVIRONMENT
from workloads.client.submit import submit
from workloads.exits import WorkloadError
from workloads.results.events import new_id
from workloads.results.files import read_bytes

LARGEST_FILE = 2**20  # bytes
PROVIDED = r"(?:torch|torchvision|torchaudio|ray|triton|pytorch-triton|nvidia-.*|cuda-.*)"
"""Names of packages that the image provides, normalized (PEP 503)."""
_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--pre", "--no-binary", "--only-binary", "-i", "-f")
PROGRAM = f"""
import importlib.metadata, re
found = {{re.sub("[-_.]+", "-", one.name).lower(): one.version for one in importlib.metadata.distributions()}}
print(*(f"{{name}}=={{found[name]}}" for name in sorted(found) if re.fullmatch({PROVIDED!r}, name)), sep="\\n")
"""
"""Program that prints the image's versions as requirements."""


def read(packages: Sequence[str], file: Path | None) -> list[str]:
    """Return the requirements of `--pip` and of a file. WorkloadError names one that does not work on a cluster."""
    requirements = [_requirement(f"--pip {text}", text) for text in packages]
    return requirements if file is None else [*requirements, *_lines(file)]


def environment(api: JobsApi, packages: Sequence[str]) -> dict[str, Any]:
    """Return the field `pip` of a runtime environment: the packages, and the image's versions.

    A job on the head prints these: all nodes have one image. WorkloadError if it does not.
    """
    job_id = new_id("pip")
    submit(
        api,
        job_id,
        ["python", "-P", "-c", PROGRAM],
        {"env_vars": JOB_ENVIRONMENT},
        {"workload": "pip"},
    )
    lines: list[str] = []
    job = follow(api, job_id, lines.append)
    own = pins("\n".join(lines))
    if not any(pin.startswith("ray==") for pin in own):
        raise WorkloadError(f"--pip: job {job_id}, which reads the image's versions, is {job.status}: see its log")
    return {"packages": [*packages, *own], "pip_check": False}


def pins(log: str) -> list[str]:
    """Return the output of PROGRAM as requirements."""
    return re.findall(r"(?m)^[a-z0-9-]+==\S+$", log)


def _lines(file: Path) -> Iterator[str]:
    data = read_bytes(file, LARGEST_FILE)
    if len(data) > LARGEST_FILE:
        raise WorkloadError(f"--requirements {file}: more than {LARGEST_FILE // 2**20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"--requirements {file}: not UTF-8 at byte {error.start}") from None
    following = 1
    for line in re.split(r"(?<!\\)\n", text):  # a backslash continues a line
        number, following = following, following + 1 + line.count("\n")
        line = re.sub(r"(^|\s)#.*", "", line.replace("\\\n", " ")).strip()
        # Without the line itself: in a repository that somebody else wrote, the file may be a link to a secret.
        option = f"--requirements {file}: line {number}"
        if line.startswith("-"):
            if {word.partition("=")[0] for word in line.split() if word.startswith("-")} - {*_OPTIONS}:
                raise WorkloadError(f"{option}: only packages and their indexes reach the nodes: write packages here")
            yield _without_credentials(option, line)
        elif line:
            yield _requirement(option, line)


def _requirement(option: str, text: str) -> str:
    """Return a requirement as given. WorkloadError if a node would not install it, or would replace the image's."""
    if "--hash" in text:
        raise WorkloadError(
            f"{option}: with a hash, pip requires one for every package, including the image's: remove it"
        )
    if text.startswith("${"):
        return text  # a path on the nodes, such as that of the working directory
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise WorkloadError(
            f"{option}: write a package, such as einops or einops>=0.8. A file goes into the working directory:"
            " ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/FILE"
        ) from None
    name = re.sub(r"[-_.]+", "-", requirement.name).lower()
    if re.fullmatch(PROVIDED, name) and (
        requirement.url or any(one.operator not in (">=", ">", "!=") for one in requirement.specifier)
    ):
        raise WorkloadError(
            f"{option}: the image provides {name}, and another version takes gigabytes on every node and may not fit"
            " the GPU driver, the NCCL plugin or the cluster's Ray: leave the version out, or change ray.image"
        )
    return _without_credentials(option, text)


def _without_credentials(option: str, text: str) -> str:
    if re.search(r"://[^/\s]*@", text):
        raise WorkloadError(
            f"{option.partition('://')[0]}: anyone who sees the job sees the password in this address: set the index in"
            " the image (PIP_EXTRA_INDEX_URL)"
        )
    return text
