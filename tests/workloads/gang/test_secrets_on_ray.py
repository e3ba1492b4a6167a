"""Another job on the same real Ray looks for a secret in every place, while its job ends in every way."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clone import wait_until
from tests.workloads.conftest import ROOT, Cluster
from workloads.client.api import Job, JobsApi
from workloads.secrecy import REDACTED

SCRIPTS = Path(__file__).with_name("scripts")
NAME = "MY_TOKEN"
RAISE = f"import os; token = os.environ['{NAME}']; print(len(token)); {{}}[token]"
# The client dies at the moment of a function's call.
DIES = """
import os, runpy, signal, sys
from workloads.run import commands, delivery
sys.path.insert(0, {root!r})
setattr({module}, {function!r}, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
sys.argv = ["rdma-ray", *{arguments!r}]
runpy.run_module("workloads.cli", run_name="__main__")
"""


class Observed:
    """A cluster on which another job watches."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.api = JobsApi.of(cluster.outputs)
        self.secret = f"pl4nted{secrets.token_hex(12)}"
        watch = ("--detach", "--working-dir", str(SCRIPTS), "--", "python", "observer.py")
        done = cluster.rdma_ray("run", *watch, self.secret[::-1], str(folder))
        assert done.returncode == 0, done.stderr
        self.id = done.stdout.strip()
        wait_until(lambda: (folder / "watches").exists(), timeout_s=90)

    def start(self, *arguments: str, secret: str | None = None) -> subprocess.Popen[str]:
        """Start a command as the owner of the secret."""
        return self.cluster.start("run", "--secret", NAME, *arguments, **{NAME: secret or self.secret})

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end, and return its exit code and output."""
        with self.start(*arguments) as client:
            said, errors = client.communicate(timeout=180)
        return client.returncode, said, errors

    @property
    def environment(self) -> dict[str, str]:
        return self.cluster.environment() | {NAME: self.secret}

    def die(self, module: str, function: str, *arguments: str) -> None:
        """Run a command whose client gets SIGKILL in place of a function's call."""
        command = ["run", "--secret", NAME, "--working-dir", str(SCRIPTS), *arguments]
        script = DIES.format(root=str(ROOT), module=module, function=function, arguments=command)
        done = subprocess.run([sys.executable, "-c", script], env=self.environment, cwd=ROOT, check=False, timeout=120)
        assert done.returncode == -signal.SIGKILL

    def job(self, job_id: str) -> Job:
        return self.api.job(job_id)

    def report(self) -> list[str]:
        """Return what the observer saw: a line on its rounds, and each place with the secret or a package for it."""
        (self.folder / "stop").touch()
        wait_until(lambda: (self.folder / "seen").exists(), timeout_s=90)
        return (self.folder / "seen").read_text().splitlines()


@pytest.fixture
def observed(cluster: Cluster, tmp_path: Path) -> Iterator[Observed]:
    found = Observed(cluster, tmp_path)
    yield found
    (tmp_path / "stop").touch()
    wait_until(lambda: found.job(found.id).terminal, timeout_s=90)


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that accepts connections and never answers, so that a job waits for its working directory."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/code.zip"


def test_a_secret_is_seen_by_its_job_alone_whatever_ends_it(observed: Observed, tmp_path: Path) -> None:
    python = ("--", "python", "-u", "-c", RAISE)
    shown = observed.run(*python)
    assert shown[:2] == (1, f"{len(observed.secret)}\n{shown[1].partition(chr(10))[2]}")
    assert f"KeyError: {REDACTED}" in shown[1].replace("'", "")
    result = tmp_path / "gang.json"
    gang = observed.run("--nodes", "2", "--json", str(result), *python)
    assert gang[0] == 1
    assert f"KeyError: {REDACTED}" in result.read_text().replace("'", "")
    # Its environment fails, so that no driver starts.
    failed = observed.run("--working-dir", "file:///nowhere/code.zip", *python)
    assert failed[0] == 1
    # It is stopped while it is pending. Ray ends it when the download of its folder does.
    with silent_server() as uri:
        client = observed.start("--request-id", "sealed-2", "--working-dir", uri, *python)
        wait_until(lambda: any(job.id == "sealed-2" for job in observed.api.jobs()), timeout_s=90)
        assert observed.cluster.rdma_ray("stop", "sealed-2", "--wait", "1").returncode == 1
        assert observed.job("sealed-2").status == "PENDING"
    pending = client.communicate(timeout=60)
    assert client.returncode != 0, pending
    # The client is killed: before it submits, before it sends, and before it follows.
    observed.die("commands", "submit", "--request-id", "sealed-3", *python)
    observed.die("commands", "deliver", "--request-id", "sealed-4", *python)
    wait_until(lambda: "secrets-key" in observed.api.logs("sealed-4"), timeout_s=90)
    assert observed.cluster.rdma_ray("stop", "sealed-4").returncode == 0
    observed.die("commands", "show_run", "--request-id", "sealed-5", *python)
    wait_until(lambda: observed.job("sealed-5").terminal, timeout_s=90)
    assert observed.job("sealed-5").exit_code == 1

    assert observed.cluster.rdma_ray("inspect", "--out", str(tmp_path / "bundle.tar.gz")).returncode == 0
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        for member in bundle.getmembers():
            file = bundle.extractfile(member)
            assert file is None or observed.secret.encode() not in file.read(), member.name
    rounds, *places = observed.report()
    assert places == [], "the secret was seen, or a package for it is left"
    assert int(rounds.split()[0]) > 20
    assert observed.secret not in repr((shown, gang, failed, pending, result.read_text()))


def test_two_clients_with_one_request_id_do_not_swap_secrets(observed: Observed) -> None:
    """One is started a moment after the other, several times, so that each phase of the first meets the second."""
    command = ("--", "python", "-c", f"import os; print('the job has', os.environ['{NAME}'][-7:])")
    for number, pause in enumerate((0.0, 0.5)):
        clients = []
        for who in ("alice__", "bob____"):
            arguments = ("--request-id", f"race-{number}", "--nodes", "1", *command)
            clients.append(observed.start(*arguments, secret=observed.secret + who))
            time.sleep(pause)
        said = [client.communicate(timeout=120) for client in clients]
        assert [client.returncode for client in clients] == [0, 0], said
        followers = [err for _, err in said if "nothing is started, with the secrets of the client that" in err]
        assert len(followers) == 1, said
        assert "Traceback" not in "".join(err for _, err in said)
        assert {out for out, _ in said} <= {"the job has alice__\n", "the job has bob____\n"}
    _, *places = observed.report()
    assert places == []
