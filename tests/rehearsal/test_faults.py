"""Faults in the middle of `up` and `destroy`: a random sample of what `make test-faults` runs in full.

`RDMA_RAY_SEED=N` chooses the sample; a case that fails says how to run it alone.
"""

from __future__ import annotations

import json
import os
import random

import psutil
import pytest

from rehearsal.clouds.registry import cloud
from rehearsal.report.convergence import markdown, why
from rehearsal.sweep import Case, Result, Sweep
from rehearsal.warm import WarmStart
from tests.clone import wait_until
from tools.imports import PendingCreate, import_id

SAMPLE = 6


@pytest.fixture(scope="module")
def sweep(warm: WarmStart, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The gke stack, ready to be copied: empty, and made."""
    made = Sweep("gke", tmp_path_factory.mktemp("faults") / "sweep", warm.bin)
    made.prepare()
    return made


def test_a_random_sample_converges(sweep: Sweep, warm: WarmStart, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("RDMA_RAY_SEED") or random.randrange(10**6))
    cases = random.Random(seed).sample(list(sweep.cases()), SAMPLE)
    with capsys.disabled():
        print(f"\nRDMA_RAY_SEED={seed}: {', '.join(map(str, cases))}")
    failed = [result for result in sweep.run(cases, 2, lambda _: None) if not result.converged]
    said = "\n".join(f"{result.case}, {result.struck}: {why(result)}\n  {result.case.again}" for result in failed)
    assert not failed, f"RDMA_RAY_SEED={seed}\n{said}"
    server = psutil.Process(warm.server.pid)
    wait_until(lambda: server.children() == [], "no host and no plugin outlives its engine")


def test_recovery_takes_in_what_a_killed_engine_made(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the same case ends with orphans and names in use: the sweep can tell."""
    case = Case("up", 8, "kill-after")
    (settled,) = sweep.run([case], 1, lambda _: None)
    assert settled.converged, why(settled)
    monkeypatch.setattr("rehearsal.sweep.recover", lambda engine: engine.run("cancel", "--yes", engine.stack))
    (result,) = sweep.run([case], 1, lambda _: None)
    assert not result.converged
    assert result.orphans
    assert any(wrong.startswith("the next up failed") for wrong in result.wrong)


def test_everything_that_the_stack_makes_can_be_settled(sweep: Sweep) -> None:
    """What recovery would import each resource by, from its own inputs, leads to the id that it has."""
    workspace = sweep.starts["destroy"].workspace
    file = workspace.folder / "state" / ".pulumi" / "stacks" / "rdma-ray" / "gke.json"
    resources = json.loads(file.read_text())["checkpoint"]["latest"]["resources"]
    made = [each for each in resources if each.get("custom") and not each["type"].startswith("pulumi:")]
    assert len(made) == sweep.starts["up"].steps
    config = {"project": "my-project"}
    for each in made:
        written = import_id(PendingCreate(each["urn"], each["type"], each["inputs"]), "my-project")
        if each["type"].startswith("random:"):
            assert written is None
            continue
        kind = cloud(each["type"].partition(":")[0]).kind(each["type"])
        assert kind is not None
        assert written is not None
        assert kind.from_import(written, config) == each["id"], each["urn"]


def test_the_table_counts_what_happened() -> None:
    network = ("gcp:compute/network:Network", "projects/p/global/networks/n")
    results = [
        Result(Case("up", 1, "429"), "create a", (), (), 2.0),
        Result(Case("up", 2, "429"), "create a", ("it is wrong",), (network,), 4.0),
        Result(Case("destroy", 1, "429"), "delete a", (), (), 1.0),
    ]
    lines = markdown(results).splitlines()
    assert lines[2:5] == [
        "| up | 429 | 2 | 1 | 1 | 1 | 3.0 |",
        "| destroy | 429 | 1 | 1 | 1 | 0 | 1.0 |",
        "| all |  | 3 | 2 | 2 | 1 | 2.3 |",
    ]
    assert lines[-1] == f"- up step 2 429 (create a): it is wrong; orphan: {network[0]} {network[1]}"
