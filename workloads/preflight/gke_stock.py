"""Google's score of how likely machines can be had now (`gcloud beta compute advice capacity`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from infra.catalog.capacity import MAX_RUN_HOURS
from workloads.preflight.answers import PreflightAnswer, refused
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.fields import entries, number, text
from workloads.preflight.gcloud import Question, Reply

ADVICE = (
    "Compute Engine docs, view-vm-availability: obtainability 0.7 and more is high, 0.3 and less is low; read 2026-11"
)
MODELS = {"flex-start": "FLEX_START", "flex-start-queued": "FLEX_START", "spot": "SPOT"}
"""Provisioning model of the kinds of capacity that Google scores (gcloud reference, beta compute advice capacity)."""
HIGH, LOW = 0.7, 0.3
"""From where on a chance is high, and up to where it is low (ADVICE)."""


class Score(NamedTuple):
    """Obtainability from 0 to 1, and the seconds that most spot machines run before Google takes them; None unknown."""

    obtainability: float | None
    uptime_s: float | None

    @property
    def words(self) -> str:
        """The chance in words."""
        if self.obtainability is None:
            return "unknown"
        return "likely" if self.obtainability >= HIGH else "unlikely" if self.obtainability <= LOW else "possible"


def advice(question: Question, kind: str, zone: str) -> Reply:
    """Ask how likely all nodes of the stack can be had in a zone now. Raises NoAnswerError."""
    settings = question.settings
    hours = settings.nodes.max_run_hours or MAX_RUN_HOURS
    return question.account.ask(
        *("beta", "compute", "advice", "capacity", f"--region={question.region}", f"--zones={zone}"),
        f"--provisioning-model={MODELS[kind]}",
        f"--size={settings.nodes.max}",
        f"--instance-selection-machine-types={settings.machine.name}",
        "--target-distribution-shape=any-single-zone",
        # Required with FLEX_START only.
        *([f"--max-run-duration={hours}h"] if MODELS[kind] == "FLEX_START" else ()),
    )


def score_of(reply: Reply, zone: str, size: int) -> Score:
    """Return the score of `size` machines in a zone."""
    for recommendation in entries(reply.document, "recommendations") or ():
        shards = entries(recommendation, "shards") or ()
        here = [shard for shard in shards if (text(shard, "zone") or "").rpartition("/")[2] == zone]
        machines = sum(number(shard, "instanceCount") or 0 for shard in here)
        chance = number(recommendation, "scores", "obtainability")
        if len(here) != len(shards) or machines < size or chance is None or not 0 <= chance <= 1:
            continue
        uptime = text(recommendation, "scores", "estimatedUptime") or ""
        digits = uptime.removesuffix("s")
        return Score(chance, float(digits) if digits.isascii() and digits.isdigit() else None)
    return Score(None, None)


def stock_answers(question: Question, kind: str) -> Iterator[PreflightAnswer]:
    """Yield whether Google is likely to have all nodes of the stack now."""
    zone, nodes, machine = question.zone, question.settings.nodes.max, question.settings.machine.name
    check = f"stock by {kind}"
    elsewhere = "rdma-ray capacity shows other zones and kinds of capacity; flex-start waits for up to seven days"
    try:
        reply = advice(question, kind, zone)
    except NoAnswerError as error:
        yield refused(error, "unsupported").not_ok(
            check, "mismatch", f"{zone} has no {machine} by {MODELS[kind]}", elsewhere
        )
        return
    score = score_of(reply, zone, nodes)
    found = f"{nodes} × {machine} in {zone}: {score.words}"
    if score.obtainability is not None:
        found = f"{found} (obtainability {score.obtainability:.1f} of 1)"
    if score.words == "likely":
        yield reply.ok(check, found)
    elif score.words == "unlikely":
        yield reply.not_ok(check, "stock-out", found, elsewhere)
    else:
        yield reply.unknown(check, found, elsewhere)
