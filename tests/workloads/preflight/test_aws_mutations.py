"""No answer is ok without its evidence, and nothing in an answer breaks the command: recorded answers, changed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.settings import EksSettings, from_stack_file
from infra.settings.stack_file import read_config
from infra.terminal import UNPRINTABLE
from tests.hostile import ESCAPES
from tests.workloads.preflight.recorded_aws import OPTIONS, answers_of, data, mappings, stack_file
from workloads.preflight.answers import PreflightAnswer
from workloads.preflight.capacity_eks import offers
from workloads.preflight.cli import Cli, NoAnswerError
from workloads.preflight.eks import eks_checks

FINE = [each for each in data("situations") if not each["expect"] and "environment" not in each]
HOSTILE: tuple[Any, ...] = (
    *(None, True, "", "x", ESCAPES, "9" * 5000, "a" * 100_000, "../../x", "--debug", "file:///etc/passwd", -1, 2**70),
    *(float("inf"), float("nan"), [], {}, [None], [[]], [{}], {"x": {}}, "2024-13-45", "0001-01-01T00:00:00+23:59"),
)
NOT_READ: Mapping[str, str] = {
    "caller": "UserId",
    "quotas": "ServiceCode QuotaName Unit Adjustable GlobalQuota",
    "quotas-vpc": "ServiceCode QuotaName",
    # A machine of an unknown type counts for every quota. Without a lifecycle it is on demand.
    "instances": "InstanceId InstanceType State Code Name",
    # A VPC of an unknown owner counts as the account's.
    "vpcs": "CidrBlock State VpcId IsDefault OwnerId",
    "addresses": "InstanceId PublicIp PublicIpv4Pool Domain NetworkInterfaceId AllocationId",
    "zones": "OptInStatus Messages RegionName",
    "offerings": "LocationType",
    # Old answers have one of the two.
    "kubernetes": "status versionStatus clusterType defaultPlatformVersion defaultVersion releaseDate "
    "endOfStandardSupportDate endOfExtendedSupportDate kubernetesPatchVersion",
    "addons": "owner",
    "image": "schemaVersion mediaType config size digest",
    # Without them the decision is final, and the organization is asked.
    "policies": "EvalResourceName MissingContextValues",
    "role": "Path",
    "group": "ResourceType ResourceIdentifiers QueryErrors",
    # One of the zone's names is enough, and a reservation of an unknown owner counts.
    "reservations": "OwnerId AvailabilityZoneId AvailabilityZone EbsOptimized EphemeralStorage EndDateType "
    "InstanceMatchCriteria CreateDate CapacityAllocations",
}
"""Fields without which an answer may be ok: not read, or their absence is the careful case."""
NOT_READ_OF_RESERVATION = {
    # What the quota counts is not less without them.
    "on-demand": "CapacityReservationId InstanceType State InstancePlatform Tenancy AvailableInstanceCount StartDate "
    "Tags",
    "reservation": "StartDate Tags",
    "group": "StartDate Tags TotalInstanceCount",
    # Its size is in a tag until it begins.
    "capacity-block": "AvailableInstanceCount TotalInstanceCount",
}


def replier(answers: Mapping[str, Mapping[str, Any]]) -> Callable[..., Any]:
    """Return a `Cli.ask` that gives recorded answers without a process."""

    def ask(self: Cli, *arguments: str) -> Any:
        line = " ".join(each for each in arguments if not each.startswith(OPTIONS))
        for each in answers.values():
            if each.get("program", "aws") == self.program and re.fullmatch(each["argv"], line):
                if "stderr" in each:
                    raise self._refusal(each["stderr"], each["exit"], line)
                return copy.deepcopy(each["stdout"])
        raise NoAnswerError("broken", "no recording", "record it", line)

    return ask


class Stack:
    """A situation in which everything is ok, asked without processes."""

    def __init__(self, situation: Mapping[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = stack_file(folder, situation)
        read = from_stack_file(file)
        assert isinstance(read, EksSettings)
        self.settings, self.config, self.monkeypatch = read, read_config(file), monkeypatch
        self.answers = {**answers_of(situation), **data("offers")}

    def ask(self, name: str, stdout: Any) -> list[PreflightAnswer]:
        """Return the answers if one recording has this stdout."""
        self.monkeypatch.setattr(Cli, "ask", replier({**self.answers, name: {**self.answers[name], "stdout": stdout}}))
        return [answer for check in eks_checks(self.settings, self.config) for answer in check.answers()]

    def offer(self, name: str, stdout: Any) -> list[Any]:
        """Return the offers if one recording has this stdout."""
        self.monkeypatch.setattr(Cli, "ask", replier({**self.answers, name: {**self.answers[name], "stdout": stdout}}))
        return [offer for question in offers(self.settings, self.config) for offer in question.answers()]

    def recordings(self) -> Iterator[tuple[str, Any]]:
        """Yield name and stdout of the recordings of preflight."""
        for name, each in self.answers.items():
            if name not in data("offers") and "stdout" in each:
                yield name, each["stdout"]


@pytest.fixture(params=FINE, ids=[each["name"] for each in FINE])
def stack(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    return Stack(request.param, tmp_path, monkeypatch)


def test_no_field_that_is_read_can_be_missing(stack: Stack) -> None:
    silent = []
    for name, stdout in stack.recordings():
        nodes = stack.settings.nodes
        kind = "group" if (nodes.reservation or "").startswith("arn:") else nodes.capacity
        of_reservation = NOT_READ_OF_RESERVATION[kind] if name == "reservations" else ""
        not_read = f"{NOT_READ.get(name, '')} {of_reservation}".split()
        for number, row in enumerate(mappings(stdout)):
            for key in (key for key in row if key not in not_read):
                changed = copy.deepcopy(stdout)
                del [*mappings(changed)][number][key]
                if all(answer.state == "ok" for answer in stack.ask(name, changed)):
                    silent.append((name, key, row))
    assert not [(name, key, row) for name, key, row in silent if not _spare(stack, name, row)]


def _spare(stack: Stack, name: str, row: Mapping[str, Any]) -> bool:
    """Return whether a row is about something that the stack does not need."""
    needed = {"L-1216C47A", "L-F678F1CE", "L-0263D0A3"}
    needed |= {"L-417A185B"} if stack.settings.nodes.capacity == "on-demand" else set()
    actions = "ec2:CreateFlowLogs budgets: autoscaling:Put fsx: iam:CreateServiceLinkedRole ec2:CreatePlacementGroup"
    return {
        "quotas": row.get("QuotaCode") not in needed,
        "quotas-vpc": row.get("QuotaCode") not in needed,
        "zones": row.get("ZoneName") == "us-east-2c",
        "offerings": row.get("Location") != "us-east-2a" or row.get("InstanceType") == "p6-b200.48xlarge",
        "policies": str(row.get("EvalActionName")).startswith(tuple(actions.split())),
    }.get(name, False)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_change_of_an_answer_breaks_the_command(stack: Stack, data: st.DataObject) -> None:
    name, original = data.draw(st.sampled_from([*stack.recordings()]))
    stdout = copy.deepcopy(original)
    for _ in range(data.draw(st.integers(1, 3))):
        value = data.draw(st.sampled_from(HOSTILE))
        places = [*mappings(stdout)]
        if not places or data.draw(st.integers(0, 9)) == 0:
            stdout = value
            break
        place = data.draw(st.sampled_from(places))
        if place:
            place[data.draw(st.sampled_from(sorted(place)))] = copy.deepcopy(value)
    for answer in stack.ask(name, stdout):
        texts = (answer.check, answer.found, answer.fix, answer.asked)
        assert not any(UNPRINTABLE.search(each) for each in texts), answer
        assert len(answer.found) < 1500
        json.dumps(texts).encode()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_no_change_of_an_offer_breaks_the_command(
    draw: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack(FINE[0], tmp_path, monkeypatch)
    name = draw.draw(st.sampled_from([*data("offers"), "reservations", "offerings", "zones"]))
    stdout = copy.deepcopy(stack.answers[name]["stdout"])
    place = draw.draw(st.sampled_from([*mappings(stdout)]))
    place[draw.draw(st.sampled_from(sorted(place)))] = copy.deepcopy(draw.draw(st.sampled_from(HOSTILE)))
    for offer in stack.offer(name, stdout):
        texts = (offer.where, offer.available, offer.note, offer.asked, *offer.lines)
        assert not any(UNPRINTABLE.search(each) for each in texts), offer
        assert max(map(len, texts)) < 1500
        assert offer.score is None or 0 < offer.score <= 1
        assert offer.price is None or 0 <= offer.price < 1e9
        json.dumps(texts).encode()
