"""`--team`: a command uses the outputs of this team, and nothing of the stack's own Ray or of another team."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The address of a head that refuses everything, and the Authorization of each request."""
    seen: list[str] = []

    class Head(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_error(401)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Head) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.mark.parametrize("command", ["run true", "list", "top --once", "status", "logs some-job"])
def test_commands_give_a_team_its_token_only(
    command: str, asked: tuple[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens at the addresses of the stack's own Ray and of the other team."""
    address, seen = asked
    reached = {"dashboard": address, "jobs": address}
    mine = TEAMS["nlp"] | {"ray": TEAMS["nlp"]["ray"] | reached}
    (file := tmp_path / "outputs.json").write_text(json.dumps(GKE | {"teams": TEAMS | {"nlp": mine}}))
    assert main([*command.split(), "--outputs", str(file), "--team", "nlp"]) == Exit.ERROR
    assert set(seen) == {f"Bearer {TOKEN}-nlp"}
    assert TOKEN not in str(capsys.readouterr())


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
