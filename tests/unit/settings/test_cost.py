"""The cost of a stack: that of every stack file, computed again by hand from the sources' figures, and its limits."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from infra.catalog import prices
from infra.catalog.machines import CATALOG, supported
from infra.catalog.pins import RAY
from infra.catalog.prices import Price, price_of, region_of_zone
from infra.cost import earlier_outputs, workers_of
from infra.outputs import cost_outputs
from infra.settings import CloudSettings, SettingsError, from_stack_file
from infra.settings.cost import age, rise, summary

ROOT = Path(__file__).resolve().parents[3]
TABLE: Mapping[str, Any] = yaml.safe_load(Path(prices.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
FEE, GCP_NAT, ADDRESS, E2 = 0.10, 0.0014, 0.005, 0.268
A3_ULTRA, A3_ULTRA_SPOT, A4_SPOT = 84.8069, 50.8745, 39.6336
AWS = FEE + 0.045 + ADDRESS
M6I, P5EN, P5EN_BLOCK, G6 = 0.384, 63.296, 54.92, 2.0144
# stack -> cost without work, and at most, with nodes.max and cluster.systemNodes as in the file.
BY_HAND = {
    "gke": (FEE + E2 + GCP_NAT + ADDRESS, FEE + 3 * E2 + 7 * GCP_NAT + ADDRESS + 4 * A3_ULTRA),
    "gke-ccc": (FEE + E2 + GCP_NAT + ADDRESS, FEE + 3 * E2 + 7 * GCP_NAT + ADDRESS + 4 * A3_ULTRA),
    "gke-dws": (FEE + E2 + GCP_NAT + ADDRESS, FEE + 3 * E2 + 7 * GCP_NAT + ADDRESS + 4 * A3_ULTRA),
    "gke-dranet": (FEE + E2 + GCP_NAT + ADDRESS, FEE + 3 * E2 + 5 * GCP_NAT + ADDRESS + 2 * A4_SPOT),
    "gke-first": (FEE + E2 + GCP_NAT + ADDRESS, FEE + 3 * E2 + 5 * GCP_NAT + ADDRESS + 2 * 0.8536),
    "gke-service": (FEE + E2 + GCP_NAT + ADDRESS, FEE + 3 * E2 + 7 * GCP_NAT + ADDRESS + 4 * A3_ULTRA_SPOT),
    "eks": (AWS + M6I, AWS + 3 * M6I + 4 * P5EN),
    "eks-capacity-block": (AWS + M6I, AWS + 3 * M6I + 4 * P5EN_BLOCK),
    "eks-first": (AWS + M6I, AWS + 3 * M6I + 2 * G6),
}


def settings_of(stack: str, changes: Mapping[str, Any] | None = None) -> CloudSettings:
    settings = from_stack_file(ROOT / f"Pulumi.{stack}.yaml", changes)
    assert isinstance(settings, CloudSettings)
    return settings


def cloud_stacks() -> list[str]:
    files = sorted(ROOT.glob("Pulumi.*.yaml"))
    return [file.name.split(".")[1] for file in files if isinstance(from_stack_file(file), CloudSettings)]


@pytest.mark.parametrize("stack", cloud_stacks())
def test_cost_is_as_computed_by_hand(stack: str) -> None:
    cost = settings_of(stack).cost
    assert (cost.idle, cost.most) == pytest.approx(BY_HAND[stack])


def test_every_price_has_a_source_and_a_date() -> None:
    used = set()
    rows = [row for kinds in TABLE["machines"].values() for row in kinds.values()] + [*TABLE["items"].values()]
    for row in rows:
        for source, regions in row.items():
            used.add(source)
            assert all(isinstance(price, int | float) and price > 0 for price in regions.values()), source
    assert used == set(TABLE["sources"])
    for source in TABLE["sources"].values():
        assert isinstance(source["date"], datetime.date)
        assert source["text"]


@pytest.mark.parametrize("machine", [*supported("gke"), *supported("eks")])
def test_price_is_known_or_says_why_it_is_not(machine: str) -> None:
    region = "us-central1" if CATALOG[machine].cloud == "gke" else "us-east-1"
    for kind in CATALOG[machine].capacities:
        price = price_of(machine, kind, region)
        assert price.note if price.dollars is None or price.at_most else price.source and price.date


def test_price_of_another_region_or_way_is_no_guess() -> None:
    assert price_of("a3-ultragpu-8g", "flex-start", "us-central1").at_most
    assert price_of("a3-ultragpu-8g", "flex-start-queued", "us-central1").at_most
    assert price_of("a4-highgpu-8g", "flex-start-queued", "us-central1").dollars == 64.44
    unknown = price_of("a3-ultragpu-8g", "on-demand", "europe-west1")
    assert (unknown.dollars, "known in us-central1" in unknown.note) == (None, True)
    assert price_of("p5e.48xlarge", "on-demand", "us-east-1").dollars is None
    cost = settings_of("gke", {"location": "europe-west1-b"}).cost
    assert (cost.most, cost.idle is not None) == (None, True)
    assert "an unknown maximum (no dated price" in summary(settings_of("gke", {"location": "europe-west1-b"}))


def test_zone_by_id_has_its_region() -> None:
    assert region_of_zone("eks", "use2-az1") == region_of_zone("eks", "us-east-2a") == "us-east-2"
    assert region_of_zone("eks", "cnn1-az1") == ""
    assert region_of_zone("gke", "us-central1-b") == "us-central1"


def test_own_price_counts_and_has_no_age() -> None:
    own = {"prices": ["a3-ultragpu-8g=39.5", "e2-standard-8=0.2"]}
    cost, today = settings_of("gke", own).cost, datetime.date(2026, 12, 1)
    assert cost.most == pytest.approx(FEE + 3 * 0.2 + 7 * GCP_NAT + ADDRESS + 4 * 39.5)
    assert not cost.at_most
    assert Price(dollars=1, date="2026-09-02").age_days(today) == 90
    assert "days old" in age(settings_of("gke").cost, today)
    assert age(settings_of("gke", own).cost, datetime.date(2026, 9, 10)) == ""


def test_fallback_counts_at_its_dearer_price() -> None:
    both = {"nodes.machine": "a4-highgpu-8g", "nodes.capacity": "spot", "nodes.fallback": "flex-start"}
    assert settings_of("gke-ccc", both).cost.workers.each.dollars == 64.44


def test_users_cluster_and_network_cost_nothing_here() -> None:
    theirs = settings_of("eks", {"network.subnets": ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]}).cost
    assert [part.name for part in theirs.parts] == ["worker nodes", "CPU nodes", "cluster fee"]
    endpoints = {"access.egress": "endpoints", "access.imageMirror": "111122223333.dkr.ecr.us-east-2.amazonaws.com/m"}
    closed = settings_of(
        "eks", {**endpoints, "ray.image": f"111122223333.dkr.ecr.us-east-2.amazonaws.com/ray:{RAY}"}
    ).cost
    assert closed.parts[-1].most == 26
    assert "interface endpoints" in closed.left_out


def test_sharp_rise_needs_the_new_amount() -> None:
    before = workers_of({"cost": cost_outputs(settings_of("gke").cost).model_dump(by_alias=True)})
    assert before == pytest.approx(4 * A3_ULTRA, abs=0.01)
    assert rise(settings_of("gke", {"nodes.max": 7}), before) is None
    problem = rise(settings_of("gke", {"nodes.max": 8}), before)
    assert problem is not None
    assert problem.settings[0] == "budget.hourly"
    assert all(amount in f"{problem.message} {problem.fix}" for amount in ("$339.23", "$678.46", "680"))
    for accepted in ({"budget.hourly": 680}, {"budget.maxRise": 3}):
        assert rise(settings_of("gke", {"nodes.max": 8, **accepted}), before) is None
    with pytest.raises(SettingsError, match=r"may cost ≤ \$679"):
        settings_of("gke", {"nodes.max": 8, "budget.hourly": 679})


@pytest.mark.parametrize(
    "outputs", [{}, {"cost": None}, {"cost": {"workers": None}}, {"cost": 7}, {"cost": {"workers": "x"}}]
)
def test_stack_without_an_earlier_cost_is_not_refused(outputs: Mapping[str, Any]) -> None:
    assert workers_of(outputs) == 0
    assert rise(settings_of("gke", {"nodes.max": 8}), 0) is None


@pytest.mark.parametrize(("failures", "read"), [(0, True), (4, True), (5, False)])
def test_state_that_is_being_written_is_read_again(failures: int, read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine rewrites its file while the program starts. One that stays unreadable is a warning, not an error."""
    answers, warnings = iter([Exception("EOF")] * failures), list[str]()

    def invoke(_token: str, arguments: Mapping[str, str]) -> SimpleNamespace:
        if (error := next(answers, None)) is not None:
            raise error
        return SimpleNamespace(value={"name": arguments["name"], "outputs": {"cost": {"workers": 7}}})

    monkeypatch.setattr("infra.cost.pulumi.runtime.invoke", invoke)
    monkeypatch.setattr("infra.cost.pulumi.log.warn", warnings.append)
    monkeypatch.setattr("infra.cost.time.sleep", lambda _: None)
    assert workers_of(earlier_outputs()) == (7 if read else 0)
    assert len(warnings) == (not read)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/bills.md", "docs/gke.md", "docs/queues.md", "docs/first-up.md", "Pulumi.gke.yaml"]
)
def test_amount_of_a_large_node_is_that_of_the_table(page: str) -> None:
    price = price_of("a3-ultragpu-8g", "on-demand", "us-central1").dollars
    assert f"about ${price:.0f}" in " ".join((ROOT / page).read_text(encoding="utf-8").split())
