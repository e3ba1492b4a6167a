"""The one folder in which a rehearsal of a stack happens: its own backend, engine home, stack file and world.

Nothing of the user's own stacks is read or written, and the simulated plugins serve nobody outside such a folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rehearsal.clouds.registry import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "RDMA_RAY_REHEARSAL"
"""The environment variable by which plugins learn their workspace; without it they do not start."""
PLUGINS = ROOT / "rehearsal" / "plugins"
"""The simulated clouds as executables. The rehearsal's own project file names them; they are not on PATH."""
PROGRAMS = ROOT / "rehearsal" / "programs"
"""Simulated command-line programs of the clouds, before the real ones on PATH."""
_MARKER = "this is a rehearsal"


class NotOursError(RuntimeError):
    """A folder or a backend that is not a rehearsal's."""


class Workspace:
    """A rehearsal's folder. `plugins` is where the engine finds its plugins; others bring a language host, too."""

    def __init__(self, folder: Path, plugins: Path = PLUGINS) -> None:
        self.folder = folder.resolve()
        self.plugins = plugins

    @property
    def backend(self) -> str:
        """The backend's address; never that of the user."""
        return f"file://{self.folder / 'state'}"

    @property
    def cloud_state(self) -> Path:
        """What the simulated clouds remember."""
        return self.folder / "clouds.sqlite"

    def begin(self, stack: str, stack_file: Path) -> None:
        """Make the folder anew, with a copy of the project's description and of the stack's file.

        Raises:
            NotOursError: the folder exists and is something else.
        """
        if self.folder.exists():
            self.check()
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        (self.folder / _MARKER).touch()
        (self.folder / "state").mkdir()
        self.use(ROOT)
        shutil.copy(stack_file, self.folder / f"Pulumi.{stack}.yaml")

    def use(self, project: Path) -> None:
        """Rehearse the program in this folder from now on: that of this clone, or of another version of it.

        The program runs where it is; only the project's description and its stack files are the rehearsal's own.
        """
        description = (project / "Pulumi.yaml").read_text()
        main, environment = f"main: {_quoted(project)}", f"virtualenv: {_quoted(ROOT / '.venv')}"
        plugins = "".join(f"\n    - name: {name}\n      path: {_quoted(self.plugins)}" for name in PACKAGES)
        (self.folder / "Pulumi.yaml").write_text(
            f"{description.replace('virtualenv: .venv', environment)}{main}\nplugins:\n  providers:{plugins}\n"
        )

    def check(self) -> None:
        """Raise `NotOursError` unless this is a rehearsal's folder."""
        if not (self.folder / _MARKER).exists():
            raise NotOursError(
                f"{self.folder} is not the folder of a rehearsal; nothing was touched. Move it away, or choose another"
            )

    def environment(self) -> dict[str, str]:
        """The environment of every process of the rehearsal, the engine first."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "GOOGLE_"))}
        tools = [str(PROGRAMS), str(ROOT / ".tools" / "bin"), os.environ.get("PATH", os.defpath)]
        return inherited | {
            FOLDER: str(self.folder),
            "PATH": os.pathsep.join(tools if self.plugins == PLUGINS else [str(self.plugins), *tools]),
            "PULUMI_BACKEND_URL": self.backend,
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # A plugin that is missing here is an error: the real one would ask for credentials.
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }


def of_this_process() -> Workspace:
    """The workspace that this process belongs to.

    Raises:
        NotOursError: it belongs to none, or its engine writes to a backend that is not the rehearsal's.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        raise NotOursError("this is a simulated cloud of rdma-ray's rehearsal; it serves `make rehearse` only")
    workspace = Workspace(Path(folder))
    workspace.check()
    if os.environ.get("PULUMI_BACKEND_URL") != workspace.backend:
        raise NotOursError("this is a simulated cloud, and the engine's backend is not that of the rehearsal")
    return workspace


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
