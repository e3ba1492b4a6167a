"""`rdma-ray image build`: build the image that a stack needs, push it, and pin its digest in the stack file."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App

from infra.catalog.pins import OWN_TAG, RAY
from infra.project import PROJECT, is_clone, version
from infra.settings import LocalSettings
from workloads.client.stack import name_of
from workloads.exits import WorkloadError
from workloads.image import stack_file
from workloads.image.tools import DIGEST, Build, Shell, ToolName, choose, login
from workloads.options import Flat, Stack, option
from workloads.results.files import write_file

STAGES = {"efa": "ray-efa"}
"""Stage of images/Dockerfile by transport; others have the first one, which brings what gIB loads."""
"""Stage of images/Dockerfile for each cloud."""
CONTEXT = ("images", "infra", "workloads", "pyproject.toml", "requirements-workloads.txt")
"""Files that images/Dockerfile copies, and the files of the build services."""
REPOSITORY = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)+")
"""Registry and path (distribution/reference; the docs of the OCI distribution, read 2026-11)."""
PUBLIC = ("rayproject/", "docker.io/rayproject/", "public.ecr.aws/")

image = App(name="image", help="Build the container image of a stack.")


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of `image build`."""

    stack: Stack = None
    stack_file: Annotated[
        Path | None, option(metavar="FILE", help="Stack file to pin the image in. [default: Pulumi.STACK.yaml]")
    ] = None
    push: Annotated[bool, option(help="Push the image, and write its digest into the stack file.")] = False
    repository: Annotated[
        str | None,
        option(help="Repository with its registry, without a tag. [default: that of ray.image in the stack file]"),
    ] = None
    tool: Annotated[ToolName | None, option(help="Tool that builds the image. [default: the first that can]")] = None
    project: Annotated[str | None, option(help="codebuild: project whose source is an object in S3.")] = None
    dry_run: Annotated[bool, option(help="Only print the tool's commands.")] = False


@image.command
def build(*, options: Flat[BuildOptions] = BuildOptions()) -> None:
    """Build the image for a stack's cloud, push it, and pin its digest.

    It has Ray, torch, the fabric's libraries and this project's workloads.
    With --push, ray.image in the stack file becomes the pushed image by its
    digest. Nothing else in the file changes, and nothing changes if a step fails.

    Example: rdma-ray image build --stack gke --push
    Exit codes: 0 built, pushed and pinned as requested; 1 an error.
    """
    file = options.stack_file or PROJECT / f"Pulumi.{name_of(options.stack)}.yaml"
    text = stack_file.read_text(file)
    with _context() as folder:
        tag = f"{OWN_TAG}-{version()}-{_hash(folder)}"
        # The file is checked with the new image, since the old one may be its problem.
        target, repository = _plan(options, text, file, folder)
        wanted = Build(target=target, repository=repository, tag=tag, push=options.push, project=options.project)
        tool = choose(options.tool, wanted, dry_run=options.dry_run)
        shell = Shell(folder=folder, dry_run=options.dry_run)
        print(f"in {PROJECT}, with {', '.join(CONTEXT)} of it only:", file=sys.stderr)
        try:
            digest = tool.run(wanted, shell)
        except WorkloadError as error:
            local = options.push and tool.registry is None
            hint = f"\nif the registry refused it: {login(repository, tool.shown_by[0])}" if local else ""
            raise WorkloadError(f"{error}: {file.name} is unchanged{hint}") from None
    if options.dry_run:
        return
    if not options.push:
        print(wanted.image)
        return
    if not DIGEST.fullmatch(digest):
        raise WorkloadError(
            f"{wanted.image} is pushed, but its digest is unknown ({digest or 'nothing'} was reported), so"
            f" {file.name} is unchanged: look it up, and set ray.image to {repository}@sha256:…"
        )
    pinned = f"{repository}@{digest}"
    # Read again: the build took minutes.
    write_file(file, stack_file.with_image(stack_file.read_text(file), pinned, file))
    print(f"{file}: ray.image is {pinned}", file=sys.stderr)
    print(pinned)


def _plan(options: BuildOptions, text: str, file: Path, folder: Path) -> tuple[str, str]:
    """Return the stage and the repository. WorkloadError if the stack could not use the image."""
    if stack_file.target_of(text) == "local":
        raise WorkloadError(f"{file.name} has target local, whose nodes have no image: choose another file")
    own = (stack_file.image_of(text) or "").partition("@")[0]
    own = own if ":" not in own.rpartition("/")[2] else own.rpartition(":")[0]
    repository = options.repository or ("" if own.startswith(PUBLIC) else own)
    if repository and not REPOSITORY.fullmatch(repository):
        raise WorkloadError(
            f"--repository {repository}: write registry and path in lower case, without https:// and without a tag,"
            " such as us-central1-docker.pkg.dev/PROJECT/REPOSITORY/ray-gke"
        )
    if not repository and options.push:
        raise WorkloadError(
            f"--push: {file.name} has no image in your repository: choose one with --repository, such as"
            " us-central1-docker.pkg.dev/PROJECT/REPOSITORY/ray-gke or"
            " ACCOUNT.dkr.ecr.REGION.amazonaws.com/ray-efa"
        )
    pinned = f"{repository or 'example.com/ray'}@sha256:{'0' * 64}"
    settings = stack_file.checked(stack_file.with_image(text, pinned, file), file, folder.parent)
    assert not isinstance(settings, LocalSettings)
    if settings.ray.version != RAY:
        raise WorkloadError(
            f"{file.name}: ray.version is {settings.ray.version}, but the image has Ray {RAY}: remove ray.version"
        )
    stage = STAGES.get(settings.fabric_row.transport.name, "ray-gke")
    return stage, repository or stage


@contextmanager
def _context() -> Iterator[Path]:
    """Yield a folder with a copy of CONTEXT, in a separate folder, so that no secret reaches a builder.

    It is inside the project: Docker as a snap reads no file of /tmp (canonical/docker-snap, README, read 2026-11).
    """
    if not is_clone(PROJECT):
        raise WorkloadError(f"{PROJECT} is not in a clone of this project, whose code the image gets: run this in one")
    place = PROJECT / "results"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".image-", dir=place) as temporary:
        folder = Path(temporary) / "context"
        folder.mkdir()
        for name in CONTEXT:
            source = PROJECT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, folder / name)
        yield folder


def _hash(folder: Path) -> str:
    """Return the first letters of the hash of every file, so that a tag names its code."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:12]
