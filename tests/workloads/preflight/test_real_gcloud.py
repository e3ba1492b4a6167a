"""The real gcloud, with Google's APIs on loopback: it has the commands, and prints what the recordings say."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workloads.preflight.google_api import OVERRIDES, served
from tests.workloads.preflight.test_gke import API_ANSWERS, DATA, RECORDINGS
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.gcloud import GCLOUD

START = "--start-time-range=from=2026-11-29,to=2026-12-27"

pytestmark = pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")


@pytest.fixture
def gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Configure gcloud in an empty folder, without the user's variables and without credentials."""
    for name in os.environ:
        if name.startswith("CLOUDSDK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    return monkeypatch


def test_gcloud_prints_the_recordings(gcloud: pytest.MonkeyPatch) -> None:
    documents = yaml.safe_load((DATA / "api.yaml").read_text())

    def printed(name: str) -> Any:
        arguments = RECORDINGS[name]["argv"].replace("--start-time-range=from=*,to=*", START).split()[1:]
        # Two at a time on a busy machine take longer than a user's.
        return GCLOUD.ask(*arguments, answer_s=60)

    with served(documents) as (address, unknown):
        gcloud.setenv("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true")
        for api, path in OVERRIDES.items():
            gcloud.setenv(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}", f"{address}/{path}")
        with ThreadPoolExecutor(2) as pool:
            answers = dict(zip(API_ANSWERS, pool.map(printed, API_ANSWERS), strict=True))
    assert not unknown
    for name, document in answers.items():
        assert document == RECORDINGS[name]["document"], name


@pytest.mark.usefixtures("gcloud")
def test_gcloud_without_a_login_is_signed_out() -> None:
    assert GCLOUD.ask("config", "list", "--format=json(core.account,core.project)", answer_s=60) is None
    with pytest.raises(NoAnswerError, match="not signed in") as error:
        GCLOUD.ask("compute", "regions", "describe", "us-central1", "--project=p", "--format=json", answer_s=60)
    assert error.value.kind == "signed-out"


@pytest.mark.usefixtures("gcloud")
def test_unknown_command_is_an_old_gcloud() -> None:
    with pytest.raises(NoAnswerError) as error:
        GCLOUD.ask("beta", "compute", "advice", "weather", "--format=json", answer_s=60)
    assert error.value.kind == "old"


def test_what_does_not_exist_is_absent(gcloud: pytest.MonkeyPatch) -> None:
    with served({}) as (address, _):
        gcloud.setenv("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true")
        gcloud.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", f"{address}/compute/v1/")
        reservation = ("compute", "reservations", "describe", "r", "--zone=us-central1-b")
        with pytest.raises(NoAnswerError) as error:
            GCLOUD.ask(*reservation, "--project=p", "--format=json", answer_s=60)
        assert error.value.kind == "absent"
        # gcloud prints an empty list, and exits with 0.
        with pytest.raises(NoAnswerError) as error:
            GCLOUD.ask("compute", "reservations", "list", "--project=p", "--format=json", answer_s=60)
        assert error.value.kind == "incomplete"
