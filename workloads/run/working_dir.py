"""Upload of the user's working directory: its files, its limits, and the archive.

Ray packs a folder itself (ray._private.runtime_env.packaging, 2.60), but it opens named pipes, follows links out of the
folder and to a parent folder some 40 levels deep, fails at a file that it cannot read, and uploads private keys.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path

from workloads.exits import WorkloadError
from workloads.run.folder import HEAD, KEYS, LARGEST, Walk, holds_home, holds_secret, too_large
from workloads.run.folder import WorkingFolder as WorkingFolder
from workloads.unlinked import CHANGED, NotSameError, open_folder, open_regular

CHUNK = 2**20  # bytes that are read at once
EVERYWHERE = "local://"
"""Scheme of Ray's URI of a folder that all nodes have."""
_REMOTE = re.compile(r"(?:https?|s3|gs|azure|abfss|file)://[^\s?#]+\.(?:zip|tar\.gz|tgz|tar\.xz)(?:\?\S*)?")
"""URIs that Ray downloads (ray: _private/runtime_env/protocol.py and packaging.py, 2.60)."""


def uri(text: str, *, everywhere: bool) -> str:
    """Return the URI of a working directory that is not uploaded, "" for a folder to upload.

    `everywhere` is whether all nodes have the folder. WorkloadError for a URI that Ray does not read.
    """
    if "://" in text:
        if not _REMOTE.fullmatch(text):
            raise WorkloadError(
                f"--working-dir {text}: Ray downloads a .zip, .tar.gz or .tar.xz file from https, s3, gs, azure,"
                " abfss or file (a path of the nodes): name such a file, or a folder"
            )
        return text
    return f"{EVERYWHERE}{Path(text).absolute()}" if everywhere else ""


def read(path: Path, *, follow_links: bool = False) -> WorkingFolder:
    """Return the files of a working directory. WorkloadError if it is not a folder, or too large.

    `.gitignore` and `.rayignore` of the folder and its subfolders apply, and the .gitignore files above it in the same
    git repository. Links within the folder are followed.

    Args:
        follow_links: Whether links out of the folder are also followed, except to SYSTEM and credentials.
    """
    root = Path(os.path.realpath(path))
    if not root.is_dir():
        raise WorkloadError(f"--working-dir {path}: {'not a folder' if root.exists() else 'no such folder'}")
    if holds_home(str(root)):
        raise WorkloadError(
            f"--working-dir {root}: this is your home folder or above it, with credentials and more: change to"
            " your project's folder, or choose it with --working-dir"
        )
    folder = WorkingFolder(root)
    Walk(folder, follow_links).all()
    folder.files.sort(key=attrgetter("name"))
    if folder.size > LARGEST or folder.has_too_many:
        raise WorkloadError(too_large(folder))
    return folder


def pack(folder: WorkingFolder) -> bytes:
    """Return a zip archive that depends on the files' names, contents and modes only.

    It has the files that `read` saw, each with as many bytes as it saw. WorkloadError if one was replaced, became
    shorter or is no longer readable, or the archive is too large.
    """
    archive = io.BytesIO()
    parent = ""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as opened, ExitStack() as parents:
        for path, name, state in folder.files:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (state.st_mode & 0xFFFF) << 16  # Ray restores it
            if name.endswith("/"):
                opened.writestr(entry, b"")
                continue
            above, _, own = path.rpartition("/")
            try:
                if above != parent:
                    parents.close()
                    descriptor, parent = parents.enter_context(open_folder(above)), above
                with open_regular(own, descriptor) as (file, now), opened.open(entry, "w", force_zip64=True) as target:
                    if not os.path.samestat(now, state):
                        raise NotSameError(CHANGED)
                    if now.st_ctime_ns != state.st_ctime_ns:
                        folder.changed.append(name)
                    for chunk in _chunks(file, state.st_size):
                        target.write(chunk)
            except OSError as error:
                raise WorkloadError(
                    f"cannot read {path}: {error.strerror}: run the command again, or exclude it in .rayignore"
                ) from None
    return archive.getvalue()


def _chunks(file: int, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file. NotSameError if it has fewer, or now looks like credentials."""
    left = size
    while left:
        chunk = os.read(file, min(left, CHUNK))
        if not chunk:
            raise NotSameError(CHANGED)
        if left == size and holds_secret(chunk[:HEAD]):
            raise NotSameError(KEYS)
        left -= len(chunk)
        yield chunk
