"""Answers of gcloud that are broken or hostile: nothing crashes, and without evidence nothing is ok."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.settings import GkeSettings, parse
from infra.terminal import UNPRINTABLE
from tests.hostile import ESCAPES, PIECES, mutated
from tests.workloads.preflight.test_gke import DOCUMENT, RECORDINGS
from workloads.preflight.answers import PreflightAnswer, ask_all
from workloads.preflight.capacity import ranked
from workloads.preflight.capacity_gke import offers
from workloads.preflight.cli import Cli
from workloads.preflight.gke import gke_checks

CONFIGS = {name: DOCUMENT["stacks"][name] for name in ("flex", "all")}
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 10**30, 1.5, float("nan"), float("inf"), "", "0", "-1", "9" * 5000, "ok"),
    *(ESCAPES, "[bold red]", "a" * 100_000, [], {}, [[]], [{}], {"a": {}}, ["x"], [None]),
)


def documents() -> dict[str, Any]:
    """Return what the commands print, by their patterns, without aliases."""
    return {
        each["argv"]: json.loads(json.dumps(each["document"])) for each in RECORDINGS.values() if "document" in each
    }


def answers_of(config: Mapping[str, Any], printed: Mapping[str, Any]) -> dict[str, PreflightAnswer]:
    """Return pre-flight's answers where commands print these documents or bytes."""

    def ask(self: Cli, *arguments: str) -> Any:
        argv = " ".join([self.program, *arguments])
        for pattern, document in printed.items():
            if fnmatchcase(argv, pattern):
                return self.parsed(document, argv) if isinstance(document, bytes) else document
        raise AssertionError(argv)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cli, "ask", ask)
        found = ask_all([*gke_checks(_settings(config), config)])
        for offer in ranked(ask_all(offers(_settings(config), config))):
            assert not UNPRINTABLE.search("".join((offer.where, offer.kind, offer.available, offer.note, *offer.lines)))
            assert len(offer.where) + len(offer.available) < 400
            assert offer.score is None or 0 <= offer.score <= 1
    for answer in found:
        assert not UNPRINTABLE.search(answer.found + answer.fix)
        assert len(answer.found) < 1500
    return {answer.check: answer for answer in found}


def _settings(config: Mapping[str, Any]) -> GkeSettings:
    made = parse({key.removeprefix("rdma-ray:"): value for key, value in config.items() if key.startswith("rdma-ray:")})
    assert isinstance(made, GkeSettings)
    return made


def places(document: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    yield path
    entries = (
        document.items() if isinstance(document, Mapping) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in entries:
        yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any, *, drop: bool) -> Any:
    """Return the document with another value at a path, or without it."""
    if not path:
        return None if drop else value
    made = copy.deepcopy(document)
    at = made
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


@pytest.mark.parametrize("stack", CONFIGS)
def test_recorded_answers_are_all_ok(stack: str) -> None:
    assert {answer.state for answer in answers_of(CONFIGS[stack], documents()).values()} == {"ok"}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_mutation_crashes(data: st.DataObject) -> None:
    printed = documents()
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(sorted(printed)))
        path = data.draw(st.sampled_from([*places(printed[name])]))
        printed[name] = changed(printed[name], path, data.draw(st.sampled_from(STRANGE)), drop=data.draw(st.booleans()))
    answers_of(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))], printed)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bytes_crash(data: st.DataObject) -> None:
    printed = documents()
    name = data.draw(st.sampled_from(sorted(printed)))
    original = json.dumps(printed[name]).encode()
    printed[name] = data.draw(st.one_of(mutated([original]), st.sampled_from(PIECES)))
    answers_of(CONFIGS["all"], printed)


EVIDENCE = {
    "regions": ("quota PREEMPTIBLE_NVIDIA_H200_GPUS", ("quotas",)),
    "project": ("quota NETWORKS", ("quotas",)),
    "machines": ("machine type", ()),
    "profiles": ("network profile", ()),
    "versions": ("GKE version", ("channels",)),
    "apis": ("APIs", ()),
    "roles": ("roles", ("bindings",)),
    "policy-accounts": ("policy iam.disableServiceAccountCreation", ("booleanPolicy",)),
    "policy-locations": ("policy gcp.resourceLocations", ("listPolicy", "allValues")),
    "policy-nat": ("policy compute.restrictCloudNATUsage", ("listPolicy", "allValues")),
    "billing": ("billing", ("billingEnabled",)),
    "bucket": ("bucket", ("location",)),
    "reservation": ("reservation", ("specificReservation", "inUseCount")),
    "family": ("quota gpus_per_gpu_family NVIDIA_H200", ("dimensionsInfos",)),
    "advice": ("stock by flex-start", ("recommendations", 0, "scores", "obtainability")),
    "image": ("image", ("manifests",)),
}
"""Check of each recording, and where its evidence is."""


@pytest.mark.parametrize("name", EVIDENCE)
def test_without_evidence_nothing_is_ok(name: str) -> None:
    check, path = EVIDENCE[name]
    config = CONFIGS["flex" if check.startswith(("stock", "quota PREEMPTIBLE")) else "all"]
    argv = RECORDINGS[name]["argv"]
    values: tuple[Any, ...] = ("removed", None, {}, [], "", "true", "yes", [{}], {"": ""}, 0, ESCAPES)
    for value in values:
        printed = documents()
        printed[argv] = changed(printed[argv], path, value, drop=value == "removed")
        found = answers_of(config, printed)
        # A policy that is an empty map does not restrict, and no use of a reservation is a use.
        if (name, value) not in (("policy-accounts", {}), ("reservation", 0)):
            assert check not in found or found[check].state != "ok", value


@pytest.mark.parametrize("name", EVIDENCE)
def test_every_field_that_says_ok_is_needed_or_ignored(name: str) -> None:
    """An answer that loses one field is as before, or not ok: never ok with other words."""
    check, _ = EVIDENCE[name]
    config = CONFIGS["flex" if check.startswith(("stock", "quota PREEMPTIBLE")) else "all"]
    argv = RECORDINGS[name]["argv"]
    before = answers_of(config, documents())[check]
    for path in places(documents()[argv]):
        printed = documents()
        printed[argv] = changed(printed[argv], path, None, drop=True)
        after = answers_of(config, printed).get(check)
        assert after is None or after.state != "ok" or after.found == before.found or name == "versions", path
