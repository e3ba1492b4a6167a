"""`rdma-ray capacity`: its rows, their order and exit codes, and that the lines of an offer make a valid stack file."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.settings import from_stack_file
from tests.workloads.preflight.recorded_cli import UNKNOWN
from tests.workloads.preflight.test_gke import DOCUMENT, RECORDINGS, ask, on_path, recordings, stack_file
from workloads.exits import Exit
from workloads.preflight.capacity import exit_code, ranked
from workloads.preflight.offers import NO, Offer, OfferQuestion

FLEX, SPOT, RESERVED, FIRST = (DOCUMENT["stacks"][name] for name in ("flex", "spot", "reserved", "first"))
ADVICE = "gcloud beta compute advice capacity --region=us-central1 --zones=us-central1-"


def scored(zone: str, model: str, chance: float, uptime: str | None = None) -> dict[str, Any]:
    """Return a recording of a zone's score."""
    scores = {"obtainability": chance, **({"estimatedUptime": uptime} if uptime else {})}
    shard = {"zone": f"projects/my-project/zones/us-central1-{zone}", "instanceCount": 4, "provisioningModel": model}
    return {
        "argv": f"{ADVICE}{zone} --provisioning-model={model} *",
        "document": {"recommendations": [{"scores": scores, "shards": [shard]}]},
    }


ZONES = [{"name": "a3-ultragpu-8g", "zone": zone} for zone in ("us-central1-b", "us-central1-c", "us-east4-b")]
SEVERAL: Mapping[str, Mapping[str, Any]] = {
    "machines": {"document": ZONES},
    "advice": scored("b", "FLEX_START", 0.2),
    "b-spot": scored("b", "SPOT", 0.1, "60s"),
    "c-flex": scored("c", "FLEX_START", 0.9),
    "c-spot": {
        "argv": f"{ADVICE}c --provisioning-model=SPOT *",
        "code": 1,
        "stderr": "ERROR: (gcloud.beta.compute.advice.capacity) Could not fetch resource:\n"
        " - Machine specification is not supported in locations: [us-central1-c].\n",
    },
}


def offers_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: Mapping[str, Any], answers: Mapping[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    """Run the command with recordings; return its exit code and offers."""
    on_path(folder, monkeypatch, recordings(answers))
    code, document = ask(folder, config, "capacity")
    assert not (folder / "bin" / UNKNOWN).exists(), (folder / "bin" / UNKNOWN).read_text()
    return code, document["offers"]


def test_offers_of_several_zones_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, offers = offers_of(tmp_path, monkeypatch, FLEX, SEVERAL)
    assert code == Exit.OK
    rows = [(each["where"], each["kind"], each["available"], each["score"]) for each in offers]
    assert rows == [
        ("us-central1-b", "reservation", "4 of 4 nodes", 1.0),
        ("us-central1-c", "flex-start", "likely", 0.9),
        ("us-central1-c", "flex-start-queued", "likely", 0.9),
        ("us-central1-b", "flex-start", "unlikely", 0.2),
        ("us-central1-b", "flex-start-queued", "unlikely", 0.2),
        ("us-central1-b", "spot", "unlikely", 0.1),
        ("us-central1-b", "reservation", "from 2026-12-01 to 2026-12-08", None),
        ("other regions", "any", "unknown", None),
        ("us-central1-c", "spot", "no", None),
    ]
    by_row = {(each["where"], each["kind"], each["available"]): each for each in offers}
    assert by_row["us-central1-c", "flex-start", "likely"]["lines"] == ["location: us-central1-c"]
    assert by_row["us-central1-b", "flex-start", "unlikely"]["lines"] == []
    held = by_row["us-central1-b", "reservation", "4 of 4 nodes"]
    assert held["lines"] == ["nodes.capacity: reservation", "nodes.reservation: held"]
    assert "us-east4-b" in by_row["other regions", "any", "unknown"]["note"]
    assert "1 minutes" in by_row["us-central1-b", "spot", "unlikely"]["note"]
    assert all(each["asked"].startswith("gcloud ") for each in offers)


@pytest.mark.parametrize(
    "config", [FLEX, SPOT, RESERVED, {**FLEX, "rdma-ray:nodes": FLEX["rdma-ray:nodes"] | {"maxRunHours": 24}}]
)
def test_lines_of_every_offer_make_a_valid_stack_file(
    config: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, offers = offers_of(tmp_path, monkeypatch, config, SEVERAL)
    with_lines = [offer for offer in offers if offer["lines"]]
    assert len(with_lines) >= 4
    for offer in with_lines:
        file = stack_file(tmp_path, edited(config, offer["lines"]))
        changed = from_stack_file(file)
        assert changed.nodes.capacity == offer["kind"]  # type: ignore[union-attr]
        assert changed.location == offer["where"]  # type: ignore[union-attr]


def edited(config: Mapping[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a stack file with an offer's lines."""
    made = copy.deepcopy({str(key): value for key, value in config.items()})
    for line in lines:
        path = line.removeprefix("remove ").partition(":")[0]
        section, _, key = path.rpartition(".")
        within = made.setdefault(f"rdma-ray:{section}", {}) if section else made
        key = key if section else f"rdma-ray:{key}"
        if line.startswith("remove "):
            del within[key]
        else:
            within[key] = yaml.safe_load(line.partition(":")[2])
    return made


def test_machine_that_is_nowhere_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none: Mapping[str, Any] = {"document": []}
    code, offers = offers_of(tmp_path, monkeypatch, FLEX, {"machines": none, "reservations": none, "calendar": none})
    assert code == Exit.NOT_AS_ASKED  # nothing of calendar mode in the answer is no answer
    assert {(each["kind"], each["available"]) for each in offers} == {
        *(("any", "no"), ("reservation", "no"), ("calendar", "unknown"))
    }


def test_machine_on_demand_has_a_price_and_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {
        "argv": "gcloud compute machine-types list --filter=name=g2-standard-8 --project=my-project --format=json",
        "document": [{"name": "g2-standard-8", "zone": "us-central1-b"}],
    }
    advice = {**scored("b", "SPOT", 0.8), "document": RECORDINGS["advice"]["document"]}
    _, offers = offers_of(tmp_path, monkeypatch, FIRST, {"first": machines, "advice": advice})
    on_demand = next(each for each in offers if each["kind"] == "on-demand")
    assert (on_demand["available"], on_demand["score"], on_demand["lines"]) == ("unknown", None, [])
    assert on_demand["price"] > 0.5


def test_without_a_login_everything_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"argv": "gcloud *", "code": 1, "stderr": "ERROR: You do not currently have an active account selected.\n"}
    on_path(tmp_path, monkeypatch, [failed])
    code, document = ask(tmp_path, FLEX, "capacity")
    assert code == Exit.NOT_AS_ASKED
    assert {each["available"] for each in document["offers"]} == {"unknown"}
    assert "gcloud auth login" in capsys.readouterr().out


def test_exit_codes() -> None:
    def offer(available: str) -> Offer:
        return Offer(where="z", kind="spot", available=available)

    assert exit_code([offer("unknown"), offer("no"), offer("likely")]) == Exit.OK
    assert exit_code([offer("unknown"), offer("no")]) == Exit.NOT_AS_ASKED
    assert exit_code([offer("no")]) == Exit.BELOW
    assert exit_code([]) == Exit.NOT_AS_ASKED


def test_cheaper_offers_of_one_score_come_first() -> None:
    cheap, dear, none = (
        Offer(where="z", kind="spot", available="likely", score=0.9, price=price) for price in (1.0, 2.0, None)
    )
    gone = Offer(where="a", kind="spot", available=NO)
    assert ranked([gone, none, dear, cheap]) == [cheap, dear, none, gone]


def test_question_without_an_answer_is_unknown() -> None:
    found = OfferQuestion(where="z", kind="spot", ask=lambda: (), price=3.0).answers()
    assert [(offer.available, offer.price) for offer in found] == [("unknown", 3.0)]
