"""Sharded checkpoints in the format of torch.distributed.checkpoint (DCP), written while training continues.

Data parallel ranks hold the same tensors, and DCP lets each write an equal share of them into its own file; of a
DTensor (FSDP2) each rank writes its shard. Either way a checkpoint has whole tensors by name, and is read by any number
of ranks. Everything but tensors is in `state.pt`, a state whose tensors have no data. A checkpoint is data and must not
be able to run code: DCP reads everything but tensors with pickle (DefaultLoadPlanner.load_bytes,
FileSystemReader.read_metadata; pytorch: torch/distributed/checkpoint, 2.15.0), so it gets tensors only, and `Metadata`
reads its metadata. DCP's own writers need fsspec for object stores; images have pyarrow, which Ray Train requires.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from workloads.exits import WorkloadError, last_line
from workloads.train.checkpoints import Card, DamagedError, FileDigest, RunFolder, reason

STATE, METADATA = "state.pt", ".metadata"
FLAT: Any = {"flatten_state_dict": False, "flatten_sharded_tensors": False}
# DCP prints it for every load by one process, which is what a load is here.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")


class FolderStorage(FileSystemBase):
    """Files of a folder, for DCP. Hashes what it writes, and verifies what it reads by `card`."""

    def __init__(self, folder: RunFolder, label: str, card: Card | None = None, first: bool = True) -> None:
        self.folder, self.label, self.card, self.first = folder, label, card, first
        self.files: dict[str, FileDigest] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if mode == "rb":
            assert self.card is not None
            yield io.BytesIO(self.folder.verified(self.label, self.card, path))
            return
        with self.folder.create(f"{self.label}/{path}") as stream:
            yield stream
        self.files[path] = stream.entry

    def mkdir(self, path: Any) -> None:
        """Rank 0 deletes an older checkpoint of this name. DCP calls it before any rank writes."""
        del path
        if self.first and self.folder.exists(self.label):
            self.folder.delete(self.label)

    def concat_path(self, path: Any, suffix: str) -> str:
        del path
        return suffix

    def init_path(self, path: Any) -> str:
        return str(path)

    def rename(self, path: Any, new_path: Any) -> None:
        self.folder.move(f"{self.label}/{path}", f"{self.label}/{new_path}")
        self.files[new_path] = self.files.pop(path)

    def exists(self, path: Any) -> bool:
        del path
        return False  # the folder is new

    def rm_file(self, path: Any) -> None:
        self.folder.remove(f"{self.label}/{path}")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return bool(checkpoint_id)


class Metadata(pickle.Unpickler):
    """Reader of DCP's metadata that creates its classes and nothing else (Python docs, "Restricting Globals")."""

    ALLOWED = (
        *(
            ("torch.distributed.checkpoint.metadata", name)
            for name in (
                *("Metadata", "MetadataIndex", "StorageMeta", "TensorStorageMetadata", "TensorProperties"),
                *("ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"),
            )
        ),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.ALLOWED or (module == "torch" and isinstance(getattr(torch, name, 0), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of the metadata of a checkpoint")


class ShardReader(FileSystemReader):
    """DCP's reader, on a folder."""

    def __init__(self, storage: FolderStorage) -> None:
        super().__init__(storage.label)
        self.fs = storage  # type: ignore[assignment]  # typed as what the constructor chose
        with storage.create_stream(METADATA, "rb") as stream:
            self.metadata = Metadata(stream).load()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return self.metadata


def save(
    folder: RunFolder,
    label: str,
    state: dict[str, Any],
    keep: int,
    group: dist.ProcessGroup | None = None,
    damaged: Collection[str] = (),
) -> None:
    """Write a checkpoint. Every rank of the group calls it; rank 0's state must be whole. OSError: the storage's."""
    rank = dist.get_rank(group) if group is not None else 0
    storage = FolderStorage(folder, label, first=rank == 0)
    # `create` waits for the disk; nothing is on a GPU any more.
    writer = FileSystemWriter(label, sync_files=False, per_thread_copy_ahead=0)
    # A text as path: DCP's metadata has it.
    writer.fs, writer.path = storage, label  # type: ignore[assignment]  # typed as what the constructor chose
    leaves, structure = tree_flatten_with_path(state)
    tensors = {keystr(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}
    try:
        state_dict_saver.save(
            tensors,
            storage_writer=writer,
            planner=DefaultSavePlanner(**FLAT),
            process_group=group,
            no_dist=group is None,
        )
    except CheckpointException as error:
        raise _cause(error) from error
    written = [storage.files]
    if group is not None:
        written *= group.size()
        dist.all_gather_object(written, storage.files, group)
    if rank == 0:
        rest = io.BytesIO()
        empty = [_empty(leaf, "meta") if isinstance(leaf, torch.Tensor) else leaf for _, leaf in leaves]
        torch.save(tree_unflatten(empty, structure), rest)
        files = {name: entry for part in written for name, entry in part.items()}
        files[STATE] = folder.write(f"{label}/{STATE}", rest.getvalue())
        folder.finish(label, files, keep, set(damaged) - {label})


def load(folder: RunFolder, label: str) -> dict[str, Any]:
    """Return a checkpoint's state, in main memory. Reads and verifies each file once. Raises DamagedError."""
    manifest = folder.card(label)
    try:
        rest = io.BytesIO(folder.verified(label, manifest, STATE))
        found, structure = tree_flatten_with_path(torch.load(rest, weights_only=True))
        leaves = [
            (keystr(path), _empty(leaf, "cpu") if isinstance(leaf, torch.Tensor) else leaf) for path, leaf in found
        ]
        tensors = {name: leaf for name, leaf in leaves if isinstance(leaf, torch.Tensor)}
        reader = ShardReader(FolderStorage(folder, label, manifest))
        state_dict_loader.load(tensors, storage_reader=reader, planner=DefaultLoadPlanner(**FLAT), no_dist=True)
    except DamagedError:
        raise
    except CheckpointException as error:
        raise DamagedError(last_line(_cause(error))) from error
    except Exception as error:  # written by another version of torch, perhaps: an older checkpoint may still do
        raise DamagedError(f"it cannot be read: {last_line(error)}") from error
    state: dict[str, Any] = tree_unflatten([leaf for _, leaf in leaves], structure)
    return state


def _empty(leaf: torch.Tensor, device: str) -> torch.Tensor:
    """Return a tensor without content, as large as the whole of a DTensor."""
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=device)


def _cause(error: CheckpointException) -> Exception:
    """Return what broke on the first rank that failed. CheckpointException is no Exception."""
    cause, _ = next(iter(error.failures.values()))
    return cause if isinstance(cause, Exception) else RuntimeError(last_line(cause))


@dataclass(frozen=True)
class Found:
    """Checkpoint that a run continues from; `state` is None at its start. `skipped`: newer ones, with the reasons."""

    state: dict[str, Any] | None = None
    skipped: dict[str, str] = field(default_factory=dict)


def newest(folder: RunFolder, gather: Callable[[Any], list[Any]]) -> Found:
    """Load the newest checkpoint that every rank verifies. Collective: `gather` returns every rank's value.

    WorkloadError, on every rank, if there are complete checkpoints and none can be used.
    """
    skipped: dict[str, str] = {}
    started, complete = gather((folder.started(), folder.checkpoints()))[0]
    for label in reversed(started):
        state, why = None, ""
        try:
            state = load(folder, label)
        except DamagedError as error:
            why = str(error)
        reasons = {rank: text for rank, text in enumerate(gather(why)) if text}
        if not reasons:
            return Found(state, skipped)
        rank, why = next(iter(reasons.items()))
        skipped[label] = why if rank == 0 else f"on rank {rank}, {why}"
    if complete:
        each = "; ".join(f"{label}: {why}" for label, why in skipped.items())
        raise WorkloadError(
            f"no checkpoint in {folder.shown} can be used ({each}): choose a folder that all nodes share"
            " with --checkpoint-dir, restore one of them, or start a run with another name"
        )
    return Found(None, skipped)


class Writer:
    """Writes one checkpoint at a time on a thread. `error` is the message of a failed write.

    Args:
        group: Process group of all ranks for this thread alone, with a backend for the CPU; None: a rank alone.
        damaged: Checkpoints that `keep` does not count.
    """

    def __init__(
        self, folder: RunFolder, run: str, keep: int, group: dist.ProcessGroup | None, damaged: Collection[str]
    ) -> None:
        self.folder, self.run, self.keep, self.group, self.damaged = folder, run, keep, group, {*damaged}
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None
        self.error: str | None = None

    def save(self, label: str, state: dict[str, Any]) -> None:
        """Start to write, once the previous checkpoint is complete. Every rank calls it."""
        self.wait()
        self.pending = self.pool.submit(self._save, label, state)

    def wait(self) -> None:
        """Wait until the current write is complete."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def good(self) -> str | None:
        """Return the newest checkpoint that is not known to be damaged."""
        return next((label for label in reversed(self.folder.checkpoints()) if label not in self.damaged), None)

    def _save(self, label: str, state: dict[str, Any]) -> None:
        try:
            save(self.folder, label, state, self.keep, self.group, self.damaged)
            self.damaged.discard(label)
        except OSError as error:
            self.error = f"checkpoint {label} could not be written to {self.folder.shown}: {reason(error)}; "
            try:
                if self.group is None or dist.get_rank(self.group) == 0:
                    self.folder.discard(label)
                good = self.good()
            except OSError:
                good = None
            self.error += (
                f"the last good one is {good}: free space or repair it, then --resume {self.run}"
                if good
                else "there was none before it"
            )
