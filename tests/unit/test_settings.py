"""Reading a stack file: accepted values, rejected values, and every problem at once and only once.

tests/unit/test_problems.py has unknown keys, settings of other targets and most rejected values, with whole messages.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from infra.catalog.pins import AWS_RAY_TRAIN, RAY, RAY_IN
from infra.settings import EksSettings, GkeSettings, LocalSettings, SettingsError, parse
from infra.settings.load import PATHS, SECTIONS, SETTINGS
from infra.settings.problems import Found

from .stacks import EKS, GKE, LOCAL, changed, eks, gke, problems_of

TOKEN = "correct-horse-battery-staple"
BLOCK = changed(EKS, {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0"})


def local(raw: dict[str, Any] | None = None, **more: Any) -> LocalSettings:
    settings = parse({"target": "local", **(raw or {})}, **more)
    assert isinstance(settings, LocalSettings)
    return settings


def test_local_requires_only_a_target() -> None:
    settings = local()
    assert (settings.nodes.count, settings.nodes.cpus) == (2, 2)
    assert settings.ray.version == RAY
    assert settings.ray.token is None
    assert settings.protect is False


def test_a_target_has_its_own_settings_only() -> None:
    assert set(LocalSettings.model_fields) == {"target", "nodes", "ray", "protect"}
    assert not hasattr(local().nodes, "max")
    assert not hasattr(eks(), "compute_class")
    assert not hasattr(gke().storage, "capacity_gib")


def test_defaults_follow_other_settings() -> None:
    settings = gke({"nodes.max": 7})
    assert (settings.ray.min_workers, settings.ray.max_workers) == (0, 7)
    assert settings.nodes.max_run_hours == 168
    assert settings.fabric == "multi-network"
    kueue = gke({"nodes.max": 7, "queue": "kueue"})
    assert (kueue.ray.min_workers, kueue.ray.max_workers) == (7, 7)
    assert gke({"nodes.capacity": "spot"}).nodes.max_run_hours is None
    assert eks().fabric == "efa"
    assert eks().protect is True


def test_reads_values_as_pulumi_delivers_them() -> None:
    delivered = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in GKE.items()}
    settings = parse({**delivered, "protect": "false", "computeClass": "true", "storage": "{}"})
    assert isinstance(settings, GkeSettings)
    assert settings.protect is False
    assert settings.compute_class is True
    assert settings.fabric == "multi-network"
    assert settings.nodes.machine == "a3-ultragpu-8g"
    assert local({"nodes": {"count": "3"}}).nodes.count == 3


def test_null_counts_as_missing() -> None:
    assert parse({"target": "local", "nodes": {"count": None}, "ray": None}) == parse({"target": "local"})


def test_settings_are_frozen_and_strict() -> None:
    settings = parse({"target": "local"})
    with pytest.raises(ValidationError, match="frozen"):
        settings.protect = True  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        LocalSettings.model_validate({**settings.model_dump(), "colour": "blue"})


def test_reports_all_problems_at_once() -> None:
    raw = changed(
        GKE,
        {
            "nodes.machin": "a3-ultragpu-8g",
            "nodes.machine": None,
            "nodes.max": "many",
            "nodes.reservation": "ours",
            "nodes.maxRunHours": 200,
            "access.publicEndpoint": True,
        },
    )
    found = problems_of(raw)
    assert [problem.settings[0] for problem in found] == [
        "nodes.machin",
        "nodes.max",
        "nodes.reservation",
        "nodes.maxRunHours",
        "access.publicEndpoint",
    ]
    text = str(SettingsError(found))
    assert "5 problems" in text
    assert all(f"\n{number}. " in text for number in range(1, 6))
    assert "did you mean nodes.machine?" in text
    assert "nodes.maxRunHours: 200" in text
    assert "nodes.capacity: flex-start (default)" in text


def test_a_misspelt_required_key_is_one_problem() -> None:
    raw = changed(GKE, {"location": None, "loaction": "us-central1-b"})
    (problem,) = problems_of(raw)
    assert problem.settings == ("loaction",)


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("access.publicEndpoint", "True", "write true or false"),
        ("nodes.max", "4x", "whole number from 1 to 1000"),
        ("nodes.max", 4.0, "whole number from 1 to 1000"),
        ("nodes.max", True, "whole number from 1 to 1000"),
        ("nodes.max", 0, "whole number from 1 to 1000"),
        ("nodes.max", 1001, "whole number from 1 to 1000"),
        ("nodes.min", -1, "whole number from 0 to 1000"),
        ("target", "GKE", "did you mean gke?"),
        ("nodes.capacity", "flexstart", "did you mean flex-start?"),
        ("nodes.machine", "a3-ultra-8g", "did you mean a3-ultragpu-8g?"),
        ("location", " us-central1-b", "remove the blank"),
        ("storage", "a-bucket", "write them under storage:"),
        ("nodes", ["a"], "write them under nodes:"),
        ("nodes", "{broken", "write them under nodes:"),
        ("access.authorizedNetworks", ["10.0.0.1"], "with its prefix"),
    ],
)
def test_wrong_value_reports_accepted_values(path: str, value: Any, hint: str) -> None:
    (problem,) = problems_of(changed(GKE, {path: value}))
    assert problem.settings == (path,)
    assert hint in problem.fix


@pytest.mark.parametrize("missing", ["location", "nodes.machine", "ray.image"])
def test_missing_required_setting_is_one_problem(missing: str) -> None:
    (problem,) = problems_of(changed(GKE, {missing: None}))
    assert problem.settings == (missing,)
    assert problem.values == ("(not set)",)


def test_default_image_of_aws_sets_its_ray_version() -> None:
    ray = eks({"ray.image": None}).ray
    assert (ray.image, ray.version) == (AWS_RAY_TRAIN, RAY_IN[AWS_RAY_TRAIN])
    assert eks().ray.version == RAY


def test_missing_target_is_one_problem() -> None:
    (problem,) = problems_of({"nodes": {"max": 3}})
    assert problem.settings == ("target",)
    assert "local, gke, eks" in problem.fix


def test_setting_of_another_target_may_be_off() -> None:
    assert parse({"target": "local", "computeClass": False, "queue": "none"}) == parse({"target": "local"})
    (problem,) = problems_of({"target": "local", "nodes": {"min": 0}})
    assert problem.fix == "remove it and set nodes.count"


def test_rules_skip_unreadable_settings() -> None:
    (problem,) = problems_of(changed(GKE, {"nodes.capacity": "on-loan", "nodes.reservation": "ours"}))
    assert problem.settings == ("nodes.capacity",)
    (problem,) = problems_of(changed(GKE, {"nodes.max": "x", "nodes.min": 900, "nodes.capacity": "spot"}))
    assert problem.settings == ("nodes.max",)


def test_encrypted_token_is_accepted() -> None:
    raw = {"target": "local", "ray": {"token": TOKEN}}
    for keys in (frozenset({"ray"}), frozenset({"ray.token"})):
        settings = local(raw, secret_keys=keys)
        assert settings.ray.token is not None
        assert settings.ray.token.get_secret_value() == TOKEN
        assert TOKEN not in repr(settings) + str(settings)


def test_token_in_clear_text_is_rejected() -> None:
    (problem,) = problems_of({"target": "local", "ray": {"token": TOKEN}})
    assert problem.settings == ("ray.token",)
    assert "pulumi config set --secret --path 'rdma-ray:ray.token'" in problem.fix
    assert TOKEN not in str(SettingsError([problem]))


@given(st.text(min_size=8), st.sampled_from(["token", "tokn", "version", "maxWorkers", "image"]), st.booleans())
def test_messages_never_show_encrypted_values(word: str, key: str, inside_json: bool) -> None:
    secret = "s3cr3t" + word
    section: Any = {key: {"deep": [secret]} if len(word) % 3 == 0 else secret}
    raw = {"target": "local", "ray": json.dumps(section) if inside_json else section}
    try:
        shown = repr(parse(raw, secret_keys=frozenset({"ray"})))
    except SettingsError as error:
        shown = str(error) + repr(error) + repr(error.problems)
    assert "s3cr3t" not in shown


def test_every_setting_is_described_and_typed() -> None:
    for path, declared in SETTINGS.items():
        described = [setting.info.description for setting in declared.values() if setting.info.description]
        assert described, path
        assert all(text.endswith((".", "VALUE")) for text in described), path
        assert all(setting.schema["type"] for setting in declared.values()), path


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(
    st.sampled_from([GKE, EKS, LOCAL]),
    st.dictionaries(
        st.sampled_from([*PATHS, *SECTIONS, "colour", "nodes.colour"]),
        values,
        max_size=4,
    ),
)
def test_any_file_gives_settings_or_complete_problems(stack: dict[str, Any], changes: dict[str, Any]) -> None:
    raw = copy.deepcopy(stack)
    for path, value in sorted(changes.items(), reverse=True):
        section, _, name = path.rpartition(".")
        (raw.setdefault(section, {}) if section else raw)[name] = value
    for problem in problems_of(raw):
        assert problem.settings
        assert len(problem.values) == len(problem.settings)
        assert all((problem.says, problem.fix, problem.source))


def test_key_that_is_not_text() -> None:
    odd: dict[Any, Any] = {"target": "local", 7: "x"}
    (problem,) = problems_of(odd)
    assert problem.settings == ("7",)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
def test_a_setting_reads_a_value_or_explains(value: Any) -> None:
    for declared in SETTINGS.values():
        for setting in declared.values():
            read = setting.read(value)
            if isinstance(read, Found):
                assert read.says
                assert read.fix
            else:
                assert isinstance(read, str | int | bool | tuple | SecretStr | None)


@pytest.mark.parametrize(
    "written", ["2026-12-03T11:30:00Z", "2026-12-03T11:30:00+00:00", "2026-12-03T11:30Z", "2026-12-03 11:30:00+00:00"]
)
def test_time_is_read_in_the_formats_of_the_clouds(written: str) -> None:
    settings = parse(changed(BLOCK, {"nodes.blockEnds": written}))
    assert isinstance(settings, EksSettings)
    assert settings.nodes.block_ends == "2026-12-03T11:30:00Z"


@pytest.mark.parametrize(
    "written",
    ["2026-12-03T11:30:00", "2026-12-03T13:30:00+02:00", "2026-12-03T11:30:07Z", "2026-12-03", "soon", 1796297400],
)
def test_ambiguous_time_is_rejected(written: object) -> None:
    (problem,) = problems_of(changed(BLOCK, {"nodes.blockEnds": written}))
    assert problem.settings == ("nodes.blockEnds",)
    assert '"2026-12-03T11:30:00Z"' in problem.fix
