"""Where a machine of AWS can be had, with recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.settings import EksSettings, from_stack_file
from infra.settings.stack_file import read_config
from tests.workloads.preflight.recorded_aws import answers_of, data, environment, install, stack_file
from workloads.preflight.capacity_eks import offers
from workloads.preflight.offers import NO, UNKNOWN, Offer

EVERYTHING = {"answers": data("offers")}


def offered(
    folder: Path, situation: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, str], Offer]:
    """Return the offers in a situation, by zone and kind of capacity."""
    install(folder, answers_of(situation))
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    file = stack_file(folder, situation)
    settings = from_stack_file(file)
    assert isinstance(settings, EksSettings)
    found = [offer for question in offers(settings, read_config(file)) for offer in question.answers()]
    assert not [offer for offer in found if "recordings of" in offer.note]
    return {(offer.where, offer.kind): offer for offer in found}


def changed(**answers: Any) -> dict[str, Any]:
    """Return the situation with other answers."""
    return {"answers": {**data("offers"), **answers}}


def test_offers_have_score_price_and_the_lines_that_choose_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = offered(tmp_path, EVERYTHING, monkeypatch)
    assert found["us-east-2a", "on-demand"].available == UNKNOWN
    assert found["us-east-2a", "on-demand"].lines == ()
    spot = found["us-east-2a", "spot"]
    assert (spot.available, spot.score, spot.price) == ("1 of 10 for 4 nodes", 0.1, 26.57)
    assert spot.lines == ("nodes.capacity: spot",)
    assert found["us-east-2c", "spot"].lines == ("location: us-east-2c", "nodes.capacity: spot")
    assert found["us-east-2c", "spot"].price is None
    held = found["us-east-2a", "reservation"]
    assert held.available == "4 of 4 nodes"
    assert held.lines == ("nodes.capacity: reservation", "nodes.reservation: cr-0123456789abcdef0")
    block = found["us-east-2b", "capacity-block"]
    assert block.available == "4 nodes from 2099-12-01T11:30:00Z"
    assert block.price == pytest.approx(41.61)
    assert "purchase-capacity-block --capacity-block-offering-id=cb-0bfad2f7fb1b4478a" in block.note
    assert block.lines[:2] == ("location: us-east-2b", "nodes.capacity: capacity-block")
    assert block.lines[-1] == 'nodes.blockEnds: "2099-12-02T11:30:00Z"'


def test_nothing_on_offer_is_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    situation = changed(
        offerings={"stdout": {"InstanceTypeOfferings": []}},
        reservations={"stdout": {"CapacityReservations": []}},
        blocks={**data("offers")["blocks"], "stdout": {"CapacityBlockOfferings": []}},
    )
    found = offered(tmp_path, situation, monkeypatch)
    for kind in ("on-demand", "reservation", "capacity-block"):
        assert found["us-east-2", kind].available == NO


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("offerings", "on-demand"),
        ("scores", "spot"),
        ("reservations", "reservation"),
        ("blocks", "capacity-block"),
    ],
)
@pytest.mark.parametrize("error", ["denied", "throttled", "signed-out", "sso-expired", "old", "proxy"])
def test_failure_is_unknown_with_its_reason(
    name: str, kind: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {**data("offers").get(name, {}), "error": error}
    found = offered(tmp_path, changed(**{name: own}), monkeypatch)
    assert found["us-east-2", kind].available == UNKNOWN
    assert found["us-east-2", kind].note
    assert found["us-east-2", kind].asked.startswith("aws ")


def test_a_score_stays_without_names_and_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prices = {**data("offers")["prices"], "error": "denied"}
    found = offered(tmp_path, changed(zones={"error": "unauthorized"}, prices=prices), monkeypatch)
    assert found["use2-az3", "spot"].score == 0.3
    assert found["use2-az3", "spot"].lines == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("0.Score", 11),
        ("0.Score", None),
        ("0.Score", "9" * 5000),
        ("0.AvailabilityZoneId", None),
        ("0", "use2-az1"),
    ],
)
def test_a_broken_score_is_unknown(path: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {**data("offers")["scores"], "edit": {f"SpotPlacementScores.{path}": value}}
    found = offered(tmp_path, changed(scores=own), monkeypatch)
    assert found["us-east-2", "spot"].available == UNKNOWN
