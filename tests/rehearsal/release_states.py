"""`make release-state`: the state and the stack file of every cloud stack, as this version leaves them.

`test_upgrades.py` previews each of them with the program of today. A state has one resource per line, for reviewers of
two releases. Nothing in it depends on the run or the machine: it has no times and no places in the source, the
ids of providers follow from their names, and each password is replaced with a text that calls itself not a secret.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infra.settings import from_stack_file
from rehearsal import users_cluster
from rehearsal.__main__ import cloud_stacks
from rehearsal.engine.commands import Engine
from rehearsal.engine.state import View
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.graph import PROVIDERS, Graph
from rehearsal.report.outcome import Change

FOLDER = ROOT / "tests" / "rehearsal" / "releases"
OF_A_RUN = ("created", "modified", "sourcePosition", "stackTrace")
"""Fields of a resource that differ from run to run or from machine to machine. The engine needs none of them."""


@dataclass(frozen=True)
class Release:
    """The fixture of one stack at one version: `folder` has its state and its stack file."""

    folder: Path
    stack: str

    @property
    def version(self) -> str:
        """The version of the program that brought the stack up."""
        return self.folder.name

    @property
    def state(self) -> Path:
        """The state, for `pulumi stack import`."""
        return self.folder / f"{self.stack}.json"

    @property
    def stack_file(self) -> Path:
        """The user's settings at that version, since an upgrade leaves them as they are."""
        return self.folder / f"Pulumi.{self.stack}.yaml"

    def write(self, workspace: Workspace) -> None:
        """Bring the stack of this clone up in a rehearsal, and write its state and its stack file."""
        file = ROOT / self.stack_file.name
        engine = Engine.deployed(workspace, self.stack, file, lambda state: _prepare(state, file))
        exported = json.loads(engine.must("stack", "export", "--show-secrets", stack=True).text)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state.write_text(as_text(exported), encoding="utf-8")
        shutil.copyfile(file, self.stack_file)

    def opened(self, workspace: Workspace) -> Engine:
        """Return the engine of a workspace with this state, this stack file and the program of this clone."""
        workspace.begin(self.stack, self.stack_file)
        engine = Engine(workspace, self.stack)
        with engine.cloud_state.transaction() as state:
            _prepare(state, self.stack_file)
        engine.init()
        exported = json.loads(self.state.read_text(encoding="utf-8"))
        # The engine encrypts what it imports, for which the state must name the key of the new stack.
        exported["deployment"]["secrets_providers"] = engine.deployment()["secrets_providers"]
        file = workspace.folder / "release.json"
        file.write_text(json.dumps(exported))
        engine.must("stack", "import", "--file", str(file), stack=True)
        return engine


def changes(engine: Engine) -> tuple[Change, ...]:
    """Return what the next `up` would change. It reads no cloud: the state is all that is left of the release."""
    return tuple(Change.of(engine.planned("--refresh=false")))


def releases() -> list[Release]:
    """Return every fixture, the oldest version first."""
    files = sorted(FOLDER.glob("*/*.json"), key=lambda file: ([*map(int, file.parent.name.split("."))], file.name))
    return [Release(file.parent, file.stem) for file in files]


def as_text(exported: Mapping[str, Any]) -> str:
    """Return an exported state with plain secrets as the text of a fixture."""
    graph = Graph.from_deployment(exported["deployment"])
    by_urn = {resource["urn"]: resource for resource in exported["deployment"]["resources"]}
    lines = [json.dumps(_of_no_run(by_urn[urn]), sort_keys=True) for urn in graph.nodes]
    text = ",\n".join(lines)
    for resource in by_urn.values():
        if resource["type"].startswith(PROVIDERS):
            text = text.replace(resource["id"], str(uuid.uuid5(uuid.NAMESPACE_URL, resource["urn"])))
        if resource["type"].endswith(":RandomPassword"):
            name = resource["urn"].rpartition("::")[2]
            for field, secret in _plain(resource["outputs"]).items():
                harmless = f"not-a-secret-{name}-{field}".ljust(len(secret), "-")[: len(secret)]
                text = text.replace(secret, harmless).replace(_base64(secret), _base64(harmless))
    manifest = {key: value for key, value in exported["deployment"]["manifest"].items() if key != "time"}
    head = json.dumps({"manifest": manifest}, sort_keys=True).removesuffix("}")
    return f'{{"version": {exported["version"]}, "deployment": {head}, "resources": [\n{text}\n]}}}}\n'


def _of_no_run(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource without the fields of a run, and the URNs that it depends on in one order."""
    kept = {key: value for key, value in resource.items() if key not in OF_A_RUN}
    kept["dependencies"] = sorted(kept.get("dependencies") or ())
    of_properties = kept.get("propertyDependencies") or {}
    kept["propertyDependencies"] = {name: sorted(urns or ()) for name, urns in of_properties.items()}
    return {key: value for key, value in kept.items() if value not in ([], {})}


def _plain(outputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the secret outputs."""
    return {
        name: json.loads(value["plaintext"])
        for name, value in outputs.items()
        if isinstance(value, Mapping) and "plaintext" in value
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _prepare(state: View, stack_file: Path) -> None:
    users_cluster.prepare(state, from_stack_file(stack_file))


def main() -> int:
    """Write the fixtures of this version; return 1 if that would change those of a release."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    folder = FOLDER / version
    if folder.exists() and f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text():
        print(
            f"{version} is released (CHANGELOG.md), and its users have what is in tests/rehearsal/releases/{version}: a"
            " new state would hide what an upgrade does to them. Raise `version` in pyproject.toml"
        )
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    with ForkServer() as fork_server, TemporaryDirectory() as place:
        for stack in cloud_stacks():
            release = Release(folder, stack)
            release.write(Workspace(Path(place) / stack, fork_server.bin))
            if wrong := changes(release.opened(Workspace(Path(place) / "again", fork_server.bin))):
                print(f"{stack}: a preview of the state that was just written is not empty: {wrong}")
                return 1
            print(f"{stack}: {release.state.stat().st_size / 1000:.0f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
