"""The stack's cost in the engine's diagnostics, and the refusal of a change that raises it sharply.

The engine has the outputs of the last `up`, so a preview compares with them, also in CI and with `pulumi up`.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.settings import CloudSettings, SettingsError
from infra.settings.cost import age, rise, summary


def log_cost(settings: CloudSettings) -> None:
    """Write the cost to the engine's diagnostics. Raises SettingsError for a sharp rise without `budget.hourly`."""
    pulumi.log.info(f"cost: {summary(settings)}")
    if old := age(settings.cost, datetime.date.today()):
        pulumi.log.warn(old)
    if problem := rise(settings, before=workers_of(earlier_outputs())):
        raise SettingsError([problem])


def workers_of(outputs: Mapping[str, Any]) -> float:
    """Return what the worker nodes of an earlier version of the stack cost at most per hour; 0 if it has none."""
    cost = outputs.get("cost")
    workers = cost.get("workers") if isinstance(cost, Mapping) else None
    return float(workers) if isinstance(workers, int | float) else 0.0


def earlier_outputs() -> Mapping[str, Any]:
    """Return the outputs of the last `up`; none before the first one, or with a warning if they cannot be read."""
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    for wait_s in (0.1, 0.2, 0.4, 0.8, None):
        try:
            # As a StackReference reads another stack (pulumi: pkg/resource/deploy/builtins.go, v3.259.0), but without a
            # resource. The SDK raises Exception itself.
            answer = pulumi.runtime.invoke("pulumi:pulumi:readStackOutputs", {"name": name})
        except Exception as error:
            if wait_s is None:
                pulumi.log.warn(f"The last outputs cannot be read, so a sharp rise of the cost is not noticed: {error}")
                break
            # An engine at work rewrites the state in a file, and half a file is not JSON.
            time.sleep(wait_s)
        else:
            outputs: Mapping[str, Any] = (answer.value or {}).get("outputs") or {}
            return outputs
    return {}
