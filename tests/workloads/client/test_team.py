"""`--team`: a command uses the outputs of this team, and nothing of the stack's own Ray or of another team."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workloads.client.fake_kubectl import Fake
from tests.workloads.client.test_outputs_secret import NAME, SHARED, secret
from tests.workloads.stack_outputs import GKE, TOKEN
from workloads.cli import main
from workloads.client.stack import read_outputs
from workloads.exits import Exit, WorkloadError
from workloads.options import StackOptions

TEAMS = {
    name: GKE | {"namespace": name, "queue": "gpu", "ray": GKE["ray"] | {"token": f"{TOKEN}-{name}"}}
    for name in ("vision", "nlp")
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with the outputs of a stack with two teams."""
    path = tmp_path / "outputs.json"
    path.write_text(json.dumps(GKE | {"teams": TEAMS}))
    return str(path)


def test_team_has_its_namespace_and_token(file: str) -> None:
    found = read_outputs(StackOptions(outputs=file, team="nlp"))
    assert (found.namespace, found.ray.token.get_secret_value()) == ("nlp", f"{TOKEN}-nlp")
    assert found.teams is None
    assert read_outputs(StackOptions(outputs=file)).namespace == "ray"


def test_variable_names_the_team_and_no_token_is_printed(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outputs", "--outputs", file]) == Exit.OK
    assert TOKEN not in (said := capsys.readouterr().out)
    assert sorted(json.loads(said)["teams"]) == ["nlp", "vision"]
    monkeypatch.setenv("RDMA_RAY_TEAM", "vision")
    assert main(["outputs", "--outputs", file]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["namespace"] == "vision"


def test_unknown_team_is_an_error_with_the_teams(file: str) -> None:
    with pytest.raises(WorkloadError, match=r"--team speech: there is no such team: choose one of nlp, vision$"):
        read_outputs(StackOptions(outputs=file, team="speech"))


def test_secret_of_a_team_needs_no_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = Fake(tmp_path, monkeypatch)
    kubectl.has(secret(SHARED))
    assert read_outputs(StackOptions(outputs=NAME)).namespace == "team"
    with pytest.raises(WorkloadError, match="have no teams: leave out --team"):
        read_outputs(StackOptions(outputs=NAME, team="team"))


def test_secret_cannot_bring_the_outputs_of_teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team's outputs in it could have a kubeconfig of another cluster."""
    Fake(tmp_path, monkeypatch).has(secret(SHARED | {"teams": TEAMS}))
    for team in (None, "nlp"):
        with pytest.raises(WorkloadError, match="names another way into the cluster"):
            read_outputs(StackOptions(outputs=NAME, team=team))
