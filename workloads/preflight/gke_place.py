"""What a zone of Google Cloud offers to a stack, and what the stack uses there that exists already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from infra.catalog.gcp import version_key
from workloads.preflight.answers import PreflightAnswer, refused
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.fields import entries, flag, has, moment, number, text, texts
from workloads.preflight.gcloud import Question, Reply
from workloads.preflight.registry import IMAGE, image_answers

RESERVATIONS = "Compute API v1, reservations: specificReservation, and docs reservations-consume, read 2026-11"
BUCKET_LOCATION = re.compile(r"[A-Z][A-Z0-9-]{1,40}")
VERSION = re.compile(r"1\.\d{1,3}\.\d{1,3}-gke\.\d{1,12}")
ZONES_SHOWN = 8


def machine_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the zone offers the machine type, and which zones do."""
    machine, zone, check = question.settings.machine.name, question.zone, "machine type"
    reply = question.account.ask("compute", "machine-types", "list", f"--filter=name={machine}")
    offered = zones_of(reply, machine)
    fix = f"choose a zone that has it, or another machine: rdma-ray capacity shows where {machine} can be had"
    if not offered:
        # gcloud prints an empty list after some errors, too.
        yield reply.unknown(check, f"the answer has no zone with a {machine}", fix)
    elif zone in offered:
        yield reply.ok(check, f"{zone} offers {machine}")
    else:
        near = [each for each in offered if each.startswith(question.region)] + [
            each for each in offered if not each.startswith(question.region)
        ]
        found = f"{zone} does not offer {machine}; {', '.join(near[:ZONES_SHOWN])} do"
        yield reply.not_ok(check, "mismatch", found, fix)


def zones_of(reply: Reply, machine: str) -> list[str]:
    """Return the zones of a list of machine types."""
    listed = entries({"": reply.document}, "") or ()
    zones = {(text(entry, "zone") or "").rpartition("/")[2] for entry in listed if text(entry, "name") == machine}
    return sorted(zones - {""})


def profile_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the zone has the profile of the RDMA network."""
    profile, check = f"{question.zone}-{question.settings.machine.network_profile}", "network profile"
    reply = question.account.ask("compute", "network-profiles", "list")
    names = sorted({text(entry, "name") or "" for entry in entries({"": reply.document}, "") or ()} - {""})
    fix = "choose a zone of a profile that gcloud compute network-profiles list shows"
    if not names:
        yield reply.unknown(check, "the answer has no network profile", fix)
    elif profile in names:
        yield reply.ok(check, f"{profile} exists")
    else:
        suffix = str(question.settings.machine.network_profile)
        there = [name for name in names if name.endswith(suffix)][:ZONES_SHOWN]
        yield reply.not_ok(check, "mismatch", f"there is no {profile}; there are {', '.join(there) or 'no such'}", fix)


def version_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the region offers a new enough GKE in the stack's channel."""
    minimum, channel = question.settings.minimum_version, question.settings.cluster.channel.upper()
    reply = question.account.ask("container", "get-server-config", f"--region={question.region}")
    check, fix = "GKE version", "choose another cluster.channel, or remove cluster.minVersion"
    named = [entry for entry in entries(reply.document, "channels") or () if text(entry, "channel") == channel]
    versions = [each for entry in named for each in texts(entry, "validVersions") or () if VERSION.fullmatch(each)]
    if not versions:
        yield reply.unknown(check, f"the answer has no version of channel {channel} in {question.region}", fix)
        return
    latest = max(versions, key=version_key)
    found = f"channel {channel} offers {latest} in {question.region}, and the stack needs {minimum} or later"
    if version_key(latest) < version_key(minimum):
        yield reply.not_ok(check, "mismatch", found, fix)
    else:
        yield reply.ok(check, found)


def reservation_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the reservation fits the stack: zone, machine, machines left, and who may use it."""
    settings, check = question.settings, "reservation"
    path = str(settings.nodes.reservation)
    parts = path.split("/")
    shared, name = (parts[1], parts[3]) if parts[0] == "projects" else (None, parts[0])
    try:
        reply = question.account.ask(
            *("compute", "reservations", "describe", name, f"--zone={question.zone}"), project=shared
        )
    except NoAnswerError as error:
        fix = "gcloud compute reservations list shows names and zones; set nodes.reservation and location"
        found = f"there is no reservation {name} in {question.zone}"
        yield refused(error, "absent").not_ok(check, "mismatch", found, fix)
        return
    held, left = reply.document, machines_left(reply.document)
    wanted, needed = settings.machine.name, settings.nodes.max
    machine = (text(held, "specificReservation", "instanceProperties", "machineType") or "").rpartition("/")[2]
    zone, status = (text(held, "zone") or "").rpartition("/")[2], text(held, "status")
    end, closed = text(held, "deleteAtTime"), flag(held, "specificReservationRequired")
    fix = "choose another reservation, or change the stack file"
    if machine and machine != wanted:
        yield reply.not_ok(check, "mismatch", f"{name} is for {machine}, and the stack has {wanted}", fix)
    elif zone and zone != question.zone:
        yield reply.not_ok(check, "mismatch", f"{name} is in {zone}, and the stack is in {question.zone}", fix)
    elif closed is False:
        found = f"{name} is open to every machine of its kind, and GKE's nodes consume a specific one only"
        yield reply.not_ok(check, "mismatch", found, "create it with --require-specific-reservation")
    elif status in ("DELETING", "INVALID") or over(end):
        yield reply.not_ok(check, "mismatch", f"{name} has ended (status {status}, end {end or 'none'})", fix)
    elif left is not None and left < needed:
        found = f"{name} has {left:.0f} free machines, and the stack has up to {needed} nodes"
        yield reply.not_ok(check, "stock-out", found, "lower nodes.max, or free or buy machines")
    elif None in (left, over(end)) or not machine or not zone or status != "READY" or not closed:
        found = f"{name}: the answer does not say machine, zone, status READY, count and use (status {status})"
        yield reply.unknown(check, found, fix)
    elif has(held, "resourcePolicies") and held["resourcePolicies"] != {}:
        found = (
            f"{name} has {left:.0f} free and a placement policy, which its machines must have, too: the stack sets none"
        )
        yield reply.unknown(check, found, "ask who made the reservation, or create it without a resource policy")
    elif "reservationBlocks" in parts:
        found = f"{name} has {left:.0f} free, but the stack takes one block of it, whose use was not asked"
        yield reply.unknown(check, found, f"gcloud compute reservations blocks list {name} --zone={zone}")
    else:
        found = (
            f"{left:.0f} free machines of {name} in {zone}, {needed} needed; {f'it ends {end}' if end else 'no end'}"
        )
        yield reply.ok(check, found)


def machines_left(reservation: object) -> float | None:
    """Return the machines of a reservation that are not in use; None if the answer does not say it.

    The API prints what is 0 as a string, "0"; a missing count is unknown (RESERVATIONS).
    """
    count = number(reservation, "specificReservation", "count")
    used = number(reservation, "specificReservation", "inUseCount")
    return None if count is None or used is None or count < 0 or used < 0 else count - used


def over(end: str | None) -> bool | None:
    """Return whether a time of the API (RFC 3339) is over; False for none, None if it cannot be read."""
    if end is None:
        return False
    time = moment(end)
    return None if time is None else time < datetime.now(UTC)


def cluster_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the user's cluster runs, has node pools and is new enough. A preview checks the rest."""
    location, _, name = str(question.settings.cluster.existing).partition("/")
    minimum, check = question.settings.minimum_version, "cluster"
    try:
        reply = question.account.ask("container", "clusters", "describe", name, f"--location={location}")
    except NoAnswerError as error:
        found, fix = f"there is no cluster {name} in {location}", "gcloud container clusters list shows them"
        yield refused(error, "absent").not_ok(check, "setup", found, fix)
        return
    version, status = text(reply.document, "currentMasterVersion"), text(reply.document, "status")
    if flag(reply.document, "autopilot", "enabled"):
        found = f"{name} is an Autopilot cluster, which has no node pools"
        yield reply.not_ok(check, "mismatch", found, "name a Standard cluster, or remove cluster.existing")
    elif version is None or not VERSION.fullmatch(version) or status != "RUNNING":
        found = f"{name}: the answer has no version and status RUNNING (status {status})"
        yield reply.unknown(check, found, "look in the console")
    elif version_key(version) < version_key(minimum):
        found = f"{name} has GKE {version}, and the stack needs {minimum} or later"
        fix = f"gcloud container clusters upgrade {name} --location={location} --master"
        yield reply.not_ok(check, "mismatch", found, fix)
    else:
        yield reply.ok(check, f"{name} runs GKE {version}, {minimum} or later is needed; a preview checks the rest")


def subnetwork_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the user's subnetwork has the ranges and Private Google Access. A preview checks the rest."""
    network, check = question.settings.network, "subnetwork"
    project, region, name = network.subnetwork_parts
    try:
        reply = question.account.ask(
            *("compute", "networks", "subnets", "describe", name, f"--region={region}"), project=project
        )
    except NoAnswerError as error:
        found, fix = f"there is no subnetwork {name} in {region} of {project}", "correct network.subnetwork"
        yield refused(error, "absent").not_ok(check, "setup", found, fix)
        return
    update = f"gcloud compute networks subnets update {name} --region={region} --project={project}"
    ranges = {text(each, "rangeName") for each in entries(reply.document, "secondaryIpRanges") or ()}
    missing = [each for each in (network.pods_range, network.services_range) if each not in ranges]
    access = flag(reply.document, "privateIpGoogleAccess")
    if text(reply.document, "name") != name or access is None:
        yield reply.unknown(check, "the answer does not describe the subnetwork", "look in the console")
    elif missing:
        found = f"{name} has no secondary range {' and '.join(missing)}"
        fix = f"{update} --add-secondary-ranges={missing[0]}=RANGE, or set network.podsRange and network.servicesRange"
        yield reply.not_ok(check, "setup", found, fix)
    elif not access:
        found = f"Private Google Access is off in {name}, so nodes reach no Google API"
        yield reply.not_ok(check, "setup", found, f"{update} --enable-private-ip-google-access")
    else:
        found = f"{name} has both ranges and Private Google Access; the rights of GKE's agents there were not asked"
        yield reply.ok(check, found)


def bucket_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the bucket exists, and where."""
    bucket, check = str(question.settings.storage.bucket), "bucket"
    try:
        reply = question.account.ask("storage", "buckets", "describe", f"gs://{bucket}")
    except NoAnswerError as error:
        found = f"there is no bucket {bucket}"
        fix = f"gcloud storage buckets create gs://{bucket} --location={question.region}"
        yield refused(error, "absent").not_ok(check, "setup", found, fix)
        return
    location = text(reply.document, "location")
    if text(reply.document, "name") != bucket or not BUCKET_LOCATION.fullmatch(location or ""):
        yield reply.unknown(check, "the answer does not describe the bucket", "look in the console")
    else:
        far = (
            ""
            if str(location).lower() == question.region
            else f"; nodes in {question.region} pay for traffic between regions"
        )
        yield reply.ok(check, f"{bucket} exists in {location}{far}")


def in_artifact_registry(image: str) -> bool:
    """Return whether an image is in Artifact Registry, which gcloud can ask."""
    return image.partition("/")[0].endswith(".pkg.dev")


def registry_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the image exists where the nodes may pull it."""
    image, check = question.settings.ray.image, "image"
    secrets = bool(question.settings.ray.pull_secrets)
    if not in_artifact_registry(image) or not IMAGE.fullmatch(image):
        yield from image_answers(image, pull_secrets=secrets)
        return
    try:
        reply = question.account.ask("artifacts", "docker", "images", "describe", image)
    except NoAnswerError as error:
        fix = "correct ray.image, or push the image: rdma-ray image build --push"
        found = f"Artifact Registry does not have {image}"
        yield refused(error, "absent").not_ok(check, "setup", found, fix)
        return
    digest = text(reply.document, "image_summary", "digest")
    registry, owner, repository = [*image.split("/"), "", ""][:3]
    if digest is None:
        yield reply.unknown(check, "the answer has no digest", "look in the console")
    elif owner == question.account.project:
        yield reply.ok(
            check, f"{image} is {digest[:19]}…, in the stack's project, where nodes get the role of a reader"
        )
    else:
        found = f"{image} is {digest[:19]}…, in project {owner}, where the account of this stack's nodes has no role"
        location = registry.removesuffix("-docker.pkg.dev")
        fix = (
            f"gcloud artifacts repositories add-iam-policy-binding {repository} --project={owner} "
            f"--location={location} --member=serviceAccount:NODES --role=roles/artifactregistry.reader"
        )
        yield reply.unknown(check, found, fix)
