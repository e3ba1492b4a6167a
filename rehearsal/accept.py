"""`make accept FILE=…`: make a document that a user sent (`rdma-ray evidence`) part of what a rehearsal knows.

The document is hostile until it has passed: its size, strict JSON, its model, the forms of its texts, the rules of the
settings, and a rehearsal of its configuration. Then one file in `rehearsal/sent_back/` holds it, to be reviewed and
committed. That file is two facts: its durations count as those of `rehearsal/report/durations.py`, and
`tests/rehearsal/test_sent_back.py` rehearses its configuration, so that a later rule cannot refuse what a real cloud
accepted.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from infra.settings import from_stack_file
from infra.settings.problems import SettingsError
from infra.terminal import printable
from rehearsal.clouds.registry import kind_of
from rehearsal.engine.commands import Engine, EngineError
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.durations import SENT_BACK
from rehearsal.users_cluster import prepare
from workloads.exits import WorkloadError
from workloads.feedback.collect import leaks
from workloads.feedback.document import KEPT_BACK, TIERS, SentEvidence
from workloads.results.files import loads, read_bytes, write_file

LARGEST = 2**20  # bytes: a document with 5,000 rows has half of that
STACK = "sent"
"""Name of the stack in a rehearsal: a document has none."""


class NotAcceptedError(ValueError):
    """A document that cannot be accepted. The message has the reason, and no more than a few of its characters."""


def read(file: Path) -> SentEvidence:
    """Return the document in a file. Raises `NotAcceptedError` and `WorkloadError`."""
    data = read_bytes(file, LARGEST)
    if len(data) > LARGEST:
        raise NotAcceptedError(f"it has more than {LARGEST // 2**20} MiB")
    try:
        loads(data)  # before Pydantic, which takes NaN, and the last of two equal keys
        document = SentEvidence.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise NotAcceptedError(f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg'][:200]}") from None
    except ValueError as error:
        raise NotAcceptedError(str(error)[:200]) from None
    if document.tier != TIERS[document.target] or document.target == "local":
        raise NotAcceptedError(f"a stack of target {document.target}, tier {document.tier}, shows nothing of a cloud")
    runs = document.runs if isinstance(document.runs, list) else []
    if not any(run.complete and run.command == "up" and run.operations for run in runs):
        raise NotAcceptedError("no `make up` in it succeeded, so nothing shows that a cloud accepted its configuration")
    try:
        latest = max(date.fromisoformat(each) for each in (document.date, *(run.date for run in runs)))
    except ValueError as error:
        raise NotAcceptedError(str(error)) from None
    if latest > (datetime.now(UTC) + timedelta(days=1)).date():
        raise NotAcceptedError(f"it is of {latest}, which is in the future")
    types = sorted({each.type for run in runs for each in run.operations})
    if unknown := [type_ for type_ in types if kind_of(type_) is None]:
        raise NotAcceptedError(f"the simulated clouds have no type {unknown[0]}: it is not of this program")
    if found := leaks(document, config={}, stack=""):
        raise NotAcceptedError(f"it has {found[0]}")
    return document


def stack_file(document: SentEvidence) -> dict[str, Any]:
    """Return the content of a stack file with the document's settings, and others in place of those kept back."""
    config: dict[str, Any] = {"gcp:project": "their-project"} if document.target == "gke" else {}
    config |= {"aws:region": document.region} if document.target == "eks" else {}
    instead = {path: KEPT_BACK[path] for path in document.set_ if KEPT_BACK[path] is not None}
    if "cluster.existing" in instead and (subnets := instead.get("network.subnets")):
        # That of the nodes: a cluster of the user's has the others.
        instead["network.subnets"] = subnets[:1]
    for path, value in (document.settings | instead).items():
        section, _, name = path.rpartition(".")
        place = config.setdefault(f"rdma-ray:{section}", {}) if section else config
        place[name if section else f"rdma-ray:{path}"] = value[document.target] if isinstance(value, dict) else value
    return {"config": config}


def write_stack_file(document: SentEvidence, folder: Path) -> Path:
    """Write that stack file. Raises `SettingsError` if a rule of the settings refuses it."""
    file = folder / f"Pulumi.{STACK}.yaml"
    file.write_text(yaml.safe_dump(stack_file(document)), encoding="utf-8")
    from_stack_file(file)
    return file


def rehearse(file: Path, workspace: Workspace) -> None:
    """Bring a stack file up. Raises `EngineError` if a rule of the simulated clouds refuses it."""
    Engine.deployed(workspace, STACK, file, partial(prepare, settings=from_stack_file(file)))


def _rehearse_alone(file: Path) -> None:
    with tempfile.TemporaryDirectory() as place, ForkServer() as server:
        rehearse(file, Workspace(Path(place) / "rehearsal", server.bin))


def accept(file: Path, folder: Path = SENT_BACK, rehearsed: Callable[[Path], None] = _rehearse_alone) -> Path:
    """Add a document to those that were accepted, and return its file, which may be there already.

    Raises `NotAcceptedError`, `SettingsError`, `EngineError` or `WorkloadError`, and then writes nothing.
    """
    document = read(file)
    digest = hashlib.sha256(document.to_json().encode()).hexdigest()[:8]
    target = folder / f"{document.date}-{document.target}-{digest}.json"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as place:
        rehearsed(write_stack_file(document, Path(place)))
    # Two documents of one stack have its earlier runs in common.
    others = [SentEvidence.model_validate_json(other.read_bytes()) for other in folder.glob("*.json")]
    seen = [run for other in others if isinstance(other.runs, list) for run in other.runs]
    if isinstance(document.runs, list):
        document = document.model_copy(update={"runs": [run for run in document.runs if run not in seen]})
    return write_file(target, document.to_json())


def main(arguments: list[str] | None = None) -> int:
    """Accept the file that is named. Returns the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) != 1 or not words[0]:
        print("name one document of `rdma-ray evidence`: make accept FILE=rdma-ray-evidence-gke-2026-11-28.json")
        return 2
    try:
        written = accept(Path(words[0]))
    except (NotAcceptedError, WorkloadError) as refused:
        print(printable(f"{words[0]} is not accepted: {refused}"), file=sys.stderr)
        return 1
    except (SettingsError, EngineError) as refused:
        print(
            f"{refused}\n{words[0]} is not accepted: a rule of ours refuses what it says a cloud accepted."
            " Correct the rule, or find out what is wrong in the document.",
            file=sys.stderr,
        )
        return 1
    print(f"{written}\nReview and commit it. Its durations and its configuration count from then on.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
