"""Recover a stack after its engine was killed: repair the state files, and resolve pending creates.

The engine records a create before it calls the provider. If it is killed in between, the resource may exist, but
the state lacks its ID. With its ID, the resource is added to the state without outputs, and a refresh reads it, or
drops it if it does not exist. (`pulumi refresh --import-pending-creates` should do the same, but engine 3.259
drops all pending creates; see `filterMapPendingCreates` and `SnapshotManager.snap`.)

Most IDs follow from the inputs, since names are fixed. AWS generates the others; the AWS CLI, which every EKS
stack requires, finds those by three tags: the stack's name, its owner, and a name that is unique among resources of
its kind (`infra.eks.names`). An ambiguous result is an error, because a wrong guess would create a resource twice.

A stack of the same name in another clone has the same names. A resource that one of these IDs leads to is read by a
preview of `pulumi import`, which changes no state, and only a resource of this stack's owner is added to the state.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.naming import OWNER, STACK
from infra.settings.stack_file import read_config

UP = ("up", "--yes", "--skip-preview", "--suppress-outputs")
"""Arguments of an `up`. It refreshes first (Pulumi.yaml)."""

DESTROY = ("destroy", "--yes", "--skip-preview", "--refresh=false")
"""Arguments of a `destroy`. A refresh would need the API server, which may be gone or out of reach, to read the objects
that are deleted with the cluster."""

NAME_TAG = "Name"

_TABLES: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("import_ids.yaml").read_text())
GOOGLE_IMPORTS: Mapping[str, str] = _TABLES["google"]
AWS_IMPORTS: Mapping[str, str] = _TABLES["aws"]
FOUND_BY_TAGS: Mapping[str, str] = _TABLES["found_by_tags"]
"""Type of a resource with a generated ID -> service and resource type in its ARN."""
DISTINGUISHED_BY: Mapping[str, Sequence[str]] = _TABLES["distinguished_by"]
"""Type of a resource with a fixed name -> path of the input, and of the output, that another clone's differs in."""
OWNED_PARTS: Mapping[str, str] = _TABLES["owned_parts"]
"""Type of a part -> path of an input, with which it is another clone's if that differs."""
PARTS = frozenset(_TABLES["parts"])
"""Types of resources that cannot be another clone's."""

_ONLY_IN_STATE = ("random:", "pulumi:")
"""Type prefixes of resources outside the clouds: random values and those of the engine."""

_LIST_S = 120.0
_REMOVE = "then remove it from the pending operations: bin/pulumi stack export, edit, bin/pulumi stack import."


class UnclearError(RuntimeError):
    """The result of an interrupted run is ambiguous. The message contains the fix."""


@dataclass(frozen=True)
class PendingCreate:
    """An unfinished create of an engine: the resource's URN, type and inputs, and the URN of its provider."""

    urn: str
    type: str
    inputs: Mapping[str, Any]
    provider: str = ""


def import_id(create: PendingCreate, project: str | None) -> str | None:
    """Return the import ID if the inputs determine it, else None."""
    if create.type.startswith("kubernetes:"):
        place = create.inputs if create.type == "kubernetes:helm.sh/v3:Release" else create.inputs["metadata"]
        return "/".join(part for part in (place.get("namespace"), place["name"]) if part)
    template = GOOGLE_IMPORTS.get(create.type) or AWS_IMPORTS.get(create.type)
    return template.format_map({"project": project, **create.inputs}) if template else None


@dataclass(frozen=True)
class Tagged:
    """One resource in AWS: its ARN, and its tags for name and owner."""

    arn: str
    name: str
    owner: str

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Tagged:
        """Return one item of GetResources."""
        tags = {tag["Key"]: tag["Value"] for tag in mapping["Tags"]}
        return cls(mapping["ResourceARN"], tags.get(NAME_TAG, ""), tags.get(OWNER, ""))

    @property
    def type(self) -> str:
        """Service and resource type, such as "ec2:vpc"."""
        # An ARN has five colons before the resource; EC2, KMS, FSx and EKS write TYPE/ID after them.
        service, resource = self.arn.split(":", 5)[2::3]
        return f"{service}:{resource.partition('/')[0]}"

    @property
    def id(self) -> str:
        """Last part of the ARN: the generated ID."""
        return self.arn.rpartition("/")[2]


def list_command(stack: str, region: str) -> list[str]:
    """Return the command that lists all resources with the stack's tag."""
    return [
        *("aws", "resourcegroupstaggingapi", "get-resources", "--region", region),
        *("--tag-filters", f"Key={STACK},Values={stack}", "--output", "json"),
    ]


def tagged(stack: str, region: str, environment: Mapping[str, str] | None = None) -> list[Tagged]:
    """Return all resources in AWS with the stack's tag. `environment` is the command's.

    Raises:
        UnclearError: The AWS CLI is missing or failed.
    """
    command = list_command(stack, region)
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIST_S
        )
        if done.returncode == 0:
            return [Tagged.of(each) for each in json.loads(done.stdout)["ResourceTagMappingList"]]
        problem = (
            f"It failed:\n{done.stderr.strip()}\nSign in as the user who brings the stack up, with the permission"
            " tag:GetResources, and run this again."
        )
    except FileNotFoundError:
        install = "Install version 2, sign in (aws sts get-caller-identity), and run this again."
        problem = f"There is no AWS CLI here. {install}"
    except subprocess.TimeoutExpired:
        problem = f"It did not end within {_LIST_S:.0f} s."
    except (ValueError, KeyError, TypeError):
        problem = "Its output is not the expected list."
    raise UnclearError(
        "An interrupted run was creating resources in AWS. This lists those that exist:\n"
        f"  {' '.join(command)}\n{problem} Nothing was changed."
    )


def found(create: PendingCreate, resources: Sequence[Tagged], known: Collection[str]) -> str | None:
    """Return the import ID of a create from the tagged resources of its owner, or None if it was never created.

    Args:
        known: IDs in the state. During a replacement it has the old one of two resources with one name.

    Raises:
        UnclearError: Several resources match, or the create has no tags.
    """
    tags: Mapping[str, Any] = create.inputs.get("tags") or {}
    if not (name := tags.get(NAME_TAG)) or STACK not in tags or not (owner := tags.get(OWNER)):
        raise UnclearError(
            f"An interrupted run was creating {create.urn}, which has no tags {STACK}, {OWNER} and {NAME_TAG} to"
            f" find it by. If AWS has it, delete it; {_REMOVE}"
        )
    kind = FOUND_BY_TAGS[create.type]
    its = [each for each in resources if (each.type, each.name, each.owner) == (kind, name, owner)]
    matches = [each for each in its if each.id not in known]
    if len(matches) > 1:
        arns = "\n".join(f"  {each.arn}" for each in matches)
        raise UnclearError(
            f"An interrupted run was creating {create.urn}.\nSeveral resources have its tags:\n{arns}\n"
            "AWS also lists deleted ones for a while. Delete those that the stack does not need, or remove the tag"
            f" {STACK} from them, and run this again. Nothing was changed."
        )
    if not matches:
        return None
    return str(_TABLES["imported_as"].get(create.type, "{id}")).format_map({**create.inputs, "id": matches[0].id})


@dataclass(frozen=True)
class Place:
    """Location of a stack's resources: its name, and the Google Cloud project or the AWS region of its file.

    `environment` is that of the AWS CLI, by default this process's.
    """

    stack: str
    project: str | None = None
    region: str | None = None
    environment: Mapping[str, str] | None = None

    @classmethod
    def of(cls, stack: str, file: Path, environment: Mapping[str, str] | None = None) -> Place:
        """Read the stack file."""
        config = read_config(file)
        return cls(stack, config.get("gcp:project"), config.get("aws:region"), environment)


def mend_state_folder(state: Path) -> int:
    """Delete incomplete .attrs files of a local backend; return their number.

    The engine replaces a state file by renaming, but writes the ".attrs" file next to it in place. If it is killed
    during the write, no engine can read the complete state.
    """
    broken = 0
    for file in state.rglob("*.attrs"):
        # A running engine may be writing it.
        with contextlib.suppress(FileNotFoundError):
            try:
                json.loads(file.read_text())
            except ValueError:
                file.unlink()
                broken += 1
    return broken


def pending_creates(deployment: Mapping[str, Any]) -> list[PendingCreate]:
    """Return the unfinished creates of an engine, from `pulumi stack export`."""
    resources = (operation["resource"] for operation in _creates(deployment))
    return [
        # A provider is written as URN::ID.
        PendingCreate(each["urn"], each["type"], each.get("inputs") or {}, each.get("provider", "").rpartition("::")[0])
        for each in resources
    ]


def what_exists(deployment: Mapping[str, Any], place: Place) -> dict[str, str]:
    """Return URN -> import ID of each pending create that may exist.

    Raises:
        UnclearError: Whether one of them exists cannot be determined.
    """
    creates = pending_creates(deployment)
    ids = {create.urn: id_ for create in creates if (id_ := import_id(create, place.project)) is not None}
    by_tags = [create for create in creates if create.type in FOUND_BY_TAGS]
    if by_tags:
        resources = tagged(place.stack, place.region or "", place.environment)
        known = {resource["id"] for resource in deployment.get("resources") or [] if resource.get("id")}
        ids |= {create.urn: id_ for create in by_tags if (id_ := found(create, resources, known)) is not None}
    for create in creates:
        if not (create.urn in ids or create.type in FOUND_BY_TAGS or create.type.startswith(_ONLY_IN_STATE)):
            raise UnclearError(
                f"An interrupted run was creating {create.urn}, and this program does not know how to find"
                f" {create.type}. If it exists, delete it; {_REMOVE}"
            )
    return ids


def own(creates: Sequence[PendingCreate], ids: Mapping[str, str], read: Callable[..., str]) -> dict[str, str]:
    """Return the `ids` (URN -> import ID) without those that do not lead to a resource.

    Raises:
        UnclearError: A resource is another clone's, or cannot be read.
    """
    checked = {create.urn: create for create in creates if create.urn in ids and _distinction(create)}
    found: dict[str, Mapping[str, Any]] = {}
    missing: set[str] = set()
    while unknown := checked.keys() - found.keys() - missing:
        # A missing resource ends the import, and others may not have been read.
        live, absent, errors = look_up([(checked[urn], ids[urn]) for urn in sorted(unknown)], read)
        if not live and not absent:
            raise UnclearError(
                "An interrupted run was creating resources. Whether they exist and are this stack's cannot be read:\n"
                f"{errors}\nNothing was changed. Fix this, and run this again."
            )
        found |= live
        missing |= absent
    strange = []
    for urn, outputs in found.items():
        path = _distinction(checked[urn])
        mine, live_value = value_at(checked[urn].inputs, path[0]), value_at(outputs, path[-1])
        # Google returns a URL where an input is a path.
        if not mine or (live_value != mine and not str(live_value).endswith(f"/{mine}")):
            values = f"its {path[-1]} is {live_value or 'not set'}, this stack's is {mine or 'not set'}"
            strange.append(f"  {ids[urn]} of {urn}: {values}\n")
    if strange:
        raise UnclearError(
            f"An interrupted run was creating resources whose names are in use by another owner:\n{''.join(strange)}"
            "A stack of this name in another clone made them, or somebody else. Nothing was changed. Names derive from"
            f" the stack's name: use another one. To take this stack down, leave each as it is; {_REMOVE}"
        )
    return {urn: id_ for urn, id_ in ids.items() if urn not in missing}


def _distinction(create: PendingCreate) -> Sequence[str]:
    """Return the paths of the input and of the output that another clone's resource differs in; none for a part."""
    owner = OWNED_PARTS.get(create.type)
    return DISTINGUISHED_BY.get(create.type) or ([owner] if owner and value_at(create.inputs, owner) else [])


def look_up(
    creates: Sequence[tuple[PendingCreate, str]], read: Callable[..., str]
) -> tuple[dict[str, Mapping[str, Any]], set[str], str]:
    """Read resources by their import IDs. Return URN -> outputs, the URNs of missing ones, and the engine's errors."""
    providers = {create.provider: f"provider-{number}" for number, (create, _) in enumerate(creates)}
    asked = [
        {"type": create.type, "name": str(number), "id": id_, "provider": providers[create.provider]}
        for number, (create, id_) in enumerate(creates)
    ]
    with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
        file, log = Path(folder) / "import.json", Path(folder) / "events"
        names = {name: urn for urn, name in providers.items()}
        file.write_text(json.dumps({"nameTable": names, "resources": asked}))
        said = ""
        try:
            # Without `--yes` and with `--preview-only`: neither the state nor its lock is touched.
            read("import", "--preview-only", "--generate-code=false", "--file", str(file), "--event-log", str(log))
        except RuntimeError as failure:
            said = str(failure)
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    urns = [create.urn for create, _ in creates]
    live: dict[str, Mapping[str, Any]] = {}
    absent: set[str] = set()
    for event in events:
        done, problem = event.get("resOutputsEvent"), event.get("diagnosticEvent")
        if done and done["metadata"]["op"] == "import":
            live[urns[int(done["metadata"]["urn"].rpartition("::")[2])]] = done["metadata"]["new"]["outputs"]
        if problem and problem["severity"] == "error":
            said += problem["message"]
            if problem.get("urn") and problem["message"].rstrip().endswith("does not exist"):
                absent.add(urns[int(problem["urn"].rpartition("::")[2])])
    return live, absent, said


def value_at(properties: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = properties
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def to_be_read(deployment: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the deployment with every pending create in `ids` (URN -> import ID) as a resource without outputs.

    An ID without outputs makes the engine import the resource. The order does not matter: a create begins after
    everything that it depends on. Creates that exist in no cloud are dropped; the engine handles other operations.
    """
    creates = _creates(deployment)
    resources = [*(deployment.get("resources") or [])]
    for create in (operation["resource"] for operation in creates if operation["resource"]["urn"] in ids):
        resources.append({**create, "id": ids[create["urn"]], "outputs": {}})
    kept = [operation for operation in deployment.get("pending_operations") or [] if operation not in creates]
    return {**deployment, "resources": resources, "pending_operations": kept}


def settle(place: Place, pulumi: Callable[..., object], read: Callable[..., str]) -> int:
    """Resolve every pending create of a stack; return their number.

    An interruption at any point is safe: the next call continues. Another engine may work on the stack: its lock makes
    the import fail, and its changes since the first export are not replaced. Between the second export and the
    import's lock the engine allows no other lock (3.259: `pkg/backend/diy`, `Lock`, `ImportDeployment`).

    Args:
        pulumi: Runs the engine with its arguments and raises if the engine fails.
        read: Runs the engine quietly; returns its standard output, or raises RuntimeError if the engine fails.

    Raises:
        UnclearError: Whether a resource exists cannot be determined, or the state changed. Nothing has been changed.
    """
    exported = json.loads(read("stack", "export"))
    creates = pending_creates(exported["deployment"])
    ids = own(creates, what_exists(exported["deployment"], place), read)
    deployment = to_be_read(exported["deployment"], ids)
    if creates:
        with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
            file = Path(folder) / "state.json"
            file.write_text(json.dumps({**exported, "deployment": deployment}))
            if json.loads(read("stack", "export")) != exported:
                raise UnclearError(
                    f"Another run changed the state of stack {place.stack} while this one recovered it from an"
                    " interruption. Nothing was changed here. Wait until the other run has ended, and run this again."
                )
            pulumi("stack", "import", "--file", str(file))
    targets = [word for urn in _unread(deployment) for word in ("--target", urn)]
    if targets:
        # Only these: a full refresh takes minutes on a real cloud.
        pulumi("refresh", "--yes", "--skip-preview", "--suppress-outputs", *targets)
    return len(creates) + len(_unread(exported["deployment"]))


def _creates(deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pending operations that create a resource."""
    pending = deployment.get("pending_operations") or []
    return [each for each in pending if each["type"] == "creating" and each["resource"].get("custom")]


def _unread(deployment: Mapping[str, Any]) -> list[str]:
    """Return the URNs of resources with an ID but no outputs: not read yet."""
    return [
        resource["urn"]
        for resource in deployment.get("resources") or []
        if resource.get("id") and not resource.get("outputs") and not resource["type"].startswith("pulumi:")
    ]
