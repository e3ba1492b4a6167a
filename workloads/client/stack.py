"""A stack's outputs, from the Pulumi engine or from a file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from pydantic import ValidationError

from infra.outputs import Outputs
from workloads.exits import WorkloadError

PROJECT = Path(__file__).resolve().parents[2]
FILE_VARIABLE = "RDMA_RAY_OUTPUTS"


def read_outputs(stack: str | None, file: Path | None) -> Outputs:
    """The outputs of `stack`, or those in `file` (JSON as `pulumi stack output --json --show-secrets` prints it).

    Without either, the file that RDMA_RAY_OUTPUTS names counts; then the stack that STACK names; then `local`.
    Raises WorkloadError where there is no such stack or file, or where its outputs do not fit the contract.
    """
    if file is None and stack is None and os.environ.get(FILE_VARIABLE):
        file = Path(os.environ[FILE_VARIABLE])
    if file is not None:
        return _from_file(file)
    return _from_pulumi(stack or os.environ.get("STACK") or "local")


def _from_file(file: Path) -> Outputs:
    try:
        text = file.read_text()
    except OSError as error:
        raise WorkloadError(f"cannot read the outputs file {file}: {error.strerror}") from error
    return _parse(text, where=f"file {file}", fix="write it by: bin/pulumi stack output --json --show-secrets")


def _from_pulumi(stack: str) -> Outputs:
    command = [_pulumi(), "stack", "output", "--json", "--show-secrets", "--non-interactive", "--stack", stack]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    make = f"make up STACK={stack}"
    if done.returncode:
        # The engine's last line says why; it never holds an output, so that no secret can come with it.
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise WorkloadError(f"no outputs of stack {stack!r}: {reason}\nbring it up first: {make}")
    if done.stdout.strip() in ("", "{}"):
        raise WorkloadError(f"stack {stack!r} exists, but nothing runs in it: bring it up first: {make}")
    return _parse(done.stdout, where=f"stack {stack!r}", fix=f"bring it up to date: {make}")


def _pulumi() -> str:
    """The project's own engine where it is built, else the one on PATH."""
    own = PROJECT / "bin" / "pulumi"
    found = str(own) if own.is_file() else shutil.which("pulumi")
    if found is None:
        raise WorkloadError(
            f"no Pulumi engine: neither {own} nor `pulumi` on PATH. Run `make setup`, or name a file of outputs with"
            f" --outputs FILE or {FILE_VARIABLE}"
        )
    return found


def _parse(text: str, where: str, fix: str) -> Outputs:
    try:
        return Outputs.model_validate_json(text)
    except ValidationError as error:
        # Only names and messages: the values may hold the token.
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'the document'}: {e['msg']}"
            for e in error.errors(include_input=False, include_url=False, include_context=False)
        )
    # Raised outside the except block: a chained ValidationError would print its inputs.
    raise WorkloadError(f"the outputs of {where} do not fit the contract of infra/outputs.py: {problems}\n{fix}")
