"""The loop that every worker runs, the same for every task."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it too, more slowly: see `workloads.loading`
import torch.distributed as dist

from workloads.exits import Exit, WorkloadError
from workloads.train import journal, shards
from workloads.train.checkpoints import RunFolder
from workloads.train.figures import metrics
from workloads.train.options import REQUEST, TrainRunOptions
from workloads.train.place import TrainerRank, in_ray_train
from workloads.train.result import Record
from workloads.train.run import TrainRun
from workloads.train.timeline import Clock


def train_loop(settings: dict[str, Any]) -> Record:
    """Run a worker of Ray Train. `settings` are {spec (JSON), driver}. Only rank 0's return counts."""
    logging.getLogger("ray.train").setLevel(logging.WARNING)  # else every rank logs every report
    spec = REQUEST.validate_json(settings["spec"])
    record = train(spec, in_ray_train(spec.use_gpu), settings["driver"])
    dist.destroy_process_group()
    return record


def train(spec: TrainRunOptions, place: TrainerRank, driver: float) -> Record:
    """Train on this rank until the end of the run, or until something stops it. All ranks return the same record.

    Errors of the request, the data, the loss or the storage are in the record, because they would happen again. Only
    errors that a new start may fix are raised.
    """
    if place.device.type == "cpu":
        torch.set_num_threads(1)  # a worker has one CPU; a thread pool for each would oversubscribe it
    clock = Clock(submitted=spec.submitted, driver=driver, worker=time.time())
    try:
        folder = place.together(lambda: open_folder(spec, place))
        found = shards.newest(folder, place.gather)
        run = place.together(lambda: TrainRun(spec, place, clock, folder, found))
        same_data(run, place)
    except WorkloadError as error:
        return Record(error=str(error), code=Exit.ERROR)
    try:
        run.build()
        run.go()
        record = run.record()
        place.report(metrics(record))
        return record
    except WorkloadError as error:
        # Other ranks may wait for this one, so it must end as well. The next start reads the journal.
        journal.doom(run.folder, spec.submitted, str(error))
        raise


def same_data(run: TrainRun, place: TrainerRank) -> None:
    """Raise WorkloadError, on every rank, if the ranks have different data."""
    identities = place.gather({**run.identity})
    other = next((rank for rank, identity in enumerate(identities) if identity != identities[0]), None)
    if other is not None:
        [name, *_] = [name for name, value in identities[0].items() if identities[other][name] != value]
        host = place.gather(socket.gethostname())[other]
        raise WorkloadError(
            f"rank {other} on {host} has a different {name} from rank 0: all nodes must have the same data, and the"
            " same version of Python for the Python reference"
        )


def open_folder(spec: TrainRunOptions, place: TrainerRank) -> RunFolder:
    """Return the run's folder. WorkloadError if it is not writable, or if this job cannot continue."""
    folder = RunFolder(spec.checkpoint_dir, spec.name)
    if place.rank == 0:
        folder.check_writable()
    if (doomed := journal.doomed(folder, spec.submitted)) is not None:
        raise WorkloadError(doomed)
    return folder
