"""Files of a folder whose content may be unknown, such as a clone of a repository: which may leave this machine.

Files outside the folder may not, unless the user allows it, and neither may files that look like credentials. The
folder may change while it is read. A hard link looks like its file; a clone has none to files outside it.
"""

from __future__ import annotations

import fnmatch
import ntpath
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from infra.terminal import printable
from workloads.evidence.facts import counted
from workloads.run.ignore import IGNORE_FILES, LARGEST_RULES, Ignored, Rules, above
from workloads.unlinked import NotSameError, open_folder, open_regular

LARGEST = 100 * 2**20
"""Bytes of all files. Ray's job server accepts requests of at most 100 MiB (DASHBOARD_CLIENT_MAX_SIZE, 2.60)."""
MOST_FILES = 50_000
DEEPEST, LONGEST_NAME = 100, 3000
"""Folders above a file, and bytes of its path: a node unpacks it below Ray's folder, and Linux accepts 4,095 bytes."""
SYSTEM = ("/proc", "/sys", "/dev", "/run")
"""Folders of a machine's state, with the environment of every process and the credentials of services."""
NEVER = frozenset((".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".ipynb_checkpoints"))
"""Names of files and folders; a folder with a pyvenv.cfg is a virtual environment by any name."""
SECRET_FILES = (
    *(".env", ".env.*", "*.env", ".envrc", "id_rsa", "id_dsa", "id_ecdsa*", "id_ed25519*", "*.key", "*.ppk", "*.p12"),
    *("*.pfx", "*.jks", "*.keystore", "*.kdbx", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd"),
    *(".git-credentials", ".vault-token", "kubeconfig", "*.kubeconfig", "kubeconfig.*", "*.tfstate", "credentials"),
    *("credentials.json", "application_default_credentials.json"),
)
SECRET_FOLDERS = frozenset((".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure"))
"""Names that hold credentials by convention."""
TEMPLATES = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")
_SECRET_NAME, _TEMPLATE = (
    re.compile("|".join(map(fnmatch.translate, patterns))).match for patterns in (SECRET_FILES, TEMPLATES)
)
_SECRET = re.compile(
    rb'(?m)(?:^(?:\xef\xbb\xbf)?[^\S\n]*|"private_key"\s*:\s*")-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----'
    rb'|"ray"\s*:\s*\{[^{}]{0,4096}"token"\s*:\s*"[^"\[]'  # a stack's outputs; the engine masks a secret as [secret]
)
HEAD = 2**16  # bytes that are searched for a private key or Ray's token
KEYS = "looks like credentials"
UNREADABLE, LOOPS, NAMES = "not readable", "a link to a folder above it", "not UTF-8"
OUTSIDE = "a link out of the folder (--follow-links uploads its target)"
STATE, HOME = f"a link into {', '.join(SYSTEM)}", "a link to your home folder or above it"
HIDDEN = f"a link into {', '.join(sorted(NEVER))}"
DEEP = f"in more than {DEEPEST} folders, or a path of more than {LONGEST_NAME} bytes"
SKIPPED = "Ray does not unpack a name with a backslash or a drive"
"""Reasons to leave out a file (the last one: ray._private.runtime_env.packaging.unzip_package, 2.60)."""


class FolderEntry(NamedTuple):
    """File, or empty folder, of a working directory.

    Args:
        path: Real path: no part of it is a link.
        name: Name in the archive; that of an empty folder ends with `/`.
        state: State when it was seen.
    """

    path: str
    name: str
    state: os.stat_result


@dataclass
class WorkingFolder:
    """Files of a working directory.

    Args:
        size: Bytes of all files.
        left_out: Names by reason, without those that an ignore file or NEVER excludes.
        changed: Names of files that were written to between `read` and `pack`.
        visits: Number of folders that were read, each time that a link leads to one.
    """

    path: Path
    files: list[FolderEntry] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    size: int = 0
    left_out: dict[str, list[str]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    visits: int = 0

    def leave_out(self, reason: str, name: str) -> None:
        self.left_out.setdefault(reason, []).append(name)

    @property
    def has_too_many(self) -> bool:
        return max(len(self.files), self.visits, sum(map(len, self.left_out.values()))) > MOST_FILES

    def __str__(self) -> str:
        changed = f" ({_some(self.changed)} changed meanwhile: as large as before)" if self.changed else ""
        return f"{counted(len(self.files), 'file')}, {mebibytes(self.size)} of {printable(str(self.path))}{changed}"

    def notes(self) -> Iterator[str]:
        """Yield a line for each reason to leave out files."""
        for reason, names in self.left_out.items():
            yield f"not uploaded, {reason}: {_some(names)}"


def mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{-(-size // 2**10)} KiB"


def _some(names: list[str]) -> str:
    """Return the first names in one line."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(line_of(name) for name in sorted(names)[:5]) + more


def line_of(name: str) -> str:
    """Return a name as part of one line."""
    return printable(name).replace("\n", "\\n").replace("\t", "\\t")


class _Level(NamedTuple):
    """Folder to read: its real path, its name in the archive, its ignore files, and the states of those above it."""

    path: str
    prefix: str
    rules: list[Rules]
    above: list[os.stat_result]


class Walk:
    """Finds the files of a folder, up to a few more than MOST_FILES.

    Args:
        follow_links: Whether links out of the folder are also followed.
    """

    def __init__(self, found: WorkingFolder, follow_links: bool) -> None:
        self.found, self.follow_links = found, follow_links
        self.root = str(found.path)
        self.ignored = Ignored(self.root)
        self.todo = [_Level(self.root, "", above(self.root), [])]

    def all(self) -> None:
        while self.todo and not self.found.has_too_many:
            level = self.todo.pop()
            self.found.visits += 1
            try:
                with open_folder(level.path) as folder:
                    self._read(level, folder)
            except OSError:
                self.found.leave_out(UNREADABLE, level.prefix)

    def _read(self, level: _Level, folder: int) -> None:
        """Add the files of an open folder, and its folders to those to read."""
        state = os.fstat(folder)
        # A folder that changes may list a name twice.
        with os.scandir(folder) as listed:
            entries = {entry.name: entry for entry in listed}
        if "pyvenv.cfg" in entries and level.prefix:
            return
        rules = [*level.rules, *self._rules(level, folder, entries)]
        level = _Level(level.path, level.prefix, rules, [*level.above, state])
        kept = [self._keep(level, folder, entries[name]) for name in sorted(entries.keys() - NEVER)]
        if not any(kept) and level.prefix:
            self.found.files.append(FolderEntry(level.path, level.prefix, state))

    def _rules(self, level: _Level, folder: int, entries: Mapping[str, os.DirEntry[str]]) -> Iterator[Rules]:
        """Yield the ignore files of an open folder. A link to one is followed as that to another file."""
        for entry in (entries[name] for name in IGNORE_FILES if name in entries):
            path = f"{level.path}/{entry.name}"
            try:
                if entry.is_symlink():
                    path = os.path.realpath(path)
                    if self._refused(entry.name, path):
                        continue
                with _opened(path, None if entry.is_symlink() else folder) as (file, _):
                    data = os.read(file, LARGEST_RULES + 1)
            except (OSError, RecursionError):
                continue  # it is left out as a file, with the reason
            yield Rules(path, data, level.prefix)

    def _keep(self, level: _Level, folder: int, entry: os.DirEntry[str]) -> bool:
        """Add an entry to the files, to the folders to read or to what is left out, unless an ignore file excludes it.

        Return whether none does.
        """
        name, path = level.prefix + entry.name, f"{level.path}/{entry.name}"
        state, reason, linked = None, None, False
        try:
            linked = entry.is_symlink()
            if linked:
                path = os.path.realpath(path)
                reason = self._refused(entry.name, path)
            if reason is None:
                state = os.lstat(path) if linked else entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(state.st_mode):
                    reason, state = UNREADABLE, None  # a link to itself
        except (OSError, RecursionError):  # a link to nothing, or to a thousand others
            reason = UNREADABLE
        if self.ignored(name + "/" * (state is None or stat.S_ISDIR(state.st_mode)), level.rules):
            return False
        reason = _misnamed(name) or reason
        if reason is None and state is not None:
            if stat.S_ISDIR(state.st_mode):
                reason = self._add_folder(level, path, name, state if linked else None)
            else:
                reason = self._add_file(path, name, None if linked else folder)
        if reason:
            self.found.leave_out(reason, name)
        return True

    def _add_folder(self, level: _Level, path: str, name: str, linked: os.stat_result | None) -> str | None:
        """Add a folder to those to read, or return why not. `linked` is its state if a link leads to it."""
        if linked is not None and any(os.path.samestat(linked, state) for state in level.above):
            return LOOPS
        if name.rpartition("/")[2] in SECRET_FOLDERS:
            return KEYS
        self.todo.append(_Level(path, f"{name}/", level.rules, level.above))
        return None

    def _add_file(self, path: str, name: str, folder: int | None) -> str | None:
        """Add a file, or return why not."""
        if _is_secret(name.rpartition("/")[2]):
            return KEYS
        try:
            with _opened(path, folder) as (file, state):
                # Above the limit, nothing is uploaded.
                if self.found.size <= LARGEST and holds_secret(os.read(file, HEAD)):
                    return KEYS
        except NotSameError as error:
            return error.strerror
        except OSError:
            return UNREADABLE
        self.found.files.append(FolderEntry(path, name, state))
        self.found.sizes[name] = state.st_size
        self.found.size += state.st_size
        return None

    def _refused(self, name: str, path: str) -> str | None:
        """Return why a link of this name, which leads to this real path, is not followed; None if it is."""
        inside = _within(path, self.root)
        if not inside:
            if not self.follow_links:
                return OUTSIDE
            if any(_within(path, folder) for folder in SYSTEM):
                return STATE
            if holds_home(path):
                return HOME
            if _within(self.root, path):
                return LOOPS
        parts = [part.lower() for part in path.removeprefix(self.root * inside).split("/")]
        if not NEVER.isdisjoint(parts):
            return HIDDEN
        if any(part in SECRET_FOLDERS or _is_secret(part) for part in (name, *parts)):
            return KEYS
        return None


def holds_secret(head: bytes) -> bool:
    """Return whether the first bytes of a file have a private key or Ray's token."""
    # Most files have neither word, and a search for a word is faster.
    return (b"PRIVATE KEY" in head or b'"token"' in head) and _SECRET.search(head) is not None


def holds_home(path: str) -> bool:
    """Return whether a real path is the user's home folder, or above it."""
    return _within(os.path.realpath(Path.home()), path)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME(name)) and not _TEMPLATE(name)


def _misnamed(name: str) -> str | None:
    """Return why a node cannot have a file of this name; None if it can."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return NAMES
    if "\\" in name or ntpath.splitdrive(name)[0]:
        return SKIPPED
    return DEEP if size > LONGEST_NAME or name.count("/") > DEEPEST else None


@contextmanager
def _opened(path: str, folder: int | None) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file by its real path. `folder` is its open folder, if there is one."""
    parent, name = os.path.split(path)
    if folder is not None:
        with open_regular(name, folder) as opened:
            yield opened
        return
    with open_folder(parent) as folder, open_regular(name, folder) as opened:
        yield opened


def too_large(folder: WorkingFolder) -> str:
    """Return the error of a folder beyond the limits, with its five largest parts."""
    many = folder.has_too_many
    names = (*folder.sizes, *(name for names in folder.left_out.values() for name in names))
    parts = _largest(Counter(dict.fromkeys(names, 1) if many else folder.sizes))
    what = f"more than {MOST_FILES} files, links or folders" if many else mebibytes(folder.size)
    shown = "\n".join(f"  {f'{size} files' if many else mebibytes(size)}  {line_of(name)}" for name, size in parts)
    return (
        f"--working-dir {folder.path}: {what}, and the cluster's job server accepts {mebibytes(LARGEST)} and this"
        f" command {MOST_FILES} files; the largest parts are\n{shown}\n"
        "exclude what the job does not need: a line for each in .gitignore or .rayignore; put data into the cluster's"
        " storage"
    )


def _largest(sizes: Counter[str]) -> list[tuple[str, int]]:
    """Return the five largest parts: files, or folders none of whose entries has more than half of them."""

    def children(prefix: str) -> Counter[str]:
        found = Counter[str]()
        for name, size in sizes.items():
            if name.startswith(prefix):
                first, slash, _ = name[len(prefix) :].partition("/")
                found[prefix + first + slash] += size
        return found

    parts, whole = children(""), set[str]()
    while folders := [part for part, _ in parts.most_common(5) if part.endswith("/") and part not in whole]:
        inner = children(folders[0])
        if inner.most_common(1)[0][1] * 2 > parts[folders[0]]:
            del parts[folders[0]]
            parts += inner
        else:
            whole.add(folders[0])
    return parts.most_common(5)
