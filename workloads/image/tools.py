"""Tools that build an image, push it, and report its digest.

Sources, read 2026-11. docker: docs of buildx build (`--metadata-file`: containerimage.digest, which buildx replaces by
the registry's with Docker's own driver: docker/buildx, build/build.go, remoteDigestWithMoby). buildah, podman:
buildah-push(1), podman-push(1). Cloud Build: gcloud 528, whose `builds submit` prints log and formatted result to
standard output, the result last. CodeBuild: AWS CLI reference, s3api put-object, codebuild start-build (whose source
version of an object in S3 is the object's) and batch-get-builds; build specification reference, env/exported-variables.

Each digest is what the build's own push reported. A tag may be moved between the push and a look at the registry.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infra.terminal import printable
from workloads.exits import WorkloadError

ToolName = Literal["docker", "buildah", "podman", "cloud-build", "codebuild"]
PLATFORM = "linux/amd64"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
GOOGLE = re.compile(r"(?:[a-z0-9-]+-docker\.pkg\.dev|(?:[a-z]+\.)?gcr\.io)/([^/]+)/.+")
ECR = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(.+)")
POLL_S = 15.0
EXPORTED = "DIGEST"
"""Variable of images/buildspec.yml with the digest of the pushed image."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build.

    Args:
        target: Stage of images/Dockerfile.
        repository: Repository with its registry, without a tag.
        project: Project of CodeBuild.
    """

    target: str
    repository: str
    tag: str
    push: bool
    project: str | None = None

    @property
    def image(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Runs the commands of a tool in `folder`, each printed once before; with `dry_run` they are only printed."""

    folder: Path
    dry_run: bool
    printed: set[str] = field(default_factory=set)

    def __call__(self, *command: str, example: str | None = None) -> str:
        """Run a command and return its standard output. WorkloadError if it fails.

        Args:
            example: Its output in a dry run. If there is one, the output is an answer, and else progress to show.
        """
        if (text := shlex.join(command)) not in self.printed:
            print(text, file=sys.stdout if self.dry_run else sys.stderr, flush=True)
            self.printed.add(text)
        if self.dry_run:
            return example or ""
        lines: list[str] = []
        with subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if example is None:
                    print(printable(line.rstrip("\n")), file=sys.stderr, flush=True)
        if process.returncode:
            raise WorkloadError(f"{' '.join(command[:3])} failed with exit code {process.returncode}")
        return "".join(lines)


def docker(build: Build, shell: Shell) -> str:
    """Build with Docker's buildx, push if requested, and return the digest."""
    ends = ["--push", "--metadata-file", "metadata.json"] if build.push else ["--load"]
    shell("docker", "buildx", "build", *_dockerfile(build), *ends, ".")
    if shell.dry_run or not build.push:
        return ""
    written = shell.folder / "metadata.json"
    return str(json.loads(written.read_text()).get("containerimage.digest", "")) if written.is_file() else ""


def buildah(build: Build, shell: Shell, program: str = "buildah") -> str:
    """Build with buildah or podman, push if requested, and return the digest."""
    shell(program, "build", *_dockerfile(build), ".")
    if not build.push:
        return ""
    shell(program, "push", "--digestfile", "digest", build.image)
    written = shell.folder / "digest"
    return written.read_text().strip() if written.is_file() else ""


def podman(build: Build, shell: Shell) -> str:
    """Build with podman, as with buildah."""
    return buildah(build, shell, "podman")


def cloud_build(build: Build, shell: Shell) -> str:
    """Build and push with Google Cloud Build, and return the digest."""
    match = GOOGLE.fullmatch(build.repository)
    assert match is not None
    substitutions = f"_IMAGE={build.image},_TARGET={build.target}"
    answer = shell(
        *("gcloud", "builds", "submit", "--project", match[1], "--config", "images/cloudbuild.yaml"),
        *("--substitutions", substitutions, "--format", "value(results.images[0].digest)", "."),
    )
    return (answer.strip().splitlines() or [""])[-1].strip()


def codebuild(build: Build, shell: Shell) -> str:
    """Build and push with AWS CodeBuild, whose project reads its source from S3, and return the digest."""
    match = ECR.fullmatch(build.repository)
    assert match is not None
    region = match[2]
    aws = ("--region", region, "--output", "text")
    project = str(build.project)
    source = shell(
        *("aws", "codebuild", "batch-get-projects", "--names", project, *aws),
        *("--query", "projects[0].source.[type,location]"),
        example="S3\tBUCKET/KEY.zip",
    ).split()
    if len(source) != 2 or source[0] != "S3":
        raise WorkloadError(
            f"--project {project}: CodeBuild has no project of this name in {region} with a source of type S3, to which"
            " the code is sent (docs/images.md)"
        )
    if not shell.dry_run:
        shutil.make_archive(str(shell.folder.parent / "source"), "zip", shell.folder)
    bucket, _, key = source[1].partition("/")
    version = shell(
        *("aws", "s3api", "put-object", "--bucket", bucket, "--key", key, "--body", "../source.zip", *aws),
        *("--query", "VersionId"),
        example="VERSION",
    ).strip()
    versioned = version not in ("None", "null", "")
    if not versioned:
        print(
            f"bucket {bucket} keeps no versions: anyone who writes to it can replace the source before CodeBuild"
            " reads it",
            file=sys.stderr,
        )
    values = {"IMAGE": build.image, "TARGET": build.target, "REGION": region}
    job = shell(
        *("aws", "codebuild", "start-build", "--project-name", project, *aws, "--query", "build.id"),
        *("--buildspec-override", "images/buildspec.yml", "--privileged-mode-override"),
        *(("--source-version", version) if versioned else ()),
        *("--environment-variables-override", *(f"name={name},value={value}" for name, value in values.items())),
        example="ID",
    ).strip()
    while True:
        status = shell(
            *("aws", "codebuild", "batch-get-builds", "--ids", job, *aws, "--query", "builds[0].buildStatus"),
            example="SUCCEEDED",
        ).strip()
        if status == "SUCCEEDED":
            break
        if status != "IN_PROGRESS":
            raise WorkloadError(f"CodeBuild ended {job} as {status}: see its log in the console of {region}")
        time.sleep(POLL_S)
    return shell(
        *("aws", "codebuild", "batch-get-builds", "--ids", job, *aws),
        *("--query", f"builds[0].exportedEnvironmentVariables[?name=='{EXPORTED}'].value | [0]"),
        example="",
    ).strip()


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool: the command that shows that it is installed, how it builds, and the registries that it pushes to."""

    shown_by: tuple[str, ...]
    run: Callable[[Build, Shell], str]
    registry: re.Pattern[str] | None = None
    registry_name: str = ""

    def problem(self, build: Build, *, dry_run: bool) -> str | None:
        """Return why this tool cannot do the build; None if it can. A dry run does not need the tool."""
        if self.registry is not None and not build.push:
            return "it builds in the cloud and keeps only what it pushes: add --push"
        if self.registry is not None and not self.registry.fullmatch(build.repository):
            return f"it pushes only to {self.registry_name}, and {build.repository} is elsewhere"
        if self.run is codebuild and build.project is None:
            return "choose its project with --project (docs/images.md)"
        if dry_run:
            return None
        if shutil.which(self.shown_by[0]) is None:
            return f"there is no {self.shown_by[0]} on PATH"
        done = subprocess.run(
            self.shown_by, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        said = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        return f"`{shlex.join(self.shown_by)}` fails: {said}" if done.returncode else None


TOOLS: dict[ToolName, Tool] = {
    "docker": Tool(shown_by=("docker", "buildx", "version"), run=docker),
    "buildah": Tool(shown_by=("buildah", "--version"), run=buildah),
    "podman": Tool(shown_by=("podman", "--version"), run=podman),
    "cloud-build": Tool(
        shown_by=("gcloud", "--version"), run=cloud_build, registry=GOOGLE, registry_name="Google's registries"
    ),
    "codebuild": Tool(shown_by=("aws", "--version"), run=codebuild, registry=ECR, registry_name="Amazon ECR"),
}
"""In the order in which they are tried."""


def choose(name: ToolName | None, build: Build, *, dry_run: bool) -> Tool:
    """Return the named tool, or the first that can do this build. WorkloadError with each tool's reason."""
    problems = {}
    for known in [name] if name else TOOLS:
        if (problem := TOOLS[known].problem(build, dry_run=dry_run and name is not None)) is None:
            return TOOLS[known]
        problems[known] = problem
    if name:
        raise WorkloadError(f"--tool {name}: {problems[name]}")
    reasons = "\n".join(f"  {known}: {problem}" for known, problem in problems.items())
    raise WorkloadError(
        f"no tool can build {build.image} here:\n{reasons}\ninstall one of them, or choose one with --tool"
    )


def login(repository: str, tool: str) -> str:
    """Return the command with which docker, buildah or podman logs in to a repository's registry."""
    host = repository.partition("/")[0]
    if GOOGLE.fullmatch(repository):
        return f"gcloud auth configure-docker {host}"
    if match := ECR.fullmatch(repository):
        password = f"aws ecr get-login-password --region {match[2]}"
        return f"{password} | {tool} login --username AWS --password-stdin {host}"
    return f"{tool} login {host}"


def _dockerfile(build: Build) -> list[str]:
    return ["--platform", PLATFORM, "--file", "images/Dockerfile", "--target", build.target, "--tag", build.image]
