"""Curves of a run for TensorBoard, Weights & Biases and MLflow, and a trace of a few steps. Rank 0 writes both.

TensorBoard's files are written where `--log` asks for them. The other two follow their own environment variables on the
node of rank 0 (`FORWARDED` of them come from the command's), if their package is importable there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from workloads.exits import WorkloadError
from workloads.results.events import emit
from workloads.train.options import TrainRunOptions

FORWARDED = (
    *("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL"),
    *("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"),
)
"""Variables that the command sends to the nodes. None is a secret: Ray keeps a job's variables in its description."""
PROJECT = "rdma-ray"
MOST_WAITING = 1000
CLOSE_S = 30.0

Values = Mapping[str, float]
Logger = tuple[Callable[[int, Values], object], Callable[[], object]]
"""Functions that log the values of a step, and that end the log."""


def forwarded() -> dict[str, str]:
    """Return the command's variables for the nodes. WorkloadError if one has a password."""
    variables = {name: os.environ[name] for name in FORWARDED if os.environ.get(name)}
    for name, value in variables.items():
        if "://" in value and "@" in urlsplit(value).netloc:
            raise WorkloadError(
                f"{name} has a user or a password, and anyone who may list Ray's jobs sees a job's variables: remove"
                " it, and set it on the nodes"
            )
    return variables


def tensorboard(spec: TrainRunOptions, folder: str) -> Logger:
    del spec
    # Comes with ray[train].
    writer = import_module("tensorboardX").SummaryWriter(f"{folder}/tensorboard", flush_secs=10)
    return lambda step, values: [writer.add_scalar(name, value, step) for name, value in values.items()], writer.close


def wandb(spec: TrainRunOptions, folder: str) -> Logger:
    run: Any = import_module("wandb").init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=spec.name,
        name=spec.name,
        resume="allow",
        dir=folder if Path(folder).is_dir() else None,  # of an offline run, for `wandb sync`
        config=spec.model_dump(mode="json"),
    )
    return lambda step, values: run.log(dict(values), step=step), run.finish


def mlflow(spec: TrainRunOptions, folder: str) -> Logger:
    del folder
    server: Any = import_module("mlflow")
    server.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    server.start_run(run_name=spec.name)
    server.log_params(spec.model_dump(mode="json"))
    return lambda step, values: server.log_metrics(dict(values), step=step), server.end_run


def chosen(spec: TrainRunOptions) -> list[Callable[[TrainRunOptions, str], Logger]]:
    """Return the loggers that the run asks for and this node has."""
    loggers: list[Callable[[TrainRunOptions, str], Logger]] = [tensorboard] if spec.log else []
    asked = {wandb: ("WANDB_API_KEY", "WANDB_MODE"), mlflow: ("MLFLOW_TRACKING_URI",)}
    return loggers + [
        logger
        for logger, variables in asked.items()
        if any(os.environ.get(name) for name in variables) and find_spec(logger.__name__)
    ]


class Logs:
    """Logs of a run, written on a thread: a server that does not answer holds up no step and ends no run.

    Without a `folder`, on all ranks but 0, nothing is logged.
    """

    def __init__(self, spec: TrainRunOptions, folder: str | None) -> None:
        self.waiting: Queue[tuple[int, Values] | None] = Queue(MOST_WAITING)
        self.thread: Thread | None = None
        if folder is not None and (asked := chosen(spec)):
            self.thread = Thread(target=self._run, args=(spec, folder, asked), name="logs", daemon=True)
            self.thread.start()

    def write(self, step: int, values: Values) -> None:
        """Log values at a step; drop them if `MOST_WAITING` others wait."""
        if self.thread is not None:
            with suppress(Full):
                self.waiting.put_nowait((step, values))

    def close(self) -> None:
        """End the logs, within `CLOSE_S`."""
        if self.thread is not None:
            with suppress(Full):
                self.waiting.put_nowait(None)
            self.thread.join(CLOSE_S)

    def _run(self, spec: TrainRunOptions, folder: str, asked: list[Callable[[TrainRunOptions, str], Logger]]) -> None:
        opened: dict[str, Logger] = {}

        @contextmanager
        def reported(name: str) -> Iterator[None]:
            try:
                yield
            except Exception as error:  # of any library. Its message may have a secret.
                opened.pop(name, None)
                emit("note", text=f"no more logs to {name}: {type(error).__name__}")

        for logger in asked:
            with reported(logger.__name__):
                opened[logger.__name__] = logger(spec, folder)
        while (item := self.waiting.get()) is not None:
            for name, (log, _) in list(opened.items()):
                with reported(name):
                    log(*item)
        for name, (_, close) in list(opened.items()):
            with reported(name):
                close()
