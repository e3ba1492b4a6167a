"""torch.compile without a silent way back to eager: what was compiled, and an error where it is not what was asked for.

Dynamo runs in eager what it cannot compile, and says so in one warning at most: torchvision's blocks, compiled one by
one, pass its recompile limit at the ninth, because each block has another stochastic depth (seen in torch 2.15.0).
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
from workloads.train.convnext.model import ConvNeXt
from workloads.train.convnext.settings import Settings


def backend(settings: Settings, device: torch.device) -> tuple[str, str]:
    """(backend, why it) by the rule of "auto": inductor on a GPU, or where it can build C++ code; else aot_eager."""
    if settings.backend != "auto":
        return settings.backend, "asked for"
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
    """Compiles a model in place as the settings say, and keeps the books. One at a time: Dynamo counts by process."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings = settings
        self.backend, self.reason = backend(settings, device)
        self._counted, self._broken = _counts(), _broken()

    def apply(self, model: ConvNeXt) -> None:
        """Compile lazily: the first step does it. fullgraph makes every graph break and passed limit an error."""
        # Read when a graph is split, so it stays for the process.
        cast(Any, torch._dynamo.config).optimize_ddp = self.settings.optimize_ddp
        options: dict[str, Any] = {"fullgraph": True, "dynamic": False, "backend": self.backend}
        if self.backend == "inductor" and self.settings.compile_mode != "default":
            options["mode"] = self.settings.compile_mode
        if self.settings.compile == "model":
            model.compile(**options)
        elif self.settings.compile == "blocks":
            # The inner layers only: a block's own forward has its stochastic depth, and so a graph for each block.
            for block in model.blocks():
                block.block.compile(**options)

    def report(self) -> dict[str, Any]:
        """Graphs that Dynamo captured, parts that they were compiled in (DDP's buckets), graph breaks with reasons."""
        if self.settings.compile == "off":
            return {"way": "off"}
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
        """Raise WorkloadError where compilation was asked for and something ran without it. Call after a step."""
        if self.settings.compile == "off":
            return
        found = self.report()
        if found["graph_breaks"]:
            raise WorkloadError(f"{steps} fell back to eager code: {'; '.join(found['reasons'])}; use --compile off")
        least = 1 if self.settings.compile == "model" else len(self.settings.shape.depths)
        if found["graphs"] < least:
            switched_off = [name for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE") if os.environ.get(name)]
            why = f"{switched_off[0]} is set" if switched_off else "torch.compile left the model as it was"
            raise WorkloadError(
                f"{steps} ran in eager code: {found['graphs']} graphs compiled, at least {least} expected; {why}"
            )


def _counts() -> tuple[int, int]:
    """Graphs and parts since this process began."""
    return counters["stats"]["unique_graphs"], counters["aot_autograd"]["ok"]


def _broken() -> dict[str, int]:
    """Graph breaks by reason since this process began, passed recompile limits among them."""
    return {**counters["graph_break"], **counters["unimplemented"]}
