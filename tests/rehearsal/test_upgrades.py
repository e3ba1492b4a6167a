"""A stack of each release, previewed by the program of today: an upgrade must not take from a user what they have.

`make rehearse-all ARGS="--before REF"` runs the other version's program, with the dependencies of this one: it compares
versions that share them. A fixture has the state that the old program left, and needs none of its code.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.changes import copy_program
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.labels import kind
from rehearsal.report.outcome import Change
from tests.rehearsal import release_states
from tests.rehearsal.release_states import FOLDER, Release, changes, releases
from workloads.secrecy import redacted

RELEASES = releases()
KEPT = (
    *("Cluster", "NodePool", "NodeGroup", "Network", "Vpc", "Subnetwork", "Subnet", "Bucket", "FileSystem"),
    # What is in a cluster or in a namespace, a volume, or encrypted with a key is lost with it; a service or job ends.
    *("Namespace", "PersistentVolume", "PersistentVolumeClaim", "Key", "RayService", "RayJob"),
)
"""Last words of the types that no upgrade replaces or deletes: clusters, machines, networks, data, and running work."""
SUBNET = '_subnet(f"{name}-{nic}", site, rdma_network(nic), network, cidr, opts)'
RENAMED = SUBNET.replace("{nic}", "nic-{nic}")
ALIAS = 'ResourceOptions.merge(opts, ResourceOptions(aliases=[pulumi.Alias(name=f"{name}-{nic}")]))'
ADVICE = """
An upgrade of this project must not do that. If the resource has another name, parent or type in the program, give it
`aliases` in its ResourceOptions. If only new stacks should have the input, add it to `ignore_changes`. If the change is
meant, add it with the reason to tests/rehearsal/releases/accepted.yaml, and tell users in CHANGELOG.md."""


def findings(release: Release, changed: Iterable[Change], accepted: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what an upgrade would take from the users of a release, and what is accepted but does not happen."""
    changed = list(changed)
    its = [each for each in accepted if each["release"] == release.version and release.stack in each["stacks"]]
    unused = {each["resource"] for each in its}
    for change in changed:
        name = f"{kind(change.type)} {change.name}"
        if not change.ends or change.type.startswith("rdma-ray:") or not change.type.endswith(KEPT):
            continue
        if name in {each["resource"] for each in its}:
            unused.discard(name)
            continue
        what = f"{release.stack}, as {release.version} left it: {change.op} of {name}"
        new = [each.name for each in changed if each.op == "create" and each.type == change.type]
        if change.op == "delete":
            yield f"{what}, which the program has no more; of its type, it creates {', '.join(new) or 'none'}"
        else:
            yield f"{what}, because of {', '.join(change.reasons) or 'another one that is replaced'}"
    for name in unused:
        yield f"accepted.yaml: {release.stack} of {release.version} keeps {name}: remove it from the list"


def accepted() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = yaml.safe_load((FOLDER / "accepted.yaml").read_text())
    return listed


each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda each: f"{each.version}-{each.stack}")


@each_release
def test_upgrade_takes_nothing_from_users(release: Release, fork_server: ForkServer, tmp_path: Path) -> None:
    engine = release.opened(Workspace(tmp_path / "rehearsal", fork_server.bin))
    found = list(findings(release, changes(engine), accepted()))
    assert found == [], "\n".join([*found, ADVICE])


def test_every_stack_is_in_the_newest_release() -> None:
    """What users must keep is in it: a wrong word in `KEPT` would match nothing. No stack makes a bucket so far."""
    newest = [each for each in RELEASES if each.folder == RELEASES[-1].folder]
    assert {each.stack for each in newest} >= {"gke", "eks", "kubernetes"}
    types = {line.partition('"type": "')[2].partition('"')[0] for each in newest for line in each.state.open()}
    assert {word for word in KEPT if not any(type_.endswith(f":{word}") for type_ in types)} == {"Bucket", "FileSystem"}
    assert any(type_.endswith("FileSystem") for type_ in types)


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        (
            "/networkProfiles/{site.zone}-{profile}",
            "/networkProfiles/{site.zone}-{profile}-metal",
            [
                "replace of Network rdma, because of networkProfile",
                "replace of Subnetwork rdma-7, because of another one that is replaced",
            ],
        ),
        (
            SUBNET,
            RENAMED,
            ["delete of Subnetwork rdma-7, which the program has no more; of its type, it creates rdma-nic-"],
        ),
        (SUBNET, RENAMED.replace("opts", ALIAS), []),
    ],
    ids=["another network profile", "another name", "another name with an alias"],
)
def test_program_that_takes_something_is_found(
    text: str, new: str, expected: list[str], fork_server: ForkServer, tmp_path: Path
) -> None:
    copy_program(program := tmp_path / "program")
    file = program / "infra/gke/network.py"
    assert file.read_text().count(text) == 1
    file.write_text(file.read_text().replace(text, new))
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    release = next(each for each in RELEASES if each.stack == "gke")
    engine = release.opened(workspace)
    workspace.use(program)
    found = list(findings(release, changes(engine), ()))
    assert bool(found) is bool(expected)
    for words in expected:
        assert any(f"gke, as {release.version} left it: {words}" in line for line in found), found


def test_accepted_replacement_is_no_finding_and_is_listed_only_while_it_happens() -> None:
    release = RELEASES[0]
    pool = Change(urn="", name="pool-gpu", type="gcp:container/nodePool:NodePool", op="replace", reasons=("name",))
    entry = {
        "release": release.version,
        "stacks": [release.stack],
        "resource": "NodePool pool-gpu",
        "reason": "it ends",
    }
    assert list(findings(release, [pool], [entry])) == []
    assert "keeps NodePool pool-gpu" in next(findings(release, [], [entry]))
    assert "pool-gpu, because of name" in next(findings(release, [pool], [{**entry, "release": "0.0.1"}]))
    assert "pool-gpu, because of name" in next(findings(release, [pool], [{**entry, "stacks": []}]))


def test_what_users_can_lose_is_not_a_finding() -> None:
    kept = [
        Change(urn="", name="nodes", type="gcp:compute/firewall:Firewall", op="delete"),
        Change(urn="", name="rdma", type="gcp:compute/network:Network", op="update"),
        Change(urn="", name="rdma", type="rdma-ray:gke:RdmaNetwork", op="delete"),
    ]
    assert list(findings(RELEASES[0], kept, [])) == []


def test_every_accepted_replacement_is_of_a_release_and_has_a_reason() -> None:
    known = {(each.version, each.stack) for each in RELEASES}
    assert [each for each in accepted() if not each.get("reason")] == []
    assert {(each["release"], stack) for each in accepted() for stack in each["stacks"]} <= known


def test_two_runs_write_the_same_state_and_its_preview_is_empty(fork_server: ForkServer, tmp_path: Path) -> None:
    written = [Release(tmp_path / str(number), "gke-first") for number in range(2)]
    for release in written:
        release.write(Workspace(tmp_path / "rehearsal", fork_server.bin))
    first, second = (release.state.read_text() for release in written)
    assert first == second
    assert changes(written[0].opened(Workspace(tmp_path / "again", fork_server.bin))) == ()


@each_release
def test_release_has_no_secret_and_no_place_of_a_machine(release: Release) -> None:
    text = release.state.read_text()
    assert str(ROOT) not in text
    assert "ciphertext" not in text
    secrets = re.findall(r'"plaintext": ("(?:[^"\\]|\\.)*")', text)
    assert len(secrets) == text.count("plaintext")
    harmless = ("not-a-secret-", base64.b64encode(b"not-a-secret").decode())
    for plain in map(json.loads, secrets):
        # Others are labels and kubeconfigs, which have a certificate and name a program that gets a token.
        public = re.sub(r"certificate-authority-data\W+(LS0t[\w+/=]+)", _without_certificate, plain)
        assert any(words in plain for words in harmless) or redacted(public) == public


def _without_certificate(found: re.Match[str]) -> str:
    return "" if b"BEGIN CERTIFICATE" in base64.b64decode(found[1]) else found[0]


def test_state_of_a_release_is_not_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A new state would hide what an upgrade does to the users of the old one."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n")
    (tmp_path / "0.1.0").mkdir()
    (tmp_path / "0.1.0" / "gke.json").write_text("{}")
    monkeypatch.setattr(release_states, "ROOT", tmp_path)
    monkeypatch.setattr(release_states, "FOLDER", tmp_path)
    assert release_states.main() == 1
    assert (tmp_path / "0.1.0" / "gke.json").exists()
