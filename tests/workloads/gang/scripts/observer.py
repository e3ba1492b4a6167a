"""A job of somebody else: reads all that other jobs have in Ray, its logs and the process table, until it is stopped.

python observer.py MARKER_REVERSED FOLDER: writes where the marker was seen to FOLDER/seen, once FOLDER/stop exists.
"""

import base64
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types

marker, folder = sys.argv[1][::-1].encode(), Path(sys.argv[2])
logs = [Path("/proc/self/fd/1").resolve().parent]


def forms() -> set[bytes]:
    found = {marker, marker.hex().encode(), marker.hex().upper().encode()}
    for before in (b"", b"x", b"xy"):
        # Whole groups of three bytes, whatever is around them.
        text = base64.b64encode(before + marker)
        found.add(text[4 : len(text) // 4 * 4 - 4])
    return found


def everything(store: GcsClient) -> Iterator[tuple[str, bytes]]:
    for space in (None, b"job", b"dashboard", b"workflow", b"fun"):
        for key in store.internal_kv_keys(b"", space):
            yield f"the key-value store: {key!r}", key + (store.internal_kv_get(key, space) or b"")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield "the process table", (process / "cmdline").read_bytes()
    for place in logs:
        for file in place.rglob("*"):
            with suppress(OSError):
                if file.is_file() and file.stat().st_size < 10**7:
                    yield f"a log: {file.name}", file.read_bytes()


seen, rounds, sealed = set[str](), 0, 0
searched = forms()
(folder / "watches").touch()
while True:
    last = (folder / "stop").exists()
    left = set[str]()
    for where, data in everything(GcsClient(os.environ["RAY_ADDRESS"])):
        if "store: b'gcs://rdma-ray-sealed-" in where:
            left.add(where)
        if any(form in data for form in searched):
            seen.add(where)
    sealed, rounds = sealed + bool(left), rounds + 1
    if last:
        break
    time.sleep(0.02)
(folder / "seen.part").write_text("\n".join([f"{rounds} rounds, sealed in {sealed}", *sorted(seen), *sorted(left)]))
(folder / "seen.part").rename(folder / "seen")
