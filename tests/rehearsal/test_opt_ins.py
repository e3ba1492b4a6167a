"""Every opt-in can be taken back: what a provider does not miss (Optional and Computed) is written in both states.

The stack of each target is registered with every flag and optional section on, then with one of them off. An input that
is gone and computed is no difference for the provider, so the cloud would keep it, and the next plan would be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from infra.settings.load import CONTRACTS
from rehearsal.clouds.registry import kind_of
from rehearsal.engine.protocol import compared
from rehearsal.engine.values import differences
from tests.kubernetes.cloud_mocks import Made, deployed
from tests.unit.stacks import EKS, GKE, changed

Resources = Mapping[tuple[str, str], Mapping[str, Any]]
PROVIDERS = {"gke": {"gcp:project": "mine"}, "eks": {"aws:region": "us-east-1"}}
ALIKE = {"budget.monthly": 100, "budget.email": "a@example.com", "storage.bucket": "ours", "queue": "kueue"}
NETWORKS = {"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32"]}
ON: Mapping[str, Mapping[str, Any]] = {
    "gke": changed(
        GKE,
        {
            **ALIKE,
            **NETWORKS,
            "budget.billingAccount": "012345-6789AB-CDEF01",
            "hardening": True,
            "nodes.capacity": "spot",
            "nodes.maxHours": 24,
        },
    ),
    "eks": changed(
        EKS,
        {
            **NETWORKS,
            "storage.bucket": "ours",
            "hardening": True,
            "nodes.maxHours": 24,
            "queue": "kueue",
            "storage.efa": True,
            "storage.capacityGib": 4800,
            "storage.exportDeletions": True,
            "ray.policies": ["arn:aws:iam::111122223333:policy/checkpoints"],
            "access.administrators": ["arn:aws:iam::111122223333:role/ops"],
        },
    ),
}
TOGETHER = {
    "access.publicEndpoint": ("access.authorizedNetworks",),
    "budget.monthly": ("budget.email", "budget.billingAccount"),
    "storage.efa": ("storage.capacityGib",),
}
"""Settings that go off with one."""
BOUND = {
    "access.authorizedNetworks": "off with access.publicEndpoint",
    "storage.bucket": "the other storage settings need it",
    "budget.email": "off with budget.monthly",
    "budget.billingAccount": "off with budget.monthly",
}
WITHOUT_EFFECT = {"aws:eks/cluster:Cluster cluster: vpcConfig.publicAccessCidrs"}
"""What stays and does nothing: ranges of an endpoint that is closed."""


def opt_ins(target: str) -> list[str]:
    """Return the flags of a target, and the settings of its stack here that are not set by default."""
    flags = [path for path, setting in CONTRACTS[target].items() if setting.info.default in (True, False)]
    given = [path for path in CONTRACTS[target] if _given(ON[target], path) and not CONTRACTS[target][path].required]
    return sorted(
        {*flags, *given} - {"protect"} - BOUND.keys() - {"nodes.capacity", "storage.capacityGib", "ray.image"}
    )


def _given(raw: Mapping[str, Any], path: str) -> bool:
    section, _, name = path.rpartition(".")
    return name in (raw.get(section, {}) if section else raw)


def off(target: str, path: str) -> dict[str, Any]:
    """Return the stack without an opt-in, or with the other value of a flag."""
    section, _, name = path.rpartition(".")
    given = (ON[target].get(section, {}) if section else ON[target]).get(name)
    flag = CONTRACTS[target][path].info.default
    value = not (flag if given is None else given) if isinstance(flag, bool) else None
    return changed(ON[target], {path: value, **dict.fromkeys(TOGETHER.get(path, ()))})


@cache
def base(target: str) -> Resources:
    return resources(ON[target])


def resources(raw: Mapping[str, Any]) -> Resources:
    made: list[Made] = deployed(raw, stack="demo", config=PROVIDERS[raw["target"]])
    return {(one.type, one.name): one.inputs for one in made if one.type.startswith(("gcp:", "aws:"))}


def unnoticed(before: Resources, now: Resources) -> Iterator[str]:
    """Yield the inputs whose absence a provider does not notice, of resources that stay."""
    for key in before.keys() & now.keys():
        kind = kind_of(key[0])
        assert kind is not None
        old, new = dict(before[key]), dict(now[key])
        answer = compared(old, new, kind.replace_on, kind.keeps(old, new))
        hidden = [path for path, how in differences(old, new) if how == "delete" and kind.keeps(old, new)(path)]
        if not answer.replaces:
            yield from (f"{key[0]} {key[1]}: {'.'.join(map(str, path))}" for path in hidden)


@pytest.mark.parametrize(("target", "path"), [(target, path) for target in ON for path in opt_ins(target)])
def test_what_is_taken_back_reaches_the_cloud(target: str, path: str) -> None:
    other = resources(off(target, path))
    assert {*unnoticed(base(target), other), *unnoticed(other, base(target))} - WITHOUT_EFFECT == set()


def test_opt_ins_are_those_of_the_settings() -> None:
    assert {"hardening", "access.publicEndpoint", "budget.monthly", "computeClass"} <= set(opt_ins("gke"))
    assert {"hardening", "storage.efa", "storage.exportDeletions", "access.administrators"} <= set(opt_ins("eks"))


@pytest.mark.parametrize(("live", "replaces"), [(False, []), (True, ["efaEnabled"])])
def test_input_with_the_value_that_is_there_is_no_difference(live: bool, replaces: list[str]) -> None:
    """So a file system of an earlier version of the program, which wrote nothing, stays."""
    kind = kind_of("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert kind is not None
    before, now = {"storageCapacity": 1200}, {"storageCapacity": 1200, "efaEnabled": False}
    answer = compared(before, now, kind.replace_on, kind.keeps(before, now, {**before, "efaEnabled": live}))
    assert list(answer.replaces) == replaces
    assert bool(answer.diffs) is live
