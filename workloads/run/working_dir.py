"""Upload of the user's working directory: which files it has, its limits, and the archive.

Ray packs a folder itself (ray._private.runtime_env.packaging, 2.60), but it opens named pipes, follows a link to a
parent folder some 40 levels deep, fails at a file that it cannot read, and uploads private keys.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from infra.terminal import printable
from workloads.exits import WorkloadError
from workloads.nccl.evidence.show import counted
from workloads.results import read_bytes

LARGEST = 100 * 2**20
"""Bytes of all files. Ray's job server accepts requests of at most 100 MiB (DASHBOARD_CLIENT_MAX_SIZE, 2.60)."""
MOST_FILES = 50_000
IGNORE_FILES = (".gitignore", ".rayignore")
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
_SECRET = re.compile(
    rb'(?m)^\s*(?:"private_key": ?")?-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----'
    rb'|"ray"\s*:\s*\{[^{}]{0,4096}"token"\s*:\s*"[^"\[]'  # a stack's outputs; the engine masks a secret as [secret]
)
HEAD = 2**16  # bytes that are searched for a private key or Ray's token
LARGEST_RULES = 2**20  # bytes of an ignore file
EVERYWHERE = "local://"
"""Scheme of Ray's URI of a folder that all nodes have."""
_REMOTE = re.compile(r"(?:https?|s3|gs|azure|abfss|file)://[^\s?#]+\.(?:zip|tar\.gz|tgz|tar\.xz)(?:\?\S*)?")
"""URIs that Ray downloads (ray: _private/runtime_env/protocol.py and packaging.py, 2.60)."""
KEYS = "looks like credentials"
UNREADABLE, SPECIAL, LOOPS, NAMES = "not readable", "no regular file", "a link to a folder above it", "not UTF-8"


@dataclass
class Folder:
    """Files of a working directory.

    Args:
        files: (path on this machine, name in the archive). A name that ends with `/` is an empty folder.
        left_out: Names by reason, without what an ignore file or NEVER excludes.
    """

    path: Path
    files: list[tuple[Path, str]] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, reason: str, name: str) -> None:
        self.left_out.setdefault(reason, []).append(name)

    @property
    def size(self) -> int:
        return self.sizes.total()

    def __str__(self) -> str:
        return f"{counted(len(self.files), 'file')}, {mebibytes(self.size)} of {self.path}"

    def notes(self) -> Iterator[str]:
        """Yield a line for each reason to leave out files."""
        for reason, names in self.left_out.items():
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            yield f"not uploaded, {reason}: {', '.join(map(printable, sorted(names)[:5]))}{more}"


def mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{-(-size // 2**10)} KiB"


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


def read(path: Path) -> Folder:
    """Return the files of a working directory. WorkloadError if it is none, or too large.

    `.gitignore` and `.rayignore` of the folder and its subfolders apply, and those of the folders above it in the same
    git repository. Links are followed.
    """
    root = Path(os.path.realpath(path))
    if not root.is_dir():
        raise WorkloadError(f"--working-dir {path}: {'not a folder' if root.exists() else 'no such folder'}")
    home = Path.home()
    if root == home or root in home.parents:
        raise WorkloadError(
            f"--working-dir {root}: this is your home folder or above it, with credentials and much else: change to"
            " your project's folder, or name it with --working-dir"
        )
    found = Folder(root)
    _walk(found)
    found.files.sort(key=itemgetter(1))
    if found.size > LARGEST or len(found.files) > MOST_FILES:
        raise WorkloadError(_too_large(found))
    return found


def pack(folder: Folder) -> bytes:
    """Return a zip archive that depends on the files' names, contents and modes only.

    WorkloadError if a file is no longer readable, or the archive is too large.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as opened:
        for path, name in folder.files:
            try:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (path.stat().st_mode & 0xFFFF) << 16  # Ray restores it
                with opened.open(entry, "w", force_zip64=True) as target:
                    if not name.endswith("/"):
                        with path.open("rb") as source:
                            shutil.copyfileobj(source, target)
            except OSError as error:
                raise WorkloadError(f"cannot read {path}: {error.strerror}") from None
    return archive.getvalue()


def _walk(found: Folder) -> None:
    """Add the files of a folder, up to a few more than MOST_FILES."""
    # Folders to read: path, name in the archive, ignore files, and the states of the folders above.
    todo: list[tuple[Path, str, list[Rule], list[os.stat_result]]] = [(found.path, "", _above(found.path), [])]
    while todo and len(found.files) <= MOST_FILES:
        folder, prefix, rules, above = todo.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            above = [*above, folder.stat()]
        except OSError:
            found.leave_out(UNREADABLE, prefix)
            continue
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names and prefix:
            continue
        rules = [*rules, *(Rule(prefix, folder / name) for name in IGNORE_FILES if name in names)]
        kept = [entry for entry in entries if entry.name not in NEVER and not _ignored(prefix, entry, rules)]
        if not kept and prefix:
            found.files.append((folder, prefix))
        for entry in kept:
            name = prefix + entry.name
            if reason := _refused(entry, above):
                found.leave_out(reason, name)
            elif entry.is_dir():
                # The target of a link: a path through many links takes long to resolve.
                path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                todo.append((Path(path), f"{name}/", rules, above))
            else:
                found.files.append((Path(entry.path), name))
                found.sizes[name] = entry.stat().st_size


def _refused(entry: os.DirEntry[str], above: list[os.stat_result]) -> str | None:
    """Return why a file or folder is not uploaded; None if it is."""
    try:
        entry.name.encode()
        state = entry.stat()
        names = {entry.name, Path(os.path.realpath(entry.path)).name if entry.is_symlink() else entry.name}
        if stat.S_ISDIR(state.st_mode):
            if entry.is_symlink() and any(os.path.samestat(state, folder) for folder in above):
                return LOOPS
            return KEYS if names & SECRET_FOLDERS else None
        if any(_matches(name, SECRET_FILES) and not _matches(name, TEMPLATES) for name in names):
            return KEYS
        if not stat.S_ISREG(state.st_mode):
            return SPECIAL
        with Path(entry.path).open("rb") as file:
            return KEYS if _SECRET.search(file.read(HEAD)) else None
    except UnicodeEncodeError:
        return NAMES
    except OSError:
        return UNREADABLE  # or a link to nothing, or to itself


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Rule:
    """Patterns of an ignore file that applies to the names below `prefix`. A pattern that is none matches nothing."""

    def __init__(self, prefix: str, file: Path, below: str = "") -> None:
        self.prefix, self.below = prefix, below
        self.patterns = []
        data = read_bytes(file, LARGEST_RULES) if file.is_file() else b""
        for line in data.decode(errors="replace").splitlines():
            with suppress(IndexError, ValueError, re.error):
                self.patterns.append(GitIgnoreSpecPattern(line))

    def decide(self, name: str) -> bool | None:
        """Return whether the file excludes this name in the archive; None if no pattern matches. The last counts."""
        name = self.below + name.removeprefix(self.prefix)
        return next((one.include for one in reversed(self.patterns) if one.regex and one.regex.match(name)), None)


def _above(root: Path) -> list[Rule]:
    """Return the ignore files above a folder, from the top of its git repository on; none outside of a repository."""
    found: list[Rule] = []
    folder, below = root, ""
    while not (folder / ".git").exists():
        if folder == folder.parent:
            return []
        below = f"{folder.name}/{below}"
        folder = folder.parent
        if (folder / ".gitignore").is_file():
            found.insert(0, Rule("", folder / ".gitignore", below))
    return found


def _ignored(prefix: str, entry: os.DirEntry[str], rules: list[Rule]) -> bool:
    """Return whether the ignore files exclude an entry: the innermost that mentions it decides, as in git."""
    try:
        name = prefix + entry.name + "/" * entry.is_dir()
    except OSError:
        name = prefix + entry.name
    return next((answer for rule in reversed(rules) if (answer := rule.decide(name)) is not None), False)


def _too_large(found: Folder) -> str:
    """Return the error of a folder beyond the limits, with its five largest parts."""
    many = len(found.files) > MOST_FILES
    counted = Counter(dict.fromkeys(found.sizes, 1)) if many else found.sizes
    parts = _largest(counted)
    what = f"more than {MOST_FILES} files" if many else mebibytes(found.size)
    shown = "\n".join(f"  {f'{size} files' if many else mebibytes(size)}  {name}" for name, size in parts)
    return (
        f"--working-dir {found.path}: {what}, and the cluster's job server accepts {mebibytes(LARGEST)} and this"
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
