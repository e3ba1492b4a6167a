"""torch.compile without a silent fallback to eager: reports what was compiled, and fails if something was not.

Dynamo runs what it cannot compile in eager mode, with one warning at most. For example, torchvision's blocks, compiled
one by one, exceed its recompile limit at the ninth, because each has another stochastic depth (torch 2.15.0).
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any, cast

import torch
from torch._dynamo.utils import counters

from workloads.exits import WorkloadError
from workloads.train.convnext.flops import SIZES
from workloads.train.convnext.model import ConvNeXt
from workloads.train.options import ConvNeXtSettings


def backend(settings: ConvNeXtSettings, device: torch.device) -> tuple[str, str]:
    """Return the backend and why: "auto" is inductor on a GPU or with a C++ compiler, else aot_eager."""
    if settings.backend != "auto":
        return settings.backend, "requested"
    if device.type == "cuda":
        return "inductor", "a GPU"
    compiler = next(
        (found for name in (os.environ.get("CXX"), "g++", "clang++") if name and (found := shutil.which(name))), None
    )
    if compiler is None:
        return "aot_eager", "no C++ compiler for inductor"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "aot_eager", "no Python.h for inductor"
    return "inductor", f"a C++ compiler, {Path(compiler).name}"


class Compilation:
    """Compiles a model in place, and counts graphs. One per process, because Dynamo counts by process."""

    def __init__(self, settings: ConvNeXtSettings, device: torch.device) -> None:
        self.settings = settings
        self.backend, self.reason = backend(settings, device)
        self._counted, self._broken = _counts(), _broken()

    def apply(self, model: ConvNeXt) -> None:
        """Compile at the first step. fullgraph turns every graph break and exceeded limit into an error."""
        # Dynamo reads it whenever it splits a graph, so it stays set for the process.
        cast(Any, torch._dynamo.config).optimize_ddp = self.settings.optimize_ddp
        options: dict[str, Any] = {"fullgraph": True, "dynamic": False, "backend": self.backend}
        if self.backend == "inductor" and self.settings.compile_mode != "default":
            options["mode"] = self.settings.compile_mode
        if self.settings.compile == "model":
            model.compile(**options)
        elif self.settings.compile == "blocks":
            # The inner layers only: a block's own forward has its own stochastic depth, and so its own graph.
            for block in model.blocks():
                block.block.compile(**options)

    def report(self) -> dict[str, Any]:
        """Return the captured graphs, the parts that they were compiled in (DDP's buckets), and graph breaks."""
        graphs, parts = (now - then for now, then in zip(_counts(), self._counted, strict=True))
        broken = {text: count - self._broken.get(text, 0) for text, count in _broken().items()}
        return {
            "way": self.settings.compile,
            "backend": self.backend,
            "backend_reason": self.reason,
            "mode": self.settings.compile_mode,
            "optimize_ddp": self.settings.optimize_ddp,
            "graphs": graphs,
            "parts": parts,
            "graph_breaks": sum(broken.values()),
            "reasons": [text.splitlines()[0] for text, count in broken.items() if count],
        }

    def check(self, steps: str = "the run") -> None:
        """Raise WorkloadError if something ran without the requested compilation. Call it after a step."""
        found = self.report()
        if found["graph_breaks"]:
            raise WorkloadError(f"{steps} fell back to eager code: {'; '.join(found['reasons'])}; use compile=off")
        least = 1 if self.settings.compile == "model" else len(SIZES[self.settings.size].depths)
        if found["graphs"] < least:
            switched_off = [name for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE") if os.environ.get(name)]
            why = f"{switched_off[0]} is set" if switched_off else "torch.compile left the model as it was"
            raise WorkloadError(
                f"{steps} ran in eager code: {found['graphs']} graphs compiled, at least {least} expected; {why}"
            )


def _counts() -> tuple[int, int]:
    """Return graphs and parts since the start of this process."""
    return counters["stats"]["unique_graphs"], counters["aot_autograd"]["ok"]


def _broken() -> dict[str, int]:
    """Return graph breaks by reason since the start of this process, exceeded recompile limits included."""
    return {**counters["graph_break"], **counters["unimplemented"]}
