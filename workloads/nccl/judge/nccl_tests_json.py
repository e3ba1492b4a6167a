"""nccl-tests' JSON report (`-J FILE`), version 1. Pure.

Keys: NVIDIA/nccl-tests@a0b82b22 (v2.19.6, 2026-07-09), src/util.cu. It writes true and false as strings, a number that
is none as "nan", and `nwrong` as null where data was not checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from workloads.nccl.judge.measurement import Figures, MeasuredRow, Measurement, Run, UnreadableError
from workloads.nccl.judge.nccl_tests import AVERAGE_OF, OPERATIONS, UNNAMED

_PROGRAM = re.compile(r"([a-z_]+?)_perf(?:_mpi)?$")


def is_report(document: Mapping[str, Any]) -> bool:
    return "nccl_version" in document and "config" in document


def read(document: Mapping[str, Any], op: str | None = None) -> Measurement:
    """The measurement. `op` names the operation where the program's name does not.

    Raises `UnreadableError` where a key is missing or holds something else.
    """
    try:
        return Measurement("nccl-tests JSON", (_run(document, op),), errors=tuple(document.get("errors") or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"nccl-tests' JSON has another form than its version 1: {type(error).__name__} {error}"
        ) from error


def _run(document: Mapping[str, Any], op: str | None) -> Run:
    devices = sorted(document["config"].get("devices", ()), key=lambda device: int(device["rank"]))
    found = _PROGRAM.search(str((document.get("args") or [""])[0]))
    name = OPERATIONS.get(found[1]) if found else None
    average = AVERAGE_OF.search(" ".join(map(str, document.get("args") or ())))
    bounds = document.get("out_of_bounds")
    groups = [device.get("group", 0) for device in devices]
    return Run(
        rows=tuple(_row(row, name or op or UNNAMED) for row in document.get("results", ())),
        ranks=groups.count(groups[0]) if groups else None,
        hosts=tuple(device["hostname"] for device in devices),
        gpus=frozenset(device["device_info"] for device in devices if device.get("device_info")),
        groups=len(set(groups)) or 1,
        ended=bounds is not None,
        stated_wrong=None if bounds is None else max(int(bounds["count"]), int(bounds.get("okay") == "false")),
        algorithm=_algorithm(document.get("env") or ()),
        average=int(average[1]) if average else None,
    )


def _row(row: Mapping[str, Any], op: str) -> MeasuredRow:
    return MeasuredRow(
        op, int(row["size"]), str(row["type"]), _figures(row.get("out_of_place")), _figures(row.get("in_place"))
    )


def _figures(column: Mapping[str, Any] | None) -> Figures | None:
    if column is None:
        return None
    if "cpu_time" in column:
        raise UnreadableError("the time is CPU time (nccl-tests -C): measure without -C")
    wrong = column["nwrong"]
    time_us, algbw, busbw = (float(column[key]) for key in ("time", "alg_bw", "bus_bw"))
    if not all(map(math.isfinite, (time_us, algbw, busbw))) or time_us <= 0:
        raise UnreadableError(f"a row's figures are no figures: {dict(column)}")
    return Figures(time_us, algbw, busbw, None if wrong is None else int(float(wrong)))


def _algorithm(environment: list[str] | tuple[str, ...]) -> str | None:
    """NCCL_ALGO where it names one algorithm for everything."""
    for line in environment:
        name, _, value = line.partition("=")
        if name == "NCCL_ALGO" and value.isalpha():
            return value.lower()
    return None
