"""A training run for people: a bar over its epochs, and the figures at its end. Reads the result's JSON only."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from workloads.client.view import ProgressView
from workloads.events import Event


class TrainView(ProgressView):
    """The bar counts epochs; each finished one is also a line."""

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.say("starting the workers")
            case "plan":
                self.begin(event["epochs"], event["done"])
                resumed = f", from epoch {event['done'] + 1}" if event["done"] else ""
                self.say(f"training on {event['workers']} workers{resumed}")
            case "epoch":
                self.note(
                    f"epoch {event['epoch']}: loss {event['loss']:.4f}, test accuracy {event['accuracy']:.4f},"
                    f" {event['seconds']:.2f} s"
                )
                self.advance(f"epoch {event['epoch']}")


def show(result: dict[str, Any], console: Console) -> None:
    """Print the figures, or nothing but the reason where training did not end."""
    if "accuracy" in result:
        seconds = result["seconds"]
        rate = f"{result['images_per_s']:.0f} img/s" if result["images_per_s"] else "nothing left to train"
        console.print(
            f"{len(result['epochs'])} epochs on {result['world']} workers ({result['backend']}): loss"
            f" {result['loss']:.4f}, {rate} over all workers; workers up in {seconds['start_up']:.1f} s, trained for"
            f" {seconds['train']:.1f} s, checkpoints and all {seconds['total']:.1f} s",
            highlight=False,
            soft_wrap=True,
        )
        console.print(
            f"checkpoints: {result['spec']['storage']}/{result['spec']['name']}", highlight=False, soft_wrap=True
        )
    console.print(result["reason"], style="red" if result["exit_code"] else "green", markup=False, soft_wrap=True)
