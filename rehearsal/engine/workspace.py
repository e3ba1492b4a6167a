"""Workspace folder of a rehearsal: its own backend, engine home, stack file and cloud state.

A rehearsal does not read or write the user's own stacks, and the simulated plugins run only in such a folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "RDMA_RAY_REHEARSAL"
"""Environment variable with the path of the workspace. Plugins do not start without it."""
PLUGINS = ROOT / "rehearsal" / "plugins"
"""Executables of the simulated clouds. The rehearsal's project file names them; they are not on PATH."""
PROGRAMS = ROOT / "rehearsal" / "programs"
"""Simulated command-line programs of the clouds and kubectl, before the real ones on PATH."""
_MARKER = "this is a rehearsal"
_SECRETS_PROVIDER = ("encryptionsalt:", "encryptedkey:", "secretsprovider:")


class NotOursError(RuntimeError):
    """A folder or a backend does not belong to a rehearsal."""


class Workspace:
    """Folder of a rehearsal. `plugins` holds the executables for the engine; some bring a language host.

    `control_plane` is the real API server of another depth than quick: the folder of its kubectl, and its kubeconfig.
    Without one, kubectl is simulated.
    """

    def __init__(self, folder: Path, plugins: Path = PLUGINS) -> None:
        self.folder = folder.resolve()
        self.plugins = plugins
        self.control_plane: tuple[Path, Path] | None = None

    @property
    def backend(self) -> str:
        """The URL of the rehearsal's own backend."""
        return f"file://{self.folder / 'state'}"

    @property
    def cloud_state(self) -> Path:
        """The file of the simulated clouds' state."""
        return self.folder / "clouds.sqlite"

    def begin(self, stack: str, stack_file: Path) -> None:
        """Create the folder, with copies of the project file and of the stack file. An existing one is replaced.

        Raises:
            NotOursError: the folder exists and does not belong to a rehearsal.
        """
        if self.folder.exists():
            self.check()
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        (self.folder / _MARKER).touch()
        (self.folder / "state").mkdir()
        self.use(ROOT)
        # The rehearsal's state has a secrets provider of its own.
        lines = stack_file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(_SECRETS_PROVIDER)]
        (self.folder / f"Pulumi.{stack}.yaml").write_text("".join(kept))

    def use(self, project: Path) -> None:
        """Use the program in this folder: this clone or another version of it.

        The program runs from its own folder; only the project file and the stack files are copies.
        """
        description = (project / "Pulumi.yaml").read_text()
        main, environment = f"main: {_quoted(project)}", f"virtualenv: {_quoted(ROOT / '.venv')}"
        packages = sorted(path.name.removeprefix("pulumi-resource-") for path in PLUGINS.iterdir())
        plugins = "".join(f"\n    - name: {name}\n      path: {_quoted(self.plugins)}" for name in packages)
        (self.folder / "Pulumi.yaml").write_text(
            f"{description.replace('virtualenv: .venv', environment)}{main}\nplugins:\n  providers:{plugins}\n"
        )

    def check(self) -> None:
        """Raise `NotOursError` unless the folder belongs to a rehearsal."""
        if not (self.folder / _MARKER).exists():
            raise NotOursError(
                f"{self.folder} is not the folder of a rehearsal; nothing was changed. Move it or choose another"
            )

    def environment(self) -> dict[str, str]:
        """Return the environment of every process of the rehearsal."""
        users = ("PULUMI_", "GOOGLE_", "KUBECONFIG")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(users)}
        tools = [str(PROGRAMS), str(ROOT / ".tools" / "bin"), os.environ.get("PATH", os.defpath)]
        tools = tools if self.plugins == PLUGINS else [str(self.plugins), *tools]
        if self.control_plane is not None:
            kubectl, kubeconfig = self.control_plane
            tools.insert(0, str(kubectl))
            inherited["KUBECONFIG"] = str(kubeconfig)
        return inherited | {
            FOLDER: str(self.folder),
            "PATH": os.pathsep.join(tools),
            "PULUMI_BACKEND_URL": self.backend,
            # Not that of the stack file's own state, and not empty: the program refuses that for a cloud.
            "PULUMI_CONFIG_PASSPHRASE": "rehearsal",
            # The engine then has --event-log, as Pulumi's Automation API uses it; see tools.recovery.
            "PULUMI_DEBUG_COMMANDS": "true",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # A missing plugin is an error, because the real one would need credentials.
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }


def in_parallel(
    items: Sequence[T],
    workspaces: Sequence[Workspace],
    work: Callable[[T, Workspace], R],
    on_done: Callable[[T, R], None],
) -> list[R]:
    """Run `work` for each item, one at a time in each workspace; return the results in the order of the items.

    `on_done` gets each result when it is there. After an exception, items that wait are not started.
    """
    free: SimpleQueue[Workspace] = SimpleQueue()
    for workspace in workspaces:
        free.put(workspace)

    def one(item: T) -> R:
        workspace = free.get()
        try:
            return work(item, workspace)
        finally:
            free.put(workspace)

    with ThreadPoolExecutor(len(workspaces)) as pool:
        futures = {pool.submit(one, item): item for item in items}
        try:
            for future in as_completed(futures):
                on_done(futures[future], future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]


def of_this_process() -> Workspace:
    """Return the workspace of this process.

    Raises:
        NotOursError: it has none, or its engine uses a backend that is not the rehearsal's.
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
