"""Options models of the training commands."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from workloads.options import option


class RunOptions(BaseModel, frozen=True, extra="forbid"):
    """What every training command accepts about its run."""

    workers: int | None = Field(None, ge=1, description="Workers. [default: one per GPU or CPU slot]")
    name: str | None = Field(None, description="Name of a new run. [default: by date and time]")
    resume: Annotated[str | None, option(metavar="NAME")] = Field(None, description="Resume the run of this name.")
    checkpoint_dir: str | None = Field(
        None, description="Path or URI that every node sees. [default: the stack's storage]"
    )
    max_run: float | None = Field(
        None, ge=0.01, description="Hours until the machines are reclaimed: stop with a checkpoint shortly before."
    )
    wait: float = Field(1800, ge=1, description="Seconds to wait for the workers.")
    inject_fault: Annotated[str | None, option(show=False)] = Field(None, description="See workloads/train/faults.py.")

    @property
    def max_run_s(self) -> float | None:
        """Seconds until the machines are reclaimed."""
        return None if self.max_run is None else 3600 * self.max_run


class DigitsOptions(RunOptions):
    """Options of `train digits`."""

    epochs: int = Field(8, ge=1, description="Epochs in all, those of a resumed run included.")
    min_accuracy: float = Field(0.97, ge=0, le=1, description="Exit with 2 below this test accuracy.")
