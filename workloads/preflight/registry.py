"""Whether a registry gives an image to nodes, which have no credentials there: asked by docker without credentials."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from workloads.preflight.answers import Asked, PreflightAnswer
from workloads.preflight.cli import Cli, NoAnswerError
from workloads.preflight.fields import entries, text

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}")
"""An image's name that cannot be an option."""
PLATFORM = "amd64"

DOCKER = Cli(
    program="docker",
    fixes={
        "missing": "install docker, of which only the command is needed, or pull the image where it is",
        "refused": "push the image where nodes may read it, or name a Secret in ray.pullSecrets",
        "absent": "correct ray.image, or push the image: rdma-ray image build --push",
        "throttled": "ask again later, or use a mirror of the image",
        "slow": "ask again, or run the command by itself",
        "broken": "run the command by itself",
    },
    # docker/cli: cli/registry/client, cli/command/manifest; distribution/distribution: registry/api/errcode.
    errors={
        "throttled": re.compile(r"toomanyrequests|too many requests", re.IGNORECASE),
        "refused": re.compile(r"unauthorized|denied|no basic auth credentials", re.IGNORECASE),
        "absent": re.compile(r"no such manifest|manifest unknown|name unknown|not found", re.IGNORECASE),
    },
    # Without the user's credentials, which the nodes do not have.
    environment={"DOCKER_CONFIG": "/nonexistent"},
)


def image_answers(image: str, *, pull_secrets: bool) -> Iterator[PreflightAnswer]:
    """Yield whether the image exists, may be pulled without credentials, and is for the nodes' processors.

    Args:
        pull_secrets: Whether nodes pull with Secrets of the cluster. Then a refusal proves nothing.
    """
    check = "image"
    if not IMAGE.fullmatch(image):
        yield Asked().unknown(check, "ray.image cannot be an image's name", "correct ray.image")
        return
    arguments = ("manifest", "inspect", image)
    said = Asked(shlex.join([DOCKER.program, *arguments]))
    try:
        document = DOCKER.ask(*arguments)
    except NoAnswerError as error:
        if error.kind not in ("absent", "refused") or pull_secrets:
            raise
        found = f"no node can pull {image} without credentials: {error.reason}"
        yield said.not_ok(check, "access" if error.kind == "refused" else "setup", found, error.fix)
        return
    manifests = entries(document, "manifests")
    platforms = {text(each, "platform", "architecture") for each in manifests or ()}
    if manifests and PLATFORM not in platforms:
        found = (
            f"it is for {', '.join(sorted(each or 'unknown' for each in platforms)[:5])}, and the nodes are {PLATFORM}"
        )
        fix = f"build it for linux/{PLATFORM}, or choose another ray.image"
        yield said.not_ok(check, "mismatch", found, fix)
    elif manifests or entries(document, "layers"):
        yield said.ok(check, f"anybody can pull {image}")
    else:
        found = f"the answer does not describe {image}"
        yield said.unknown(check, found, "run the command by itself")
