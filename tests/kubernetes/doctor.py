"""`rdma-ray doctor` on a running stack at depth `cluster`: a real kubectl reads the objects. No Ray answers."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from unittest import mock

from infra.outputs import cluster_outputs
from infra.settings.cloud import CloudSettings
from tests.kubernetes.queries import name, ray_cluster
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes import builds
from workloads.client.connection import Connection
from workloads.doctor.diagnosis import diagnose
from workloads.doctor.state import StateReader
from workloads.options import StackOptions

LATER_S = 3600.0
"""The state is judged as of an hour from now: by then every object had its time."""


def findings(stack: RunningStack) -> dict[tuple[str, str], str]:
    """Return the cause of each finding by its check and place, without that of Ray."""
    settings = stack.settings
    assert isinstance(settings, CloudSettings)
    kubeconfig = stack.plane.kubeconfig.read_text()
    outputs = cluster_outputs(settings, name(ray_cluster(stack.api)), kubeconfig, "no-token")
    outputs["ray"] |= {"jobs": "http://127.0.0.1:1"}
    folders = builds.programs("kubectl")["kubectl"].parent, os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, PATH=":".join(map(str, folders))):
        file = Path(folder) / "outputs.json"
        file.write_text(json.dumps(outputs))
        with Connection(StackOptions(outputs=str(file))) as connection:
            state = StateReader(connection).collect()
    assert [part for part in state.unknown if part not in ("ray", "probes")] == []
    found = diagnose(state.model_copy(update={"time": state.time + LATER_S}))
    return {(each.check, each.where): each.cause for each in found.findings if each.check != "ray"}
