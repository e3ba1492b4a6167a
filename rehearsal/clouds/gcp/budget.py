"""Budgets of a billing account and the channels of their emails: generated ids and computed outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.gcp.references import project_of
from rehearsal.engine.kind import Call, Json, Reference, ResourceKind
from rehearsal.engine.values import digest, number


def identify_channel(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/PROJECT/notificationChannels/NUMBER. Unlike Google, the same request gives the same number."""
    text = json.dumps(inputs, sort_keys=True)
    return f"projects/{project_of(inputs, config)}/notificationChannels/{number(text, 19)}"


def identify_budget(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return billingAccounts/ACCOUNT/budgets/ID."""
    return f"billingAccounts/{inputs['billingAccount']}/budgets/{digest(json.dumps(inputs, sort_keys=True), 32)}"


def compute_channel(call: Call) -> Json:
    """Return the project and the name."""
    return {"project": project_of(call.inputs, call.config), "name": call.id}


CHANNEL = ResourceKind(
    type="gcp:monitoring/notificationChannel:NotificationChannel",
    identify=identify_channel,
    compute=compute_channel,
    generated_ids=True,
)
BUDGET = ResourceKind(
    type="gcp:billing/budget:Budget",
    identify=identify_budget,
    compute=lambda call: {"name": call.id.rpartition("/")[2]},
    references=(Reference(path="allUpdatesRule.monitoringNotificationChannels", types=(CHANNEL.type,), holds=False),),
    generated_ids=True,
)
