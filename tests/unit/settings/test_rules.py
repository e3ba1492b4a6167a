"""Each rule reports alone in one stack file, and accepts a similar one; names, paths and tags at their limits."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import AWS_RAY_TRAIN, EKS_NEXT, RAY
from infra.settings import CloudSettings, eks, from_stack_file, gke, parse, warnings
from infra.settings.cloud import NameLimit
from infra.settings.fields import PartialSettings
from infra.settings.load import RULES
from infra.settings.problems import Finding, Findings, InvalidSettingError, Rule, rule, shown
from tests.unit.settings.cases import CASES, Case
from tests.unit.stacks import EKS, GKE, LOCAL, changed, problems_of

ROOT = Path(__file__).resolve().parents[3]


def case_id(case: Case) -> str:
    return f"{case.rule.find.__name__ if case.rule else case.about}-{case.stack['target']}"


def test_every_rule_has_a_case() -> None:
    for target, rules in RULES.items():
        assert len(rules) == len(set(rules)), target
    assert {case.rule for case in CASES if case.rule} == {rule for rules in RULES.values() for rule in rules}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_one_rule_reports(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems_of(case.stack) == ()
    assert problems_of(changed(case.stack, case.good)) == ()
    (problem,) = problems_of(changed(case.stack, case.bad))
    assert problem.settings[0] == case.about
    assert case.rule is None or problem.settings == case.rule.settings
    assert problem.message.endswith(".")
    assert problem.source
    assert len(problem.values) == len(problem.settings)
    target = case.stack["target"]
    monkeypatch.setitem(RULES, target, [rule for rule in RULES[target] if rule is not case.rule])
    assert (problems_of(changed(case.stack, case.bad)) == ()) is (case.rule is not None)


def test_rule_that_reads_an_invalid_setting_is_skipped_and_others_report() -> None:
    """nodes.max is not a number: the rule about nodes.min and nodes.max is silent, that about the image is not."""
    wrong = {"nodes.max": "many", "nodes.min": 9, "nodes.capacity": "spot", "ray.image": f"example/ray:{RAY}-gpu"}
    assert [problem.settings for problem in problems_of(changed(GKE, wrong))] == [("nodes.max",), ("ray.image",)]


def test_typo_in_a_rule_surfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def misspelt(settings: CloudSettings) -> Findings:
        yield Finding(str(settings.nodes.maxx), "")  # type: ignore[attr-defined]

    broken: Rule = rule("nodes.max", source="none")(misspelt)
    monkeypatch.setitem(RULES, "gke", [broken])
    for stack in (GKE, changed(GKE, {"nodes.max": "many"})):
        with pytest.raises(AttributeError, match="maxx"):
            problems_of(stack)


def test_partial_settings_know_valid_settings_and_properties() -> None:
    settings = PartialSettings(gke.GkeSettings, {"nodes.machine": "a4-highgpu-8g", "nodes.capacity": "spot"})
    assert (settings.nodes.capacity, settings.machine.gpu) == ("spot", "B200")
    for path in ("nodes.capacities", "location"):
        with pytest.raises(InvalidSettingError, match=r"nodes\.fallback|location"):
            attrgetter(path)(settings)


@pytest.mark.parametrize(
    ("stack", "image", "lacking"),
    [
        (GKE, f"rayproject/ray:{RAY}-py311-cu128", "libnl"),
        (GKE, f"docker.io/rayproject/ray:{RAY}@sha256:{'0' * 64}", "libnl"),
        (EKS, f"rayproject/ray:{RAY}", "aws-ofi-nccl"),
        (EKS, AWS_RAY_TRAIN, None),
        (GKE, f"rayproject/ray-llm:{RAY}", None),
        (GKE, f"example.com/rayproject/ray:{RAY}", None),
    ],
)
def test_image_without_torch_is_a_warning(stack: dict[str, Any], image: str, lacking: str | None) -> None:
    settings = parse(changed(stack, {"ray.image": image}))
    assert isinstance(settings, CloudSettings)
    found = warnings(settings)
    assert bool(found) is (lacking is not None)
    for warning in found:
        assert (warning.settings, warning.values) == (("ray.image",), (shown(image),))
        assert f"neither torch nor {lacking}" in warning.message or f"and {lacking}" in warning.message
        assert "rdma-ray image build --push" in warning.fix


@pytest.mark.parametrize("file", sorted(ROOT.glob("Pulumi.*ke*.yaml")), ids=lambda file: file.name)
def test_the_image_of_a_stack_file_has_what_the_benchmark_needs(file: Path) -> None:
    settings = from_stack_file(file)
    assert [warning for warning in warnings(settings) if "ray.image" in warning.settings] == []


@pytest.mark.parametrize(("nodes", "warned"), [(2, True), (3, False)])
def test_upgrade_without_room_under_load_is_a_warning(nodes: int, warned: bool) -> None:
    """Two replicas of a node each; an upgrade starts with one more."""
    serves = {"ray.mode": "service", "service.application": "app:app", "service.deployment": "Model"}
    wanted = {"service.gpusPerReplica": 8, "service.maxReplicas": 2, "nodes.max": nodes}
    found = warnings(parse(changed(GKE, serves | wanted)))
    assert [warning.settings[0] for warning in found] == ["nodes.max"] * warned
    assert all("raise nodes.max to 3" in warning.fix for warning in found)


def test_shared_folder_on_nodes_with_a_new_kernel_is_a_warning() -> None:
    newer, bucket = {"cluster.version": EKS_NEXT}, {"storage.bucket": "my-training-data"}
    found = [warnings(parse(changed(EKS, each))) for each in (newer, bucket, newer | bucket)]
    assert [[one.settings for one in each] for each in found] == [[], [], [("cluster.version", "storage.bucket")]]


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("abc", True),
        ("ab", False),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-abc", False),
        ("Abc", False),
        ("192.168.0.1", False),
        ("my.data", True),
    ],
)
@pytest.mark.parametrize("stack", [GKE, EKS])
def test_bucket_names_common_to_both_clouds(stack: dict[str, Any], name: str, good: bool) -> None:
    assert (problems_of(changed(stack, {"storage.bucket": name})) == ()) is good


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        ("goog-x", GKE),
        ("my-google", GKE),
        ("xn--x", EKS),
        ("a..b", EKS),
        ("a-s3alias", EKS),
        ("a" * 60 + ".b" * 9, EKS),
        ("b." + "a" * 64, GKE),
    ],
)
def test_bucket_names_that_one_cloud_rejects(name: str, stack: dict[str, Any]) -> None:
    assert len(problems_of(changed(stack, {"storage.bucket": name}))) == 1


@pytest.mark.parametrize(
    "path",
    ["bucket", "/", "//", "/home", "/home/ray", "/tmp", "/dev/shm", "/usr", "/proc/1", "/etc/x", "/a/../etc", "/a//b"],
)
def test_mount_path_is_rejected(path: str) -> None:
    (problem,) = problems_of(changed(GKE, {"storage.mountPath": path}))
    assert problem.settings == ("storage.mountPath",)


@pytest.mark.parametrize("path", ["/bucket", "/bucket/", "/mnt/data", "/home/ray/data", "/fsx", "/userdata"])
def test_mount_path_is_accepted(path: str) -> None:
    assert problems_of(changed(GKE, {"storage.mountPath": path})) == ()


@pytest.mark.parametrize("location", ["us-east-1a", "use1-az1", "apne1-az4", "ap-southeast-2c"])
def test_zones_of_aws_are_accepted(location: str) -> None:
    assert problems_of(changed(EKS, {"location": location})) == ()


@pytest.mark.parametrize("tag", [RAY, f"{RAY}-py311-cu130", f"ray-{RAY}", "2.60.0.2c63f6-py312-cu128"])
def test_tag_names_the_release(tag: str) -> None:
    assert problems_of(changed(GKE, {"ray.image": f"registry.example:5000/team/ray:{tag}"})) == ()


@pytest.mark.parametrize("image", ["ray", "ray:latest", "ray:12.60.0", "ray:2.60.01", f"{RAY}/ray:x"])
def test_tag_without_release_is_rejected(image: str) -> None:
    (problem,) = problems_of(changed(GKE, {"ray.image": image}))
    assert problem.settings == ("ray.image", "ray.version")


def test_capacity_block_rejects_claims() -> None:
    block = {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0", "fabric": "efa-dranet"}
    for least in (0, 1):
        (problem,) = problems_of(changed(EKS, {**block, "nodes.min": least}))
        assert "efa" in problem.fix
        assert "set nodes.min to 1" not in problem.fix


@pytest.mark.parametrize(("stack", "limits"), [(GKE, gke.NAME_LIMITS), (EKS, eks.NAME_LIMITS)])
def test_stack_name_limits(stack: dict[str, Any], limits: tuple[NameLimit, ...]) -> None:
    longest = min(limit.longest for limit in limits)
    assert problems_of(stack, stack="a" * longest) == ()
    (problem,) = problems_of(stack, stack="a" * (longest + 1))
    assert str(longest) in problem.fix
    (problem,) = problems_of(stack, stack="My_stack")
    assert "My_stack" in problem.message
    assert problems_of(LOCAL, stack="My_stack") == ()


def test_a_bucket_of_cloud_storage_with_dots_may_be_longer() -> None:
    name = ".".join(["a" * 63] * 3)
    assert problems_of(changed(GKE, {"storage.bucket": name})) == ()
    assert len(problems_of(changed(EKS, {"storage.bucket": name}))) == 1


def test_variable_that_efa_chooses_is_a_warning_without_its_value() -> None:
    (warning,) = warnings(parse(changed(EKS, {"ray.env": ["NCCL_PROTO=hidden"]})))
    assert (warning.settings, warning.values) == (("ray.env",), ("[NCCL_PROTO=…]",))
    assert warning.message.startswith("aws-ofi-nccl chooses NCCL_PROTO")
    assert "hidden" not in str(warning)
    assert warnings(parse(changed(EKS, {"ray.env": ["NCCL_DEBUG=INFO"]}))) == []
