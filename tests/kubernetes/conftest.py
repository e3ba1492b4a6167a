"""One control plane for the whole tier, with the real KubeRay and Kueue, and kwok for nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rehearsal.warm import WarmStart
from tools.kubernetes.control_plane import ControlPlane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A Job's pods run until a test ends them; a test keeps to a namespace and to node labels of its own."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.start_kwok(complete_jobs=False)
        plane.start_kuberay()
        plane.start_kueue()
        yield plane


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    """Language hosts and plugins that start at once, for every stack that a test brings up."""
    with WarmStart() as started:
        yield started
