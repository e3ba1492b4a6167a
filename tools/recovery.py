"""Recover a stack after its engine was killed: repair the state files, and resolve pending creates.

The engine records a create before it calls the provider. If it is killed in between, the resource may exist, but
the state lacks its ID. With its ID, the resource is added to the state without outputs, and a refresh reads it, or
drops it if it does not exist. (`pulumi refresh --import-pending-creates` should do the same, but engine 3.259
drops all pending creates; see `filterMapPendingCreates` and `SnapshotManager.snap`.)

Most IDs follow from the inputs, since names are fixed. AWS generates the others; the AWS CLI, which every EKS
stack requires, finds those by two tags: the stack's name, and a name that is unique among resources of its kind
(`infra.eks.names`). An ambiguous result is an error, because a wrong guess would create a resource twice.
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

from infra.settings.stack_file import read_config

UP = ("up", "--yes", "--skip-preview", "--refresh", "--suppress-outputs")
"""Arguments of an `up`. The refresh detects what died or was changed since the last run. Without it, an update of a
node group on AWS drains nodes that the autoscaler added: where the program ignores changes of a size, the provider
sends the state's (pulumi-aws #2524)."""

STACK_TAG, NAME_TAG = "rdma-ray-stack", "Name"

_TABLES: Mapping[str, Mapping[str, str]] = yaml.safe_load(Path(__file__).with_name("import_ids.yaml").read_text())
GOOGLE_IMPORTS, AWS_IMPORTS = _TABLES["google"], _TABLES["aws"]
FOUND_BY_TAGS = _TABLES["found_by_tags"]
"""Type of a resource with a generated ID -> service and resource type in its ARN."""

_ONLY_IN_STATE = ("random:", "pulumi:")
"""Type prefixes of resources outside the clouds: random values and the engine's own."""

_LIST_S = 120.0
_REMOVE = "then remove it from the pending operations: bin/pulumi stack export, edit, bin/pulumi stack import."


class UnclearError(RuntimeError):
    """The result of an interrupted run is ambiguous. The message has the fix."""


@dataclass(frozen=True)
class PendingCreate:
    """An unfinished create of an engine: the resource's URN, type and inputs."""

    urn: str
    type: str
    inputs: Mapping[str, Any]


def import_id(create: PendingCreate, project: str | None) -> str | None:
    """Return the import ID if the inputs determine it, else None."""
    if create.type.startswith("kubernetes:"):
        place = create.inputs if create.type == "kubernetes:helm.sh/v3:Release" else create.inputs["metadata"]
        return "/".join(part for part in (place.get("namespace"), place["name"]) if part)
    template = GOOGLE_IMPORTS.get(create.type) or AWS_IMPORTS.get(create.type)
    return template.format_map({"project": project, **create.inputs}) if template else None


@dataclass(frozen=True)
class Tagged:
    """One resource in AWS: its ARN and its name tag."""

    arn: str
    name: str

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
        *("--tag-filters", f"Key={STACK_TAG},Values={stack}", "--output", "json"),
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
            return [
                Tagged(each["ResourceARN"], {tag["Key"]: tag["Value"] for tag in each["Tags"]}.get(NAME_TAG, ""))
                for each in json.loads(done.stdout)["ResourceTagMappingList"]
            ]
        problem = (
            f"It failed:\n{done.stderr.strip()}\nSign in as the user who brings the stack up, with the permission"
            " tag:GetResources, and run this again."
        )
    except FileNotFoundError:
        install = "Install its version 2, sign in (aws sts get-caller-identity), and run this again."
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
    """Return the import ID of a create from the tagged resources, or None if it was never created.

    Args:
        known: IDs in the state. During a replacement it has the old one of two resources with one name.

    Raises:
        UnclearError: Several resources match, or the create has no tags.
    """
    tags: Mapping[str, Any] = create.inputs.get("tags") or {}
    if not (name := tags.get(NAME_TAG)) or STACK_TAG not in tags:
        raise UnclearError(
            f"An interrupted run was creating {create.urn}, which has no tags to find it by. If AWS has it, delete it;"
            f" {_REMOVE}"
        )
    kind = FOUND_BY_TAGS[create.type]
    matches = [each for each in resources if each.type == kind and each.name == name and each.id not in known]
    if len(matches) > 1:
        arns = "\n".join(f"  {each.arn}" for each in matches)
        raise UnclearError(
            f"An interrupted run was creating {create.urn}.\nSeveral resources have its tags:\n{arns}\n"
            "AWS lists deleted ones, too, for a while. Delete those that the stack does not need, or remove the tag"
            f" {STACK_TAG} from them, and run this again. Nothing was changed."
        )
    if not matches:
        return None
    return _TABLES["imported_as"].get(create.type, "{id}").format_map({**create.inputs, "id": matches[0].id})


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
    return [PendingCreate(each["urn"], each["type"], each.get("inputs") or {}) for each in resources]


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
    the import fail, and what it has written since the first export is not replaced. Between the second export and the
    import's own lock the engine allows no lock of others (3.259: `pkg/backend/diy`, `Lock`, `ImportDeployment`).

    Args:
        pulumi: Runs the engine with its arguments and raises if the engine fails.
        read: Runs the engine quietly; returns its standard output, or raises RuntimeError if the engine fails.

    Raises:
        UnclearError: Whether a resource exists cannot be determined, or the state changed. Nothing has been changed.
    """
    exported = json.loads(read("stack", "export"))
    creates = pending_creates(exported["deployment"])
    deployment = to_be_read(exported["deployment"], what_exists(exported["deployment"], place))
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
