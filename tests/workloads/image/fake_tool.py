"""Tools that build images, as programs on PATH: they accept the options of the real ones and record their arguments.

The program's name is the tool. FAKE selects what goes wrong. Options: docs of buildx build, buildah-build(1),
buildah-push(1); the parsers of gcloud 528 and of the AWS CLI 1.45 accept the commands of the tests (2026-11-23).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import zipfile
from pathlib import Path

DIGEST = "sha256:" + "ab" * 32
MOVED = "sha256:" + "cd" * 32
VERSION = "L4kqtJlcpXroDTDmpUMLUo"
FAKE = os.environ.get("FAKE", "")


def main(tool: str, arguments: list[str]) -> str:
    """Behave like the tool, and return what it prints."""
    with Path(os.environ["RECORD"]).open("a") as record:
        record.write(json.dumps([tool, *arguments]) + "\n")
    if "version" in arguments or "--version" in arguments:
        return sys.exit(f"{tool}: no such plugin") if FAKE == "not-installed" else f"{tool} 1"
    match tool, arguments:
        case "docker", ["buildx", "build", *rest]:
            found = built(rest, "--push", "--load", metadata_file=True)
            if found.push:
                pushed()
                Path(found.metadata_file).write_text(
                    json.dumps({"containerimage.digest": digest()} if digest() else {})
                )
        case "buildah" | "podman", ["build", *rest]:
            built(rest)
        case "buildah" | "podman", ["push", "--digestfile", file, image]:
            assert ":" in image.rpartition("/")[2]
            pushed()
            Path(file).write_text(digest())
        case "gcloud", ["builds", "submit", *rest]:
            parser = argparse.ArgumentParser()
            for name in ("--project", "--config", "--substitutions", "--format"):
                parser.add_argument(name, required=True)
            parser.add_argument("source")
            found = parser.parse_args(rest)
            assert Path(found.source, found.config).is_file()
            if FAKE:
                failing('ERROR: (gcloud.builds.submit) build x completed with status "FAILURE"')
            return f"Creating temporary archive\nStep 1/9 : FROM\n{digest()}"
        case "aws", ["codebuild", "batch-get-projects", *_]:
            return "None" if FAKE == "no-project" else "S3\tmy-bucket/folder/source.zip"
        case "aws", ["s3api", "put-object", *rest]:
            found = put_object(rest)
            assert {"images/buildspec.yml", "images/Dockerfile"} <= set(zipfile.ZipFile(found.body).namelist())
            return "None" if FAKE == "no-versions" else VERSION
        case "aws", ["codebuild", "start-build", *_]:
            return "p:1"
        case "aws", ["codebuild", "batch-get-builds", "--ids", "p:1", *rest] if "buildStatus" in rest[-1]:
            return "FAILED" if FAKE in ("build", "push") else "SUCCEEDED"
        case "aws", ["codebuild", "batch-get-builds", "--ids", "p:1", *_]:
            return digest() or "None"
        case "aws", ["ecr", "describe-images", *_]:
            # Somebody has moved the tag after the push.
            return MOVED
        # What images/buildspec.yml runs.
        case "aws", ["ecr", "get-login-password", *_]:
            return "password"
        case "docker", ["login", *_]:
            sys.stdin.read()
        case "docker", ["build", *rest]:
            built(rest)
        case "docker", ["push", image]:
            pushed()
            print(f"tag: digest: {digest()} size: 1", file=sys.stderr)
        case "docker", ["inspect", "--format", "{{index .RepoDigests 0}}", image]:
            return f"{image.rpartition(':')[0]}@{digest()}"
        case _:
            sys.exit(f"{tool}: unknown command: {arguments}")
    return ""


def put_object(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--bucket", "--key", "--body", "--region", "--output", "--query"):
        parser.add_argument(name, required=True)
    found = parser.parse_args(arguments)
    assert (found.bucket, found.key) == ("my-bucket", "folder/source.zip")
    return found


def built(arguments: list[str], *flags: str, metadata_file: bool = False) -> argparse.Namespace:
    """Check the arguments of a build, and fail if requested."""
    parser = argparse.ArgumentParser()
    for name in ("--platform", "--file", "--target", "--tag"):
        parser.add_argument(name, required=True)
    for name in flags:
        parser.add_argument(name, action="store_true")
    if metadata_file:
        parser.add_argument("--metadata-file")
    parser.add_argument("context")
    found = parser.parse_args(arguments)
    assert f" AS {found.target}\n" in Path(found.file).read_text()
    there = {path.name for path in Path(found.context).iterdir()}
    assert there == {"images", "infra", "workloads", "pyproject.toml", "requirements-workloads.txt"}, there
    if FAKE == "build":
        failing("ERROR: failed to solve: process did not complete successfully")
    print("step 1 of 9", file=sys.stderr)
    return found


def pushed() -> None:
    if FAKE == "push":
        failing("denied: requested access to the resource is denied")


def failing(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(1)


def digest() -> str:
    return "" if FAKE == "no-digest" else DIGEST
