"""Rules about who gets in and where files lie: the control plane's endpoint, the bucket, the mount path."""

from __future__ import annotations

import posixpath
import re
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

from infra.problems import Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

SHADOWRAY = "CVE-2023-48022; the clouds' own defaults for public endpoints, from memory, 2026-11"
BUCKETS = {
    "gke": "Cloud Storage docs naming-buckets, read 2026-11",
    "eks": "Amazon S3 docs, general purpose bucket naming rules; checked 2026-11",
}
LAYOUT = "Filesystem Hierarchy Standard 3.0; rayproject images keep Ray in /home/ray"

SYSTEM_FOLDERS = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "proc",
        "root",
        "run",
        "sbin",
        "sys",
        "tmp",
        "usr",
        "var",
        "opt",
    ],
)
RAY_HOME = "/home/ray"


def public_endpoint_for_nobody(s: Settings) -> Problem | None:
    """A public endpoint answers a list of networks, and the list is empty."""
    if s.target == "local" or not s.access.public_endpoint or s.access.authorized_networks:
        return None
    return Problem(
        settings=("access.publicEndpoint", "access.authorizedNetworks"),
        says="Without a list of networks, the clouds read a public endpoint as open to the whole Internet.",
        fix='set access.authorizedNetworks to your own address, such as ["203.0.113.7/32"], or publicEndpoint to false',
        source=SHADOWRAY,
    )


def public_endpoint_for_everybody(s: Settings) -> Problem | None:
    """A public endpoint answers the whole Internet."""
    if s.target == "local" or not s.access.public_endpoint:
        return None
    if not any(IPv4Network(network).prefixlen == 0 for network in s.access.authorized_networks):
        return None
    return Problem(
        settings=("access.authorizedNetworks", "access.publicEndpoint"),
        says="0.0.0.0/0 is the whole Internet: one leaked credential, or one hole in the API server, is enough.",
        fix='name your own networks, such as ["203.0.113.7/32"], or set access.publicEndpoint to false',
        source=SHADOWRAY,
    )


def bucket_misspelt(s: Settings) -> Problem | None:
    """The name cannot be a bucket's."""
    name = s.storage.bucket
    if s.target == "local" or name is None:
        return None
    if "://" in name:
        says, fix = f"{name} is an address, not a name.", f"write {name.partition('://')[2].partition('/')[0]}"
    elif s.target == "gke" and not _good_gcs_name(name):
        says = f"{name} cannot be a bucket of Cloud Storage: 3 to 63 of a-z, 0-9, - _ and ., begun and ended by a "
        says += "letter or digit, without google in it."
        fix = "correct the name, or leave it out"
    elif s.target == "eks" and not _good_s3_name(name):
        says = f"{name} cannot be a bucket of S3: 3 to 63 of a-z, 0-9, - and ., begun and ended by a letter or digit."
        fix = "correct the name, or leave it out"
    else:
        return None
    return Problem(settings=("storage.bucket",), says=says, fix=fix, source=BUCKETS[s.target])


def _good_gcs_name(name: str) -> bool:
    # A name with dots may be longer, as long as no part of it is.
    well_formed = re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name) is not None
    well_formed = well_formed and all(1 <= len(part) <= 63 for part in name.split("."))
    return well_formed and not name.startswith("goog") and "google" not in name and not _is_address(name)


def _good_s3_name(name: str) -> bool:
    well_formed = re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name) is not None and ".." not in name
    return (
        well_formed
        and not name.startswith(("xn--", "sthree-"))
        and not name.endswith("-s3alias")
        and not _is_address(name)
    )


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except ValueError:
        return False
    return True


def mount_path_hides_the_system(s: Settings) -> Problem | None:
    """The shared folder is mounted where the image keeps something it needs, or nowhere."""
    path = s.storage.mount_path
    if s.target == "local" or path is None:
        return None
    clean = posixpath.normpath(path)
    if not path.startswith("/"):
        says, fix = f"{path} is not an absolute path; Kubernetes refuses the mount.", f"write /{clean.lstrip('./')}"
    elif path.rstrip("/") != clean.rstrip("/") or "//" in path or ":" in path:
        says, fix = f"{path} has .., a double slash or a colon in it; Kubernetes refuses it.", "write the plain path"
    elif clean in ("/", "/home", RAY_HOME) or clean.split("/")[1] in SYSTEM_FOLDERS:
        says = f"The bucket would cover {clean} of the image, and with it files that Ray, CUDA or NCCL need."
        fix = "choose a folder of its own, such as /bucket or /mnt/bucket"
    else:
        return None
    return Problem(settings=("storage.mountPath",), says=says, fix=fix, source=LAYOUT)


RULES: tuple[Rule, ...] = (
    public_endpoint_for_nobody,
    public_endpoint_for_everybody,
    bucket_misspelt,
    mount_path_hides_the_system,
)
