"""Digits behind HTTP: the model of a checkpoint of `rdma-ray train digits`, on GPUs if it gets any.

    service:
      application: workloads.serving.digits:app
      deployment: Digits
      arguments: [checkpoint=/bucket/checkpoints/RUN]

A request is `POST /` with {"image": 8 rows of 8 numbers from 0 to 16}; the answer is {"digit", "step", "image"}: also
the step of the checkpoint and the image of the replica's container.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from ray import serve
from ray.serve import Application
from starlette.requests import Request
from starlette.responses import JSONResponse

from workloads.exits import WorkloadError
from workloads.train import shards
from workloads.train.checkpoints import RunFolder
from workloads.train.digits import DigitsTask
from workloads.train.options import DigitsOptions


class Model:
    """Model of the newest checkpoint in the folder of a run. WorkloadError if there is none."""

    def __init__(self, checkpoint: str) -> None:
        storage, _, run = checkpoint.rstrip("/").rpartition("/")
        found = shards.newest(RunFolder(storage, run), lambda value: [value]).state
        if found is None:
            raise WorkloadError(f"no checkpoint in {checkpoint}: choose the folder of a run of `rdma-ray train digits`")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.step = int(found["progress"]["step"])
        self.module = DigitsTask(DigitsOptions()).model(self.device).eval()
        self.module.load_state_dict(found["model"])

    def digit(self, image: object) -> int:
        """Return the digit on an image of 8 by 8 values from 0 to 16. ValueError for any other image."""
        try:
            values = torch.tensor(image, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"the image is not a list of numbers: {error}") from None
        if values.shape != (8, 8) or not bool(((values >= 0) & (values <= 16)).all()):
            raise ValueError(f"the image has shape {list(values.shape)}, not 8 by 8, or values outside 0 to 16")
        with torch.inference_mode():
            return int(self.module(values.div(16).view(1, 1, 8, 8).to(self.device)).argmax())


class Digits(Model):
    """The model as a deployment."""

    def __init__(self, checkpoint: str) -> None:
        # Replicas share their node: torch's default is a thread per core for each of them.
        torch.set_num_threads(1)
        super().__init__(checkpoint)

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            digit = self.digit((await request.json())["image"])
        except (ValueError, KeyError, TypeError) as error:
            return JSONResponse({"error": f'send {{"image": 8 rows of 8 numbers from 0 to 16}}: {error}'}, 400)
        return JSONResponse({"digit": digit, "step": self.step, "image": os.environ.get("RDMA_RAY_IMAGE")})


def app(arguments: Mapping[str, Any]) -> Application:
    """Return the application. Arguments: checkpoint, the folder of a run; gpus_per_replica."""
    if unknown := arguments.keys() - {"checkpoint", "gpus_per_replica"}:
        raise WorkloadError(f"service.arguments: this application has no {', '.join(sorted(unknown))}, only checkpoint")
    if "checkpoint" not in arguments:
        raise WorkloadError("service.arguments: set checkpoint=FOLDER, the folder of a run of `rdma-ray train digits`")
    deployment = serve.deployment(ray_actor_options={"num_gpus": arguments["gpus_per_replica"]})(Digits)
    return deployment.bind(arguments["checkpoint"])
