"""Questions about what EKS and registries have: Kubernetes, node images, add-ons, the user's cluster, Ray's image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.catalog.pins import EKS_RELEASES
from infra.settings import EksSettings
from workloads.preflight.answers import PreflightAnswer, PreflightCheck, refused
from workloads.preflight.aws_cli import ABSENT, Aws
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.eks_account import account
from workloads.preflight.fields import text, texts
from workloads.preflight.registry import image_answers

NODE_IMAGES = ("nvidia", "standard")
"""Variants of the GPU and of the CPU nodes' image, in its name (awslabs/amazon-eks-ami: releases, read 2026-11-28)."""
NOT_ADDONS = ("node image", "autoscaler")
"""Rows of a release in the catalog that are no add-ons."""
ECR = re.compile(
    r"(\d{12})\.dkr\.ecr\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com/([a-z0-9][a-z0-9._/-]{1,255}?)"
    r"(?::([\w][\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
"""Account, region, repository, tag and digest of a private image (ECR docs, registries; unverified, 2026-11)."""


def version_checks(aws: Aws, settings: EksSettings) -> Iterator[PreflightCheck]:
    """Yield the questions about versions and images."""
    version, image = settings.cluster.version, settings.ray.image
    if settings.own_cluster:
        yield PreflightCheck(f"Kubernetes {version}", lambda: [kubernetes(aws, version)])
        yield PreflightCheck("add-ons", lambda: [addons(aws, version)])
    else:
        yield PreflightCheck(f"cluster {settings.cluster.existing}", lambda: [cluster(aws, settings)])
    yield PreflightCheck("node images", lambda: [node_images(aws, version)])
    if own := ECR.fullmatch(image):
        yield PreflightCheck("image", lambda: [private_image(aws, image, own)])
    else:
        secrets = bool(settings.ray.pull_secrets)
        yield PreflightCheck("image", lambda: image_answers(image, pull_secrets=secrets))


def kubernetes(aws: Aws, version: str) -> PreflightAnswer:
    """Judge whether EKS creates clusters of a version."""
    asked, check = ("eks", "describe-cluster-versions", f"--cluster-versions={version}"), f"Kubernetes {version}"
    try:
        rows = aws.rows("clusterVersions", *asked)
    except NoAnswerError as error:
        refused(error, ABSENT)
        rows = []
    row = next((row for row in rows if row.get("clusterVersion") == version), None)
    status = None if row is None else text(row, "versionStatus") or text(row, "status")
    if row is not None and status is None:
        raise aws.unclear("the answer does not tell its status", *asked)
    # Older answers write it in lower case, with hyphens (EKS API, ClusterVersionInformation: status, deprecated).
    status = (status or "not offered").upper().replace("-", "_")
    if status in ("STANDARD_SUPPORT", "EXTENDED_SUPPORT"):
        extra = "; a cluster in extended support costs more" if status.startswith("E") else ""
        found = f"in {status.lower().replace('_', ' ')}{extra}"
        return aws.asked(*asked).ok(check, found)
    fix = f"set cluster.version to one of {', '.join(each for each in EKS_RELEASES if each != version)}"
    found = f"EKS says: {status.lower().replace('_', ' ')}"
    return aws.asked(*asked).not_ok(check, "mismatch", found, fix)


def addons(aws: Aws, version: str) -> PreflightAnswer:
    """Judge whether EKS has the pinned versions of add-ons for the version of Kubernetes."""
    asked = ("eks", "describe-addon-versions", f"--kubernetes-version={version}", "--owners=aws")
    pinned = {name: pin for name, pin in EKS_RELEASES[version].items() if name not in NOT_ADDONS}
    offers: dict[str, set[str | None]] = {}
    for row in aws.rows("addons", *asked):
        builds = row.get("addonVersions")
        offers[str(row.get("addonName"))] = {
            text(build, "addonVersion") for build in (builds if isinstance(builds, list) else ())
        }
    if missing := [f"{name} {pin}" for name, pin in pinned.items() if pin not in offers.get(name, ())]:
        return aws.asked(*asked).not_ok(
            "add-ons",
            "mismatch",
            f"EKS does not list {', '.join(missing)} for {version} in {aws.region}",
            "update rdma-ray, or correct the versions in infra/catalog/pins.py",
        )
    return aws.asked(*asked).ok("add-ons", f"all {len(pinned)} pinned versions are offered")


def node_images(aws: Aws, version: str) -> PreflightAnswer:
    """Judge whether the images of the pinned release exist in the region, for GPU and for CPU nodes."""
    date = EKS_RELEASES[version]["node image"].rpartition("-")[2]
    names = [f"amazon-eks-node-al2023-x86_64-{variant}-{version}-v{date}" for variant in NODE_IMAGES]
    asked = ("ec2", "describe-images", "--owners=amazon", f"--filters=Name=name,Values={','.join(names)}")
    states = {text(row, "Name"): text(row, "State") for row in aws.rows("Images", *asked)}
    if missing := [name for name in names if name not in states]:
        return aws.asked(*asked).not_ok(
            "node images",
            "mismatch",
            f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not in {aws.region}",
            "update rdma-ray, or correct the release in infra/catalog/pins.py",
        )
    if unclear := [name for name in names if states[name] != "available"]:
        raise aws.unclear(f"the state of {unclear[0]} is {states[unclear[0]] or 'not told'}", *asked)
    return aws.asked(*asked).ok("node images", f"release {EKS_RELEASES[version]['node image']} is there")


def cluster(aws: Aws, settings: EksSettings) -> PreflightAnswer:
    """Judge the user's cluster: active, of the stack's version, and with access entries. `up` checks the rest."""
    name, asked = str(settings.cluster.existing), ("eks", "describe-cluster", f"--name={settings.cluster.existing}")
    check = f"cluster {name}"
    try:
        answer, said = aws.ask(*asked), aws.asked(*asked)
    except NoAnswerError as error:
        fix = f"list them: {aws.line('eks', 'list-clusters')}"
        return refused(error, ABSENT).not_ok(check, "setup", "there is none", fix)
    status, version = text(answer, "cluster", "status"), text(answer, "cluster", "version")
    mode = text(answer, "cluster", "accessConfig", "authenticationMode")
    if status is None or version is None or mode is None:
        raise aws.unclear("the answer lacks status, version or authentication mode", *asked)
    problem = None
    if status != "ACTIVE":
        problem = f"its status is {status}", f"wait: {aws.line('eks', 'wait', 'cluster-active', f'--name={name}')}"
    elif version != settings.cluster.version:
        fix = f'set cluster.version to "{version}"' if version in EKS_RELEASES else "name a cluster of another version"
        problem = f"its version is {version}, and cluster.version is {settings.cluster.version}", fix
    elif mode == "CONFIG_MAP":
        change = (
            "eks",
            "update-cluster-config",
            f"--name={name}",
            "--access-config=authenticationMode=API_AND_CONFIG_MAP",
        )
        problem = "its authentication mode is CONFIG_MAP", aws.line(*change)
    if problem:
        found, fix = problem
        return said.not_ok(check, "mismatch", found, fix)
    return said.ok(check, f"{status}, version {version}, {mode}")


def private_image(aws: Aws, image: str, parts: re.Match[str]) -> PreflightAnswer:
    """Judge whether an image is in ECR, in the nodes' account: their role may pull from there."""
    registry, region, repository, tag, digest = parts.groups()
    which = f"imageDigest={digest}" if digest else f"imageTag={tag or 'latest'}"
    asked = (
        "ecr",
        "describe-images",
        f"--registry-id={registry}",
        f"--repository-name={repository}",
        f"--image-ids={which}",
    )
    check, there = "image", aws if region == aws.region else aws.in_region(region)
    try:
        rows, said = there.rows("imageDetails", *asked), there.asked(*asked)
    except NoAnswerError as error:
        fix = "build it with `rdma-ray image build --push`, or correct ray.image"
        return refused(error, ABSENT).not_ok(check, "setup", error.reason, fix)
    if not any(
        (tag or "latest") in (texts(row, "imageTags") or ()) or row.get("imageDigest") == digest for row in rows
    ):
        raise there.unclear("the answer does not have the image", *asked)
    if registry != account(aws):
        return said.unknown(
            check,
            f"{image} exists; whether the nodes may pull it, the policy of account {registry} decides",
            (
                "let that policy allow this account: https://docs.aws.amazon.com/AmazonECR/latest/userguide/"
                "repository-policy-examples.html"
            ),
        )
    return said.ok(check, f"{image} is in the nodes' account, whose role may pull it")
