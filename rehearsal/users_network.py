"""Simulated network that the user has on Google Cloud, for `network.subnetwork`, with room for the stack."""

from __future__ import annotations

from collections.abc import Iterator

from infra.settings import GkeSettings, Settings
from rehearsal.clouds.gcp.references import COMPUTE, NETWORK, SUBNETWORK
from rehearsal.engine.kind import Json
from rehearsal.engine.state import View

_NAME = "theirs"
_CHANGED_BY_CLOUD = "fingerprint"
"""Field that the drift of a rehearsal changes."""


def objects(settings: Settings) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield the subnetwork that a stack file names and its network, as ((type, id), live)."""
    if not isinstance(settings, GkeSettings) or settings.network.subnetwork is None:
        return
    path = settings.network.subnetwork
    _, project, _, region, _, name = path.split("/")
    network = f"projects/{project}/global/networks/{_NAME}"
    ranges = {settings.network.pods_range: "10.128.0.0/14", settings.network.services_range: "10.132.0.0/20"}
    common = {"project": project, "autoCreateSubnetworks": False, "mtu": 1460, "routingMode": "GLOBAL"}
    yield (NETWORK, network), {"name": _NAME, "selfLink": f"{COMPUTE}{network}", **common}
    subnetwork = {
        "name": name,
        "project": project,
        "region": region,
        "network": f"{COMPUTE}{network}",
        "ipCidrRange": "10.132.16.0/20",
        "privateIpGoogleAccess": True,
        "secondaryIpRanges": [{"rangeName": name, "ipCidrRange": cidr} for name, cidr in ranges.items()],
        "selfLink": f"{COMPUTE}{path}",
    }
    yield (SUBNETWORK, path), subnetwork


def changed(state: View, settings: Settings) -> Iterator[str]:
    """Yield a line for each of these objects that is not as before."""
    for (type_, id_), before in objects(settings):
        now = dict(state.get(type_, id_) or {})
        now.pop(_CHANGED_BY_CLOUD, None)
        if now != before:
            yield f"changed, although it is the user's: {type_} {id_}"
