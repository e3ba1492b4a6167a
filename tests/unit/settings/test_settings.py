"""Reading settings from values, a stack file and Pulumi's store. test_problems.py has the rejected values."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.pins import AWS_RAY_TRAIN, RAY, RAY_IN
from infra.settings import EksSettings, GkeSettings, LocalSettings, SettingsError, from_stack_file, parse
from infra.settings.load import PATHS, SECTIONS, load
from tests.unit.stacks import EKS, GKE, LOCAL, changed, eks, gke, problems_of

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


def test_default_image_of_aws_sets_its_ray_version() -> None:
    ray = eks({"ray.image": None}).ray
    assert (ray.image, ray.version) == (AWS_RAY_TRAIN, RAY_IN[AWS_RAY_TRAIN])
    assert eks().ray.version == RAY


def test_setting_of_another_target_may_be_off() -> None:
    assert parse({"target": "local", "computeClass": False, "queue": "none"}) == parse({"target": "local"})
    (problem,) = problems_of({"target": "local", "nodes": {"min": 0}})
    assert problem.fix == "remove it and set nodes.count"


def test_encrypted_token_is_accepted() -> None:
    raw = {"target": "local", "ray": {"token": TOKEN}}
    for keys in (frozenset({"ray"}), frozenset({"ray.token"})):
        settings = local(raw, secret_keys=keys)
        assert settings.ray.token is not None
        assert settings.ray.token.get_secret_value() == TOKEN
        assert TOKEN not in repr(settings) + str(settings)


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
        assert all((problem.message, problem.fix, problem.source))


def test_key_that_is_not_text() -> None:
    odd: dict[Any, Any] = {"target": "local", 7: "x"}
    (problem,) = problems_of(odd)
    assert problem.settings == ("7",)


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


ROOT = Path(__file__).resolve().parents[3]


def written(tmp_path: Path, raw: dict[str, Any], name: str = "Pulumi.dev.yaml") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump({"config": {f"rdma-ray:{key}": value for key, value in raw.items()}, "x": 1}))
    return path


def test_stack_file_reads_as_in_pulumi(tmp_path: Path) -> None:
    assert from_stack_file(written(tmp_path, GKE)) == parse(GKE)


def test_other_namespaces_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text("config:\n  rdma-ray:target: local\n  gcp:project: p\n  rdma-ray-x:target: gke\n")
    assert from_stack_file(path).target == "local"


def test_an_encrypted_token_is_present_and_unknown(tmp_path: Path) -> None:
    settings = from_stack_file(written(tmp_path, {"target": "local", "ray": {"token": {"secure": "v1:abc"}}}))
    assert isinstance(settings, LocalSettings)
    assert settings.ray.token is not None
    assert settings.ray.token.get_secret_value() == ""


@pytest.mark.parametrize("path", ["location", "nodes", "nodes.max"])
def test_encrypted_settings_are_reported_with_other_problems(tmp_path: Path, path: str) -> None:
    raw = changed(GKE, {path: {"secure": "v1:abc"}, "protekt": True})
    with pytest.raises(SettingsError) as caught:
        from_stack_file(written(tmp_path, raw))
    assert [problem.settings for problem in caught.value.problems] == [(path,), ("protekt",)]
    assert "only Pulumi can read it" in str(caught.value)
    assert str(caught.value).startswith("Pulumi.dev.yaml has 2 problems")


def test_the_stacks_name_comes_from_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="name is My_stack"):
        from_stack_file(written(tmp_path, GKE, "Pulumi.My_stack.yaml"))


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Pulumi's store as the engine hands it over: text only, the whole object marked when a part of it is secret."""
    delivered = {
        "rdma-ray:target": "local",
        "rdma-ray:protect": "true",
        "rdma-ray:ray": json.dumps({"token": "hunter2"}),
        "gcp:project": "p",
    }
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(delivered))
    monkeypatch.setenv("PULUMI_CONFIG_SECRET_KEYS", json.dumps(["rdma-ray:ray"]))
    monkeypatch.setattr("pulumi.get_stack", lambda: "dev")
    return delivered


def test_load_reads_the_store_of_pulumi(configuration: dict[str, str]) -> None:
    settings = load()
    assert settings.protect is True
    assert isinstance(settings, LocalSettings)
    assert settings.ray.token is not None
    assert settings.ray.token.get_secret_value() == json.loads(configuration["rdma-ray:ray"])["token"]


def test_load_sees_unknown_keys(configuration: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**configuration, "rdma-ray:colour": "blue"}))
    with pytest.raises(SettingsError, match="The configuration of stack dev has 1 problem"):
        load()


@pytest.mark.parametrize(
    "half",
    [
        "infra.settings.load, infra.settings.schema, infra.plan, infra.addresses, infra.gke.pod, infra.eks.pod",
        # Printing an NCCL Job needs no SDK either.
        "workloads.nccl.manifest",
        # The engine and its hosts load the SDKs; whoever reads what they registered need not.
        "rehearsal.__main__, rehearsal.invariants.violations",
    ],
    ids=["settings", "job", "rehearsal"],
)
def test_pure_modules_do_not_import_pulumi(half: str) -> None:
    program = (
        f"import sys, infra.settings, {half};"
        "infra.settings.parse({'target': 'local'});"
        "print([name for name in sys.modules if name.split('.')[0].startswith('pulumi')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_workloads_import_no_cloud_sdk() -> None:
    files = list((ROOT / "workloads").rglob("*.py"))
    assert len(files) > 20
    sdk = re.compile(r"^ *(from|import) (boto3|botocore|google|googleapiclient|kubernetes|pulumi)", re.MULTILINE)
    assert [file.name for file in files if sdk.search(file.read_text(encoding="utf-8"))] == []
